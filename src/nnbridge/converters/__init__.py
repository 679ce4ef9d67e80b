"""What a converter is, and how nnbridge finds the one for a file.

A converter turns a model file into a :class:`~nnbridge.model.Model`. It is published under the entry point group
``nnbridge.converters``; a third party's is found the same way as nnbridge's own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from nnbridge import storage
from nnbridge.converters.delegation import InMemory
from nnbridge.converters.edits import Adjustable, Edit
from nnbridge.converters.hosted import SourceParts
from nnbridge.converters.inspection import Inspection, Mapped, SignatureInfo
from nnbridge.converters.recorded import Route
from nnbridge.converters.runtime_graph import RuntimeReader
from nnbridge.converters.structure import FileGraph
from nnbridge.entry_points import installed
from nnbridge.errors import ConversionError, OptionError, Reason
from nnbridge.model import Model
from nnbridge.source import SourceDeclaration, SourceGraph
from nnbridge.types import RUNTIME_FEATURE_LEVEL

CONVERTERS_GROUP = "nnbridge.converters"
HEAD = 64
"""How many bytes of a file show its format."""
PHONE = "phone"
"""The mapping that Android itself would make of a file of its format."""


def late(name: str) -> Callable[..., Any]:
    """The function ``package.module:function``, whose module is imported at the first call.

    Converters are listed by every command; what reads their format is loaded when a file is.
    """
    return lambda *arguments: resolve_name(name)(*arguments)


@dataclass(frozen=True)
class ConversionOptions:
    """What a user may ask of a conversion."""

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
    """What becomes of float64 values of ONNX files, which NNAPI does not have: ``host`` computes them there, ``narrow`` makes
    them float32, ``refuse`` refuses the file."""
    accelerated: bool = False
    """The delegate compiles for devices without NNAPI's CPU, whose limits then do not count."""
    allow_dynamic_dimensions: bool = False
    """The delegate is applied to graphs with tensors whose dimensions only a run knows; without it, TFLite refuses the delegate
    for such graphs, and NNAPI gets nothing of them."""
    left: Mapping[int, Reason] | None = None
    """Operators of the converted graph that stay with the file's own runtime (the host), by index: why devices do not get them.
    None where NNAPI's CPU computes what devices refuse."""


@dataclass(frozen=True)
class Converter:
    """A reader of one file format."""

    name: str
    suffixes: tuple[str, ...]
    """Lower-case file name endings, with the dot."""
    magic: tuple[tuple[int, bytes], ...]
    """``(offset, bytes)`` pairs, any of which marks the format; empty where the format has none."""
    convert: Callable[[Path, ConversionOptions], Model]
    inspect: Callable[[Path, ConversionOptions], Inspection] | None = None
    """Look into a file without running it; without one, the converted model is looked into."""
    explain: Callable[[Path, ConversionOptions], tuple[Model, tuple[Mapped, ...]]] | None = None
    """Convert, and report the outcome of each operator; without one, outcomes are not reported."""
    interface: Callable[[Path, ConversionOptions], SignatureInfo] | None = None
    """Inputs and outputs, of the signature where one is requested, with their metadata and without a conversion."""
    graphs: Callable[[Path, ConversionOptions], Sequence[FileGraph]] | None = None
    """The graphs of a file as they stand there; without one, those of the converted model are shown."""
    edits: Callable[[Path], Iterable[Edit]] | None = None
    """Every rewrite that applies to a file or an operator of it; None for formats that are not written."""
    adjustable: Callable[[Path, int, int], Adjustable | None] | None = None
    """``adjustable(path, subgraph, index)``: what can be changed of an operator; None of it if nothing can."""
    part: Callable[[Path, Mapping[str, tuple[int, ...]], Collection[str]], bytes] | None = None
    """``part(path, inputs, outputs)``: the bytes of a file with the operators that compute tensors from others, by names;
    inputs with their dimensions where they are known, else ``()``."""
    hosted: Callable[[Path, ConversionOptions], SourceParts] | None = None
    """Parts of a file for the operators of the host extension; without one, no inference runtime computes them."""
    mappings: tuple[str, ...] = ("wide",)
    """The mappings that it knows, the phone's first."""
    in_memory: InMemory | None = None
    """Read the graph that an interpreter runs; without one, there is no delegate for the format."""
    runtime_graph: RuntimeReader | None = None
    """Read the graph that an inference runtime hands over; without one, there is no provider for the format."""
    compiled: Callable[[Path], bool] | None = None
    """True for a file of which a vendor's compiler has compiled parts: no delegate or provider of the phone takes part."""
    neuron: Callable[[], Route] | None = None
    """What LiteRT's route to MediaTek needs of the importer; None for formats that do not go that way."""
    options: tuple[str, ...] = tuple(option.name for option in fields(ConversionOptions))
    """The fields of :class:`ConversionOptions` that mean something to it."""
    operators: Callable[[Path, ConversionOptions], SourceGraph] | None = None
    """The file's own operators, for devices that evaluate these."""
    declared: Callable[[], tuple[SourceDeclaration, ...]] | None = None
    """The format's operators with the names of their inputs and options, for profiles of such devices."""

    def recognises(self, head: bytes) -> bool:
        """True if the file's first bytes carry the format's mark."""
        return any(head[offset : offset + len(mark)] == mark for offset, mark in self.magic)


