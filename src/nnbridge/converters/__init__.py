"""The importer of a format, and the search for the one that reads a file.

An importer turns a model file into a :class:`~nnbridge.model.Model`. It is published under the entry point group
``nnbridge.converters``; a third party's is found the same way as nnbridge's own.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, fields, replace
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, ClassVar

from nnbridge.converters.delegation import Delegation, InMemory
from nnbridge.converters.edits import Adjustable, Edit
from nnbridge.converters.hosted import SourceParts
from nnbridge.converters.inspection import Inspection, Mapped, SignatureInfo, inspect_model
from nnbridge.converters.other_formats import format_of_name, other_format
from nnbridge.converters.recorded import Route
from nnbridge.converters.runtime_graph import RuntimeReader
from nnbridge.converters.structure import FileGraph
from nnbridge.entry_points import installed
from nnbridge.errors import NO_SUCH_FILE, ConversionError, InapplicableError, OptionError, Reason, cannot_read
from nnbridge.model import Model
from nnbridge.reading import open_file
from nnbridge.records import dataclass
from nnbridge.releases import NEWEST, RUNTIMES
from nnbridge.source import SourceDeclaration, SourceGraph
from nnbridge.types import RUNTIME_FEATURE_LEVEL

CONVERTERS_GROUP = "nnbridge.converters"
HEAD = 64
"""The number of bytes of a file that show its format."""
_SAVED = "nnbridge.converters.saved:SavedModelFile"
PHONE = "phone"
"""The mapping that Android itself would make of a file of its format."""


def late(name: str) -> Callable[..., Any]:
    """The function ``package.module:function``, whose module is imported at the first call.

    Converters are listed by every command; what reads their format is loaded when a file is.
    """
    return lambda *arguments: resolve_name(name)(*arguments)


@dataclass(frozen=True)
class ConversionOptions:
    """The options of a conversion."""

    feature_level: int = RUNTIME_FEATURE_LEVEL
    """The highest NNAPI feature level that the model may need, 1 to 8."""
    mapping: str = "wide"
    """``wide``: all that NNAPI can express; ``delegate`` and ``provider``: exactly what Android's TFLite delegate, or ONNX
    Runtime's NNAPI execution provider, would hand to it; ``phone``: the one of these two that reads the format."""
    layout: str = "auto"
    """Order of an image's axes for files that put channels first: ``nhwc``, ``nchw`` (by NNAPI's flag, feature level 3), or
    ``auto``, which is nhwc."""
    signature: str = ""
    """The signature to convert, of files that have several; the main graph without one."""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Dimensions for inputs by name, where the file leaves them open or where others are requested."""
    float64: str = "host"
    """Treatment of float64 values of ONNX files, which NNAPI does not have: ``host`` computes them there, ``narrow`` makes
    them float32, ``refuse`` refuses the file."""
    accelerated: bool = False
    """The delegate compiles for devices without NNAPI's CPU, whose limits then do not count."""
    allow_dynamic_dimensions: bool = False
    """The delegate is applied to graphs with tensors whose dimensions only a run knows; without it, TFLite refuses the delegate
    for such graphs, and NNAPI gets nothing of them."""
    tflite: str = NEWEST
    """The release of TFLite whose delegate it is, such as ``2.8``; ``newest``: the newest whose source was read."""
    ort: str = NEWEST
    """The release of ONNX Runtime whose provider it is, such as ``1.16``."""
    left: Mapping[int, Reason] | None = None
    """Operators of the converted graph that stay with the file's own runtime (the host), by index: why devices do not get them.
    None where NNAPI's CPU computes what devices refuse."""


