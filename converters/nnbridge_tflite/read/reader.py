"""From a path to a checked :class:`~nnbridge_tflite.read.graph.Graph` over the memory-mapped file."""

from __future__ import annotations

import math
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from nnbridge.budget import operations_limit
from nnbridge.errors import ConversionError, Reason, Stage, cannot_read
from nnbridge.model import Pool
from nnbridge.reading import open_file
from nnbridge.records import dataclass
from nnbridge_tflite.read.flatbuffer import Decoder, Malformed, Span, Table, refused_by_verifier
from nnbridge_tflite.read.graph import (
    ELEMENT_TYPES,
    Blocks,
    ElementType,
    Graph,
    Operator,
    Quantisation,
    SubgraphSignature,
    Tensor,
    TfliteSubgraph,
    element_of,
)
from nnbridge_tflite.read.schema import UNION_ENUMS, builtin_codes, builtin_names, enum_names, fields, options_table

IDENTIFIER = b"TFL3"
SCHEMA_VERSION = 3
MAX_RANK = 32
MAX_TENSOR_BYTES = 2**32 - 1
MAX_OPERANDS = 100_000
"""Inputs or outputs of one operator."""
MAX_EXPANDED = 2_000_000
"""Numbers that are copied out of vectors, where a table or vector that is shared counts each time."""
_MAX_CUSTOM = 1_024
"""Characters of a custom operator's name."""
ENTRY = 8
"""What each tensor and operator counts beside its vectors."""


@dataclass(frozen=True, slots=True)
class TfliteFile:
    """A mapped file and its content."""

    path: Path
    pool: Pool
    graph: Graph

    def bytes_at(self, span: Span) -> memoryview:
        """Bytes of the file, read-only."""
        return self.pool.data[span.offset : span.offset + span.length]


def read(path: Path) -> TfliteFile:
    """Map and check a file. ConversionError names the file, the place, what was expected and what was found."""
    return read_pool(path, mapped(path))


def read_pool(path: Path, pool: Pool) -> TfliteFile:
    """Check a file that is in memory; ``path`` is what errors call it."""
    data = pool.data
    if len(data) < 8 or bytes(data[4:8]) != IDENTIFIER:
        found = f"{bytes(data[4:8])!r}" if len(data) >= 8 else f"{len(data)} bytes"
        raise ConversionError(Reason(f"a TFLite file (identifier {IDENTIFIER.decode()} at byte 4)", found, file=str(path)))
    try:
        graph = _GraphReading(data).graph()
    except Malformed as error:
        raise ConversionError(Reason(error.rule, error.found, operand=error.place, file=str(path))) from error
    return TfliteFile(path, pool, graph)


def contains(pool: Pool, text: bytes) -> bool:
    """True if a mapped file has these bytes somewhere."""
    owner = pool.owner
    return isinstance(owner, mmap.mmap) and owner.find(text) >= 0