def check_options(options: ConversionOptions, path: Path, converter: Converter | None) -> None:
    """OptionError for a mapping that the converter does not know, and for options that would do nothing with its files.

    Without a converter, the file is a saved model, with which no option does anything.
    """
    name, known = ("a saved model", ()) if converter is None else (f"{converter.name} files", converter.options)
    standard = ConversionOptions()
    for option in fields(options):
        value = getattr(options, option.name)
        if option.name not in known and value != getattr(standard, option.name) and value != PHONE:
            typed = "--" + option.name.replace("_", "-").removesuffix("s")
            raise OptionError(Reason(f"no {typed}, which does nothing with {name}", str(value), str(path)))
    if converter is not None and options.mapping not in (PHONE, *converter.mappings):
        rule = f"a mapping of {name} ({', '.join(converter.mappings)})"
        raise OptionError(Reason(rule, options.mapping, str(path), "--mapping"))


def resolved(options: ConversionOptions, converter: Converter | None, path: Path) -> ConversionOptions:
    """The options with the mapping's own name in place of ``phone``; a saved model is what its conversion made it."""
    if options.mapping != PHONE:
        return options
    fixed = converter is None or (converter.compiled is not None and converter.compiled(path))
    return replace(options, mapping=ConversionOptions().mapping if converter is None or fixed else converter.mappings[0])


@cache
def converters() -> tuple[Converter, ...]:
    """Every installed converter, by name."""
    return tuple(sorted(installed(CONVERTERS_GROUP), key=lambda c: c.name))


def converter_for(path: Path, head: bytes = b"") -> Converter:
    """The converter for a file: by its first bytes, else by its suffix; refused where the two disagree.

    ``head``: its first bytes, :data:`HEAD` of them, for callers that have read them.
    """
    try:
        if not head:
            with path.open("rb") as file:
                head = file.read(HEAD)
    except OSError as error:
        raise ConversionError(f"{path}: cannot be read: {error.strerror or error}") from error
    suffix = path.suffix.lower()
    by_suffix = next((c for c in converters() if suffix in c.suffixes), None)
    by_content = next((c for c in converters() if c.recognises(head)), None)
    if by_content is not None and by_suffix is not None and by_content is not by_suffix:
        raise ConversionError(
            Reason(f"a {by_suffix.name} file, as its name says", f"a {by_content.name} file", operand=str(path))
        )
    chosen = by_content or by_suffix
    if chosen is None:
        known = ", ".join([*(suffix for c in converters() for suffix in c.suffixes), storage.SUFFIX])
        raise ConversionError(Reason(f"a model file ({known})", f"a file that begins with {head[:8]!r}", operand=str(path)))
    return chosen