class Importer(ABC):
    """A model file opened by the reader of its format. A subclass is published under :data:`CONVERTERS_GROUP`.

    Only :meth:`convert` must be there; what else a format may offer is answered with "nothing". An instance reads its file as far
    as it is asked about, and what it retains is read once.
    """

    name: ClassVar[str]
    """The format's name, as messages have it."""
    suffixes: ClassVar[tuple[str, ...]]
    """Lower-case file name endings, with the dot."""
    magic: ClassVar[tuple[tuple[int, bytes], ...]] = ()
    """``(offset, bytes)`` pairs, any of which marks the format; empty where the format has none."""
    mappings: ClassVar[tuple[str, ...]] = ("wide",)
    """The mappings that it knows, the phone's first."""
    options: ClassVar[tuple[str, ...]] = ("feature_level", "mapping")
    """The fields of :class:`ConversionOptions` that mean something to it."""
    in_memory: ClassVar[InMemory | None] = None
    """Reads the graph that an interpreter runs; without one, there is no delegate for the format."""
    runtime_graph: ClassVar[RuntimeReader | None] = None
    """Reads the graph that an inference runtime hands over; without one, there is no provider for the format."""
    neuron: ClassVar[Callable[[], Route] | None] = None
    """What LiteRT's MediaTek route needs of the importer; None for formats that do not go that way."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def recognises(cls, head: bytes) -> bool:
        """True if the file's first bytes have the format's mark."""
        return any(head[offset : offset + len(mark)] == mark for offset, mark in cls.magic)

    @classmethod
    def declared(cls) -> tuple[SourceDeclaration, ...]:
        """The format's operators with the names of their inputs and options, for profiles of devices that look at these."""
        return ()

    @abstractmethod
    def convert(self, options: ConversionOptions) -> tuple[Model, tuple[Mapped, ...]]:
        """The NNAPI model, and the outcome of each operator of the file where the importer reports it, else ``()``."""

    def inspect(self, options: ConversionOptions) -> Inspection:
        """Describe the file; for a format without a method of its own, its NNAPI model."""
        return inspect_model(self.convert(options)[0], self.path)

    def interface(self, options: ConversionOptions) -> SignatureInfo:
        """Inputs and outputs, of the signature where one is requested, with their metadata and without a conversion."""
        return SignatureInfo("", (), ())

    @property
    def remarks(self) -> Sequence[str]:
        """Sentences that a reader needs before anything else: what besides its own runtime the file needs."""
        return ()

    @property
    def foreign(self) -> Collection[tuple[int, int]]:
        """Operators, by subgraph and index, that the file's own runtime has no kernel for, or none for their types."""
        return ()

    def graphs(self, options: ConversionOptions) -> Sequence[FileGraph]:
        """The file's own graphs; none where only the NNAPI model has some."""
        return ()

    def edits(self, options: ConversionOptions) -> Iterable[Edit]:
        """Every rewrite that applies to the file or an operator of it; ``shapes`` of the options for open dimensions."""
        return ()

    def adjustable(self, subgraph: int, index: int) -> Adjustable | None:
        """The parameters of an operator that can be changed; None if nothing can."""
        return None

    def positions(self, options: ConversionOptions) -> Mapping[int, int]:
        """Converted operators of the main graph → the file's own, by index, where the importer writes one out in several."""
        return {}

    def part(self, inputs: Mapping[str, tuple[int, ...]], outputs: Collection[str]) -> bytes:
        """The bytes of a file with the operators that compute tensors from others, by names.

        ``inputs`` with their dimensions where they are known, else ``()``. ConversionError for formats that are not written.
        """
        raise ConversionError(
            Reason("a file whose format nnbridge writes parts of", self.path.suffix or "none", file=str(self.path))
        )

    def hosted(self, options: ConversionOptions) -> SourceParts | None:
        """Parts of the file for the operators of the host extension; None where no inference runtime computes them."""
        return None

    def delegation(self) -> Delegation | None:
        """The file's graphs as an interpreter offers them to a delegate; None for formats without one."""
        return None

    @property
    def is_compiled(self) -> bool:
        """True for a file of which a vendor's compiler compiled parts: no delegate or provider of the phone takes part."""
        return False

    def operators(self, options: ConversionOptions) -> SourceGraph:
        """The file's own operators, for devices that look at these; InapplicableError for formats that no device looks at."""
        raise InapplicableError(
            Reason("a TFLite file, whose operators the device looks at", f"the format {self.name}", str(self.path))
        )

    def resolved(self, options: ConversionOptions) -> ConversionOptions:
        """The options with the mapping's own name in place of ``phone``.

        OptionError for a mapping that the importer does not know, and for options that would do nothing with the file.
        """
        standard = ConversionOptions()
        for option in fields(options):
            value = getattr(options, option.name)
            if option.name not in self.options and value != getattr(standard, option.name) and value != PHONE:
                rule = f"does nothing with {self.name} files; leave it out"
                raise OptionError(Reason(rule, operand=option.name, file=str(self.path)))
        for name, releases in RUNTIMES.items():
            releases.require(getattr(options, name))
        if options.mapping not in (PHONE, *self.mappings):
            rule = f"a mapping of {self.name} files ({', '.join(self.mappings)})"
            raise OptionError(Reason(rule, options.mapping, operand="mapping", file=str(self.path)))
        if options.mapping != PHONE:
            return options
        return replace(options, mapping=standard.mapping if self.is_compiled else self.mappings[0])


@cache
def converters() -> tuple[type[Importer], ...]:
    """Every installed importer, by name; that of saved models comes with nnbridge."""
    return tuple(sorted((*installed(CONVERTERS_GROUP), resolve_name(_SAVED)), key=lambda importer: importer.name))


def opened(path: str | Path) -> Importer:
    """A model file, opened by the importer that its first bytes name, else its suffix; refused where the two disagree.

    ConversionError for what is not a file, and for files that cannot be models of any format.
    """
    path = Path(path)
    head = _head_of_model(path)
    suffix = path.suffix.lower()
    by_suffix = next((importer for importer in converters() if suffix in importer.suffixes), None)
    by_content = next((importer for importer in converters() if importer.recognises(head)), None)
    other = "" if by_content is not None else other_format(path, head)
    if other:
        raise ConversionError(Reason("a model file", other, file=str(path)))
    if by_content is not None and by_suffix is not None and by_content is not by_suffix:
        raise ConversionError(
            Reason(f"a file of the format {by_suffix.name}, as its name says", f"one of {by_content.name}", file=str(path))
        )
    chosen = by_content or by_suffix
    if chosen is None:
        known = ", ".join(suffix for importer in converters() for suffix in importer.suffixes)
        found = format_of_name(path) or f"a file that begins with {head[:8]!r}"
        raise ConversionError(Reason(f"a model file ({known})", found, file=str(path)))
    return chosen(path)


def _head_of_model(path: Path) -> bytes:
    if not os.path.isfile(path):
        found = "a folder" if os.path.isdir(path) else "a device or pipe" if os.path.exists(path) else NO_SUCH_FILE
        raise ConversionError(Reason("a model file", found, file=str(path)))
    try:
        with open_file(path) as file:
            head = file.read(HEAD)
    except OSError as error:
        raise ConversionError(Reason("a readable model file", cannot_read(error), file=str(path))) from error
    return head
