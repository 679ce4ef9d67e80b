"""The first release of the app's runtime, and the first Android version, that hand an operator of a file to NNAPI."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from nnbridge.converters.delegation import DelegateTarget, Delegation
from nnbridge.converters.mapping import MappingKind
from nnbridge.errors import OptionError, Reason
from nnbridge.file import ModelFile
from nnbridge.releases import TFLITE
from nnbridge.types import RUNTIME_FEATURE_LEVEL, android_name

_LEVELS = tuple(range(1, int(RUNTIME_FEATURE_LEVEL) + 1))
_Place = tuple[int, int]
"""Subgraph and index of an operator."""


@dataclass(frozen=True)
class Since:
    """When an operator is handed over, each by itself: an operator that costs the interpreter does not count for the others."""

    subgraph: int
    index: int
    operator: str
    releases: str
    """The releases on a phone of the highest feature level, in words; empty for none."""
    first: str = ""
    """The first release."""
    feature_level: int = 0
    """The first feature level with that release."""

    @property
    def android(self) -> str:
        """The Android version of that level; empty where no release hands it over."""
        return android_name(self.feature_level) if self.first else ""

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {**asdict(self), "android": self.android}


def since(file: ModelFile, *, accelerated: bool = False) -> tuple[Since, ...]:
    """The answer for each operator of a TFLite file that is not folded: the delegate's rules under each release and level.

    ``accelerated``: for devices without NNAPI's CPU. OptionError for other formats.
    """
    delegation = file.importer.delegation()
    if delegation is None:
        raise OptionError(Reason("a TFLite file, whose delegate has releases", file.format, str(file.path), "since"))
    of_release = {
        release: _handed_over(delegation, DelegateTarget(_LEVELS[-1], accelerated, release)) for release in TFLITE.names
    }
    firsts: dict[_Place, str] = {}
    for release in TFLITE.names:
        for place in of_release[release]:
            firsts.setdefault(place, release)
    levels: dict[tuple[str, int], frozenset[_Place]] = {}
    found = []
    for place, operator in _operators(delegation).items():
        first = firsts.get(place, "")
        releases = TFLITE.spans(release for release in TFLITE.names if place in of_release[release])
        level = 0
        for level in _LEVELS if first else ():
            if (first, level) not in levels:
                levels[first, level] = _handed_over(delegation, DelegateTarget(level, accelerated, first))
            if place in levels[first, level]:
                break
        found.append(Since(*place, operator, releases, first, level))
    return tuple(found)


def _operators(delegation: Delegation) -> dict[_Place, str]:
    """Every operator that is not folded in the newest release."""
    target = DelegateTarget(_LEVELS[-1])
    return {
        (graph, one.index): one.operator
        for graph in delegation.graphs()
        for one in delegation.outcomes(graph, delegation.stated(graph), target)
        if one.mapping != MappingKind.FOLDED
    }


def _handed_over(delegation: Delegation, target: DelegateTarget) -> frozenset[_Place]:
    return frozenset(
        (graph, one.index)
        for graph in delegation.graphs()
        for one in delegation.outcomes(graph, delegation.stated(graph), target)
        if one.mapping == MappingKind.DELEGATE
    )
