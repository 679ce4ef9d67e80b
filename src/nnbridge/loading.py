"""From a path to a model, or to what its file holds: a saved ``.nnapi`` file, or whatever an installed converter reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from nnbridge import saved_edits, storage
from nnbridge.converters import HEAD, ConversionOptions, Converter, check_options, converter_for, resolved
from nnbridge.converters.delegation import HALVES_RULE, whole_or_nothing
from nnbridge.converters.edits import Adjustable, Edit
from nnbridge.converters.inspection import Inspection, Mapped, SignatureInfo, inspect_model
from nnbridge.converters.mapping import MappingKind
from nnbridge.converters.structure import FileGraph, graphs_of_model
from nnbridge.errors import ConversionError, OptionError, Reason, Why
from nnbridge.model import Model
from nnbridge.records import seldom_collected
from nnbridge.source import SourceGraph
from nnbridge.types import RUNTIME_FEATURE_LEVEL

if TYPE_CHECKING:
    from nnbridge.devices.device import Device

T = TypeVar("T")


def load(path: str | Path, options: ConversionOptions | None = None) -> Model:
    """A model file as a :class:`~nnbridge.model.Model`. ConversionError for anything that is wrong with it.

    Constants stay mapped: replace a file by another, never write into one while its model is in use (see :func:`storage.load`).
    """
    return load_with_report(path, options)[0]


@seldom_collected()
def load_with_report(path: str | Path, options: ConversionOptions | None = None) -> tuple[Model, tuple[Mapped, ...]]:
    """The same, and the outcome of each operator where the converter reports it."""
    path = Path(path)
    converter, options = _resolved(path, options or ConversionOptions())
    if converter is None:
        model = storage.load(path)
        # Clients of the C library give their models no name.
        return (model if model.name else replace(model, name=path.stem)), ()
    return (converter.convert(path, options), ()) if converter.explain is None else converter.explain(path, options)


def load_without_cpu(
    path: str | Path, options: ConversionOptions, devices: Sequence[Device], limit: int
) -> tuple[Model, tuple[Mapped, ...]]:
    """The same as TFLite's delegate without NNAPI's CPU does it: what the devices refuse, and partitions beyond the limit, stay
    with the file's own runtime.

    The lowest feature level of the devices counts. OptionError for mappings that are not TFLite's delegate's.
    """
    from nnbridge.runtime.feature_level_slices import Slices
    from nnbridge.runtime.partition_limits import undelegated
    from nnbridge.runtime.placement import ask

    if mapping_of(path, options) != MappingKind.DELEGATE:
        rule = "the mapping of TFLite's delegate, which leaves operators to TFLite"
        raise OptionError(Reason(rule, mapping_of(path, options), str(path), "--disallow-nnapi-cpu"))
    levels = [int(device.level) for device in devices if device.kind == "device"]
    options = replace(options, feature_level=min(options.feature_level, *levels, RUNTIME_FEATURE_LEVEL), accelerated=bool(levels))
    model, mapped = load_with_report(path, options)
    slices = Slices(model)
    answers = zip(*(ask(device, model, slices) for device in devices), strict=True)
    refusals = [None if any(answer.supported for answer in several) else several[0].reason for several in answers]
    left, handed = undelegated(model.main, refusals, limit), {one.index for one in mapped if one.mapping == MappingKind.DELEGATE}
    left = {index: why for index, why in left.items() if index in handed}
    refused = [why for index, why in left.items() if why.kind is not Why.PARTITIONS]
    if refused and options.accelerated and whole_or_nothing(mapped):
        left = dict.fromkeys(handed, replace(refused[0], rule=HALVES_RULE, found=str(refused[0])))
    return load_with_report(path, replace(options, left=left))


def mapping_of(path: str | Path, options: ConversionOptions) -> str:
    """The mapping under which a file is converted: ``phone`` stands for the one of its format."""
    return _resolved(Path(path), options)[1].mapping


def edits(path: str | Path) -> Iterable[Edit]:
    """Rewrites of a file's operators that leave its answers as they are; none for formats that nnbridge does not write."""
    converter, _ = _resolved(Path(path), ConversionOptions())
    if converter is None:
        return saved_edits.edits(Path(path))
    return () if converter.edits is None else converter.edits(Path(path))


def adjustable(path: str | Path, subgraph: int, index: int) -> Adjustable | None:
    """What can be changed of an operator of a file; None if nothing can."""
    converter, _ = _resolved(Path(path), ConversionOptions())
    if converter is None:
        return saved_edits.adjustable(Path(path), subgraph, index)
    return None if converter.adjustable is None else converter.adjustable(Path(path), subgraph, index)


def _converter(path: Path) -> Converter | None:
    """The converter for a file; None for a saved model."""
    head = _head_of_model(path)
    return None if is_saved(path, head) else converter_for(path, head)


