"""The first release of the app's runtime, and the first Android version, that hand an operator of a file to NNAPI."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from typing import Any

from nnbridge.converters import PHONE
from nnbridge.converters.delegation import DelegateTarget
from nnbridge.converters.inspection import Mapped
from nnbridge.converters.mapping import MappingKind
from nnbridge.errors import OptionError, Reason
from nnbridge.file import ModelFile
from nnbridge.records import dataclass
from nnbridge.releases import RUNTIMES
from nnbridge.types import RUNTIME_FEATURE_LEVEL, android_name

_LEVELS = tuple(range(1, int(RUNTIME_FEATURE_LEVEL) + 1))
_ON_PHONES = (MappingKind.DELEGATE, MappingKind.PROVIDER)
_Place = tuple[int, int]
"""Subgraph and index of an operator."""


@dataclass(frozen=True)
class Since:
    """The first releases that hand over an operator, each by itself: an operator that costs the interpreter does not count for
    the others."""

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
    """The answer for each operator that is not folded: the rules themselves, asked under each release and feature level.

    ``accelerated``: for devices without NNAPI's CPU. OptionError for formats that no runtime hands over.
    """
    runtime = next((runtime for name, runtime in RUNTIMES.items() if name in file.importer.options), None)
    if runtime is None:
        raise OptionError(
            Reason("a TFLite or ONNX file, whose runtime has releases", file.format, operand="since", file=str(file.path))
        )
    delegation = file.importer.delegation()

    @cache
    def outcomes(release: str, level: int) -> dict[_Place, Mapped]:
        if delegation is None:
            mapped = file.with_(**{runtime.option: release}, mapping=PHONE, feature_level=level).mapped
            return {(one.subgraph, one.index): one for one in mapped}
        target = DelegateTarget(level, accelerated, release)
        graphs = {graph: delegation.outcomes(graph, delegation.stated(graph), target) for graph in delegation.graphs()}
        return {(graph, one.index): one for graph, several in graphs.items() for one in several}

    def handed_over(place: _Place, release: str, level: int = _LEVELS[-1]) -> bool:
        return outcomes(release, level)[place].mapping in _ON_PHONES

    found = []
    for place, one in outcomes(runtime.names[-1], _LEVELS[-1]).items():
        if one.mapping == MappingKind.FOLDED:
            continue
        releases = [release for release in runtime.names if handed_over(place, release)]
        first = releases[0] if releases else ""
        level = next((level for level in _LEVELS if handed_over(place, first, level)), 0) if first else 0
        found.append(Since(*place, one.operator, runtime.spans(releases), first, level))
    return tuple(found)