def mapped(path: Path) -> Pool:
    """A file's bytes. ConversionError for what cannot be read."""
    try:
        with open_file(path) as file:
            return Pool.of(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:
        found = "an empty file" if isinstance(error, ValueError) else cannot_read(error)
        raise ConversionError(Reason("a readable TFLite file", found, file=str(path))) from error


def _refuse(place: str, rule: str, found: object) -> NoReturn:
    error = Malformed(rule, found)
    error.path = [place]
    raise error


def _check_once(place: str, what: str, tables: Sequence[Table]) -> None:
    """ConversionError for a table in two places of a list: each operator writes outputs of its own."""
    if len(set(map(id, tables))) < len(tables):
        _refuse(place, f"each {what} listed once", len(tables))


class _GraphReading:
    """Builds the graph from the decoded root table."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._unloadable: Reason | None = None
        self._has_blocks = False
        decoder = Decoder(data)
        self._root = decoder.root("Model")
        self._irregular = decoder.irregular
        self._left = MAX_EXPANDED
        self._bytes: dict[Span, bytes] = {}

    def graph(self) -> Graph:
        root = self._root
        if root["version"] != SCHEMA_VERSION:
            _refuse("version", f"schema version {SCHEMA_VERSION}", root["version"])
        if not root["subgraphs"]:
            _refuse("subgraphs", "at least one subgraph", "none")
        self._buffers = [self._buffer(i, table) for i, table in enumerate(root["buffers"] or ())]
        self._codes = [self._operator_code(i, table) for i, table in enumerate(root["operator_codes"] or ())]
        _check_once("subgraphs", "subgraph", root["subgraphs"])
        most, found = operations_limit(len(self._data)), sum(len(table["operators"] or ()) for table in root["subgraphs"])
        if found > most:
            _refuse("subgraphs", f"at most {most:,} operators, for a file of this size", f"{found:,}")
        subgraphs = tuple(self._subgraph(table) for table in root["subgraphs"])
        return Graph(
            root["version"],
            root["description"] or "",
            subgraphs,
            tuple(self._signature(table, subgraphs) for table in root["signature_defs"] or ()),
            {m["name"] or "": self._buffers[m["buffer"]] for m in root["metadata"] or () if m["buffer"] < len(self._buffers)},
            self._refused(),
        )

    def _refused(self) -> Reason | None:
        """The reason why TFLite refuses a readable file before it looks at the graph."""
        if self._root["buffers"] is None:
            return Reason("a list of buffers", "none", "buffers", stage=Stage.LOADING)
        error = refused_by_verifier(self._data, "Model") if self._irregular else None
        if error is None:
            return self._unloadable
        return Reason(f"{error.rule} (its file verifier)", error.found, error.place, stage=Stage.LOADING)

    def _buffer(self, index: int, table: Table) -> Span:
        """A buffer's place: inside the flatbuffer, or after it in large files."""
        span: Span | None = table["data"]
        if span is not None:
            return span
        # Offsets 0 and 1 are the schema's ways of saying that there is nothing after the flatbuffer.
        offset, size = table["offset"], table["size"]
        if offset <= 1 or size == 0:
            return Span(0, 0)
        if offset + size > len(self._data):
            _refuse(f"buffers[{index}]", f"bytes inside {len(self._data)}", f"{size} at byte {offset}")
        return Span(offset, size)

    def _operator_code(self, index: int, table: Table) -> tuple[str, int, int, bool]:
        code = max(table["builtin_code"], table["deprecated_builtin_code"])
        name = builtin_names().get(code)
        if name is None:
            _refuse(f"operator_codes[{index}]", "a known builtin operator code", code)
        custom = code == builtin_codes()["CUSTOM"]
        if custom and len(table["custom_code"] or "") > _MAX_CUSTOM:
            # Every message about each of its operators has it.
            _refuse(f"operator_codes[{index}]", f"a custom operator's name of at most {_MAX_CUSTOM:,} characters", "a longer one")
        return (table["custom_code"] or "CUSTOM" if custom else name), code, table["version"], custom

    def _subgraph(self, table: Table) -> TfliteSubgraph:
        listed = table["operators"] or ()
        _check_once("operators", "operator", listed)
        tensors = tuple(self._tensor(i, t) for i, t in enumerate(table["tensors"] or ()))
        if self._has_blocks:
            tensors = tuple(t if t.blocks is None else _real(t, t.blocks, tensors) for t in tensors)
        operators = tuple(self._operator(i, t, len(tensors)) for i, t in enumerate(listed))
        name = table["name"] or ""
        self._spend(f"subgraph {name!r}", table["inputs"], table["outputs"])
        inputs = _indexes(table["inputs"], len(tensors), f"inputs of subgraph {name!r}")
        outputs = _indexes(table["outputs"], len(tensors), f"outputs of subgraph {name!r}")
        return TfliteSubgraph(name, tensors, operators, inputs, outputs)

    def _spend(self, place: str, *vectors: Any) -> None:
        """Account for what is copied, before it is."""
        self._left -= ENTRY
        for vector in vectors:
            if vector is not None:
                self._left -= len(vector)
        if self._left < 0:
            _refuse(place, f"at most {MAX_EXPANDED} numbers in tensors, operators and lists of them", "more")

    def _tensor(self, index: int, table: Table) -> Tensor:
        place = f"tensor {index} {(table['name'] or '')!r}"
        quantisation = table["quantization"] or {}
        self._spend(place, table["shape"], table["shape_signature"], quantisation.get("scale"), quantisation.get("zero_point"))
        details, element = quantisation.get("details"), ELEMENT_TYPES.get(table["type"])
        if element is None:
            _refuse(place, "a known element type", table["type"])
        shape = _dims(table["shape"], place, 0)
        if table["buffer"] >= max(len(self._buffers), 1):
            _refuse(place, f"a buffer below {len(self._buffers)}", table["buffer"])
        span = self._buffers[table["buffer"]] if self._buffers else Span(0, 0)
        tensor = Tensor(
            index,
            table["name"] or "",
            element,
            shape,
            _dims(table["shape_signature"], place, -1),
            # A list without elements is a constant without elements, as LiteRT has it; a missing list is not a constant.
            span if span.length or (span.offset and 0 in shape) else None,
            self._quantisation(table["quantization"], shape, place),
            table["is_variable"],
            table["sparsity"],
            table["has_rank"],
            None if details is None else self._blocks(details, element, place),
        )
        _check_size(tensor)
        _check_zero_points(tensor)
        return tensor

    def _quantisation(self, table: Table | None, shape: tuple[int, ...], place: str) -> Quantisation:
        """Scales and zero points, as many of them and along such a dimension as LiteRT demands; TFLite Micro demands less."""
        if table is None or table["scale"] is None or not (channels := len(table["scale"])):
            return Quantisation(stated=table is not None)
        scales, zero_points, axis = table["scale"], table["zero_point"], table["quantized_dimension"]
        count = 0 if zero_points is None else len(zero_points)
        if count != channels:
            found, rule = "none" if zero_points is None else count, f"as many zero points as scales ({channels})"
            if count != 1:
                _refuse(place, rule, found)
            self._not_loaded(place, rule, found)
        if axis < 0 or (shape and axis >= len(shape)):
            rule = f"a quantized_dimension from 0 to {max(len(shape) - 1, 0)}"
            if axis < 0:
                _refuse(place, rule, axis)
            self._not_loaded(place, rule, axis)
            axis = len(shape) - 1
        if channels > 1 and (not shape or channels != shape[axis]):
            expected = shape[axis] if shape else 1
            _refuse(place, f"one scale, or {expected} along dimension {axis} of {list(shape)}", f"{channels} scales")
        held = tuple(scales.tolist())
        # One scale is the rule; NumPy takes longer for it than Python.
        if not (0 <= held[0] < math.inf if channels == 1 else _all_fit(scales)):
            _refuse(place, "finite scales of at least 0", scales[~np.isfinite(scales) | (scales < 0)][0])
        # Those of channels are 0.
        points = (0,) * count if count > 1 and not np.count_nonzero(zero_points) else tuple(zero_points.tolist())
        return Quantisation(held, points, axis, True)

    def _not_loaded(self, place: str, rule: str, found: object) -> None:
        """Note why LiteRT does not load the file, though others do."""
        if self._unloadable is None:
            self._unloadable = Reason(rule, str(found), operand=place, stage=Stage.LOADING)

    def _blocks(self, details: Mapping[str, Any], element: ElementType, place: str) -> Blocks | None:
        """The storage of a tensor with a scale for each block; zero points are those of symmetric blocks."""
        if "block_size" not in details:
            return None
        if details["zero_points"] > 0:
            _refuse(place, "blocks without zero points", f"those of tensor {details['zero_points']}")
        self._has_blocks = True
        return Blocks(element, details["scales"], details["block_size"])

    def _operator(self, index: int, table: Table, tensors: int) -> Operator:
        if table["opcode_index"] >= len(self._codes):
            _refuse(f"operator {index}", f"an operator code below {len(self._codes)}", table["opcode_index"])
        name, code, version, custom = self._codes[table["opcode_index"]]
        place = f"operator {index} {name}"
        self._spend(place, table["inputs"], table["outputs"], table["intermediates"])
        options, ignored = _options(name, table)
        return Operator(
            index,
            name,
            code,
            version,
            _indexes(table["inputs"], tensors, f"inputs of {place}", optional=True),
            _indexes(table["outputs"], tensors, f"outputs of {place}"),
            _indexes(table["intermediates"], tensors, f"intermediates of {place}", optional=True),
            {key: value if isinstance(value, int) else self._plain(value, place) for key, value in options.items()},
            custom,
            self._custom_options(table, place),
            ignored,
        )

    def _custom_options(self, table: Table, place: str) -> bytes:
        span: Span | None = table["custom_options"]
        offset, size = table["large_custom_options_offset"], table["large_custom_options_size"]
        if offset > 1 and size:
            if offset + size > len(self._data):
                _refuse(place, f"custom options inside {len(self._data)} bytes", f"{size} at byte {offset}")
            span = Span(offset, size)
        if span is None:
            return b""
        if span not in self._bytes:
            self._spend(place, range(span.length // 64))
            self._bytes[span] = bytes(self._data[span.offset : span.offset + span.length])
        return self._bytes[span]

    def _plain(self, value: Any, place: str) -> Any:
        """An option as plain Python data."""
        if isinstance(value, Span):
            value = np.frombuffer(self._data, np.uint8, value.length, value.offset)
        if isinstance(value, (np.ndarray, tuple, dict)):
            self._spend(place, value)
        if isinstance(value, np.ndarray):
            return value.tolist()
        if isinstance(value, tuple):
            return [self._plain(part, place) for part in value]
        if isinstance(value, dict):
            return {key: self._plain(part, place) for key, part in value.items()}
        return value

    def _signature(self, table: Table, subgraphs: tuple[TfliteSubgraph, ...]) -> SubgraphSignature:
        key = table["signature_key"] or ""
        place = f"signature {key!r}"
        if table["subgraph_index"] >= len(subgraphs):
            _refuse(place, f"a subgraph below {len(subgraphs)}", table["subgraph_index"])
        count = len(subgraphs[table["subgraph_index"]].tensors)
        self._spend(place, table["inputs"], table["outputs"])
        return SubgraphSignature(
            key, table["subgraph_index"], _tensor_map(table["inputs"], count, place), _tensor_map(table["outputs"], count, place)
        )


def _options(operator: str, table: Table) -> tuple[Mapping[str, Any], str]:
    """The options of an operator, none where there is no table of its kind; the kind that TFLite ignores instead."""
    expected, ignored = options_table(operator), ""
    for field in ("builtin_options", "builtin_options2"):
        kind = enum_names(UNION_ENUMS[field]).get(table[f"{field}_type"], "NONE")
        if kind == expected and table[field] is not None:
            return table[field], ""
        ignored = ignored if kind in ("NONE", expected) else kind
    return {}, ignored if expected is not None and fields(expected) else ""


def _tensor_map(tables: tuple[Table, ...] | None, count: int, place: str) -> Mapping[str, int]:
    mapped = {}
    for table in tables or ():
        if table["tensor_index"] >= count:
            _refuse(place, f"a tensor below {count}", table["tensor_index"])
        mapped[table["name"] or ""] = table["tensor_index"]
    return mapped


def _indexes(vector: Any, count: int, place: str, *, optional: bool = False) -> tuple[int, ...]:
    """Tensor indexes, each of which exists; -1 only where inputs may be omitted."""
    if vector is None:
        return ()
    if len(vector) > MAX_OPERANDS:
        _refuse(place, f"at most {MAX_OPERANDS} tensors", len(vector))
    indexes = tuple(vector.tolist())
    lowest = -1 if optional else 0
    if indexes and not lowest <= min(indexes) <= max(indexes) < count:
        _refuse(place, f"a tensor index below {count}", next(i for i in indexes if not lowest <= i < count))
    return indexes


def _dims(vector: Any, place: str, lowest: int) -> tuple[int, ...]:
    if vector is None:
        return ()
    if len(vector) > MAX_RANK:
        _refuse(place, f"at most {MAX_RANK} dimensions", len(vector))
    dims = tuple(vector.tolist())
    if dims and min(dims) < lowest:
        _refuse(place, f"dimensions of at least {lowest}", list(dims))
    return dims


def _real(tensor: Tensor, blocks: Blocks, tensors: Sequence[Tensor]) -> Tensor:
    """The numbers that a tensor's blocks stand for."""
    if not 0 <= blocks.scales < len(tensors):
        _refuse(tensor.label, f"scales in a tensor below {len(tensors)}", blocks.scales)
    scales, fits = tensors[blocks.scales], bool(tensor.shape) and blocks.size > 0 and tensor.shape[-1] % blocks.size == 0
    if blocks.stored.name not in ("INT4", "INT8") or tensor.data is None or tensor.sparsity is not None:
        _refuse(tensor.label, "blocks of constant 4- or 8-bit integers", str(tensor))
    if not fits or scales.elements != tensor.elements // blocks.size:
        _refuse(tensor.label, f"a scale for each {blocks.size} elements of the last dimension", f"{tensor}, scales {scales}")
    if scales.data is None or scales.blocks is not None or scales.type.name not in ("FLOAT16", "FLOAT32"):
        _refuse(tensor.label, "constant floats as scales", str(scales))
    return replace(tensor, type=element_of(np.dtype(np.float32)), quantisation=Quantisation(), blocks=blocks)


def _all_fit(scales: npt.NDArray[np.float32]) -> bool:
    """True if all are finite and at least 0."""
    # The bits of such numbers are below infinity's, as integers; those of negative zero are not.
    return bool(np.maximum.reduce(scales.view(np.uint32)) < _INFINITY or (scales.min() >= 0 and scales.max() < math.inf))


_INFINITY = 0x7F800000
"""The bits of float32's."""
_LIMITS = {"UINT8": (0, 255), "INT8": (-128, 127)}


def _check_zero_points(tensor: Tensor) -> None:
    """Zero points of 8-bit integers are numbers of their type."""
    points = tensor.quantisation.zero_points
    # Scales by channel come with zeros, as many of them.
    if points.count(0) == len(points) or tensor.type.name not in _LIMITS:
        return
    low, high = _LIMITS[tensor.type.name]
    if min(points) < low or max(points) > high:
        _refuse(tensor.label, f"a zero point from {low} to {high}", next(p for p in points if not low <= p <= high))


def _check_size(tensor: Tensor) -> None:
    """A constant has the bytes that its shape and type need; no tensor is larger than NNAPI can say."""
    if tensor.type.dtype is None:
        return
    elements, bits = tensor.elements, tensor.type.bits
    counted = elements or math.prod(filter(None, tensor.shape))  # NumPy allows no more beside a dimension of 0 either.
    if counted * max(bits, 8) > 8 * MAX_TENSOR_BYTES:
        _refuse(tensor.label, f"a tensor of at most {MAX_TENSOR_BYTES} bytes", str(tensor))
    needed = -(-elements * bits // 8)
    if tensor.data is not None and tensor.sparsity is None and tensor.data.length != needed:
        _refuse(tensor.label, f"a buffer of {needed} bytes for {tensor}", f"{tensor.data.length} bytes")