def _resolved(path: Path, options: ConversionOptions) -> tuple[Converter | None, ConversionOptions]:
    """The converter for a file, None for a saved model, and the options as it gets them."""
    converter = _converter(path)
    check_options(options, path, converter)
    return converter, resolved(options, converter, path)


def inspect(path: str | Path, options: ConversionOptions | None = None) -> Inspection:
    """Look into a model file of any format that can be loaded; ConversionError for anything that is wrong with it."""
    path = Path(path)
    converter, options = _resolved(path, options or ConversionOptions())
    if converter is None:
        return inspect_model(load(path, options), path)
    if converter.inspect is None:
        return inspect_model(converter.convert(path, options), path)
    return converter.inspect(path, options)


def interface(path: str | Path, options: ConversionOptions | None = None) -> SignatureInfo:
    """A file's inputs and outputs with what it states of them; empty where the format has no metadata."""
    path, options = Path(path), options or ConversionOptions()
    converter = _converter(path)
    if converter is None or converter.interface is None:
        return SignatureInfo("", (), ())
    return converter.interface(path, options)


def graphs(path: str | Path, options: ConversionOptions | None = None) -> tuple[Sequence[FileGraph], bool]:
    """The graphs of a file, and whether they are the file's own: True unless they are those of an NNAPI model."""
    path = Path(path)
    converter, options = _resolved(path, options or ConversionOptions())
    if converter is None or converter.graphs is None:
        return graphs_of_model(load(path, options)), False
    return converter.graphs(path, options), True


def source_graph(path: str | Path, options: ConversionOptions | None = None) -> SourceGraph:
    """A file's own operators; ConversionError for formats whose operators no device looks at."""
    path, options = Path(path), options or ConversionOptions()
    converter = _converter(path)
    check_options(options, path, converter)
    if converter is None or converter.operators is None:
        found = "a saved model" if converter is None else f"{converter.name} operators"
        raise ConversionError(Reason("a TFLite file, whose operators the device looks at", found, str(path)))
    return converter.operators(path, options)


_NO_MODELS = {
    b"version https://git-lfs": "a Git LFS pointer (`git lfs pull` fetches the file that it stands for)",
    b"<!doctype html": "an HTML page, such as a download's error or preview page",
    b"<html": "an HTML page, such as a download's error or preview page",
}
"""How files begin that are often taken for models, in lower case → what they are."""


def _head_of_model(path: Path) -> bytes:
    """How a file begins; ConversionError for what is no file, and for files that cannot be models of any format."""
    if not path.is_file():
        found = "a folder" if path.is_dir() else "a device or pipe" if path.exists() else "none at this path"
        raise ConversionError(Reason("a model file", found, str(path)))
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
    except OSError as error:
        raise ConversionError(Reason("a readable model file", error.strerror or str(error), str(path))) from error
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    found = next((what for mark, what in _NO_MODELS.items() if start.startswith(mark)), "" if head else "an empty file")
    if found:
        raise ConversionError(Reason("a model file", found, str(path)))
    return head


def is_saved(path: Path, head: bytes = b"") -> bool:
    """True for a saved NNAPI model, by its mark or its suffix; ``head``: how it begins, for callers that have read it."""
    if not head:
        with path.open("rb") as file:
            head = file.read(8)
    return head[4:8] == storage.MAGIC or path.suffix.lower() == storage.SUFFIX


class Reader:
    """Reads a file once for the same options, for callers that ask many devices about files that do not change."""

    def __init__(self) -> None:
        self._read: dict[tuple[str, Path, str], Any] = {}

    def load_with_report(self, path: Path, options: ConversionOptions) -> tuple[Model, tuple[Mapped, ...]]:
        """:func:`load_with_report`; a file that is refused is read again."""
        return self._once(load_with_report, path, options)

    def source_graph(self, path: Path, options: ConversionOptions) -> SourceGraph:
        """:func:`source_graph`."""
        return self._once(source_graph, path, options)

    def _once(self, function: Callable[[Path, ConversionOptions], T], path: Path, options: ConversionOptions) -> T:
        key = function.__name__, path, repr(options)
        if key not in self._read:
            self._read[key] = function(path, options)
        found: T = self._read[key]
        return found


def bound_to(
    path: str | Path, devices: Sequence[Device], options: ConversionOptions, reader: Reader | None = None
) -> tuple[list[Device], int | None]:
    """The devices, those that look at a file's operators with their answers for this file; and their limit on partitions.

    A compiler has no limit, a delegate its own; None where no such device is among them. Signature and shapes of the options
    decide. ``reader``: one that has read the file before.
    """
    from nnbridge.devices.source_profiles import SourceProfile

    asking = [device for device in devices if isinstance(device, SourceProfile)]
    if not asking:
        return list(devices), None
    asked = ConversionOptions(signature=options.signature, shapes=options.shapes)
    graph = (reader or Reader()).source_graph(Path(path), asked)
    found = [device.bound(graph) if isinstance(device, SourceProfile) else device for device in devices]
    return found, min(device.max_partitions for device in asking)
