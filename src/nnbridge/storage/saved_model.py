"""Saved NNAPI models: ``.nnapi`` files (FlatBuffers by ``nnapi_model.fbs``), memory-mapped when read."""

from __future__ import annotations

import hashlib
import json
import math
import mmap
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

from nnbridge.errors import BadDataError, ConversionError, Reason, cannot_read, first_line
from nnbridge.extensions import MAX_PREFIXES, OPTIONS_TYPE, TYPES, HostExtension, value_size
from nnbridge.model import ChannelQuant, Location, Model, Operand, Operation, Pool, Source, State, Subgraph
from nnbridge.operations.validation import validate_model
from nnbridge.reading import open_file
from nnbridge.storage.atomic import atomic_write
from nnbridge.storage.flatbuffer import Schema, parse_schema, put, read, write
from nnbridge.types import (
    EXTENSION_PREFIX_SHIFT,
    POOL_ALIGNMENT,
    Lifetime,
    is_extension,
    split_extension_code,
)

FORMAT_VERSION = 1
MAX_EXTENSIONS = 64
"""Extensions of one file."""
MOST_FROM_FILES = MAX_PREFIXES // 2
"""Prefixes of a process beyond which files get none for names that no device has: the others are for devices and applications."""
_FIRST_FREE_PREFIX = MAX_PREFIXES
"""Prefixes that stand for names without one while a file is checked count down from here."""
SUFFIX = ".nnapi"
MAGIC = b"NNBM"


@cache
def schema() -> Schema:
    """The file format."""
    return parse_schema(files("nnbridge.storage").joinpath("nnapi_model.fbs").read_text(encoding="utf-8"))


def save(model: Model, path: Path) -> int:
    """Write a model's file, which appears whole or not at all; returns its length in bytes."""
    with atomic_write(path) as file:
        return write_model(model, file)


class _Sink(Protocol):
    def write(self, data: bytes | memoryview, /) -> object: ...


class _Checksum:
    """A file of which only the checksum is computed."""

    def __init__(self) -> None:
        self._sum = hashlib.sha256()
        self.digest = self._sum.digest

    def write(self, data: bytes | memoryview, /) -> None:
        self._sum.update(data)


def checksum(model: Model) -> bytes:
    """SHA-256 of the model's file: 32 bytes that stand for the model, as a token for ``setCaching`` must."""
    found = _Checksum()
    write_model(model, found)
    return found.digest()


def write_model(model: Model, file: _Sink) -> int:
    """Write a model and return the number of bytes; constants are written once each, 64-byte aligned.

    BAD_DATA for codes of extensions that it does not name.
    """
    names = list(model.extensions)
    chunks: dict[tuple[int, int, int], int] = {}
    length = 0

    def place(operand: Operand) -> int:
        nonlocal length
        at = operand.location
        key = (at.pool, at.offset, at.length)
        if key not in chunks:
            chunks[key] = length
            length += -(-at.length // POOL_ALIGNMENT) * POOL_ALIGNMENT
        return chunks[key]

    content = {
        "version": FORMAT_VERSION,
        "name": model.name,
        "relaxed": model.relaxed,
        "subgraphs": [_subgraph_values(model, s, names, place) for s in model.subgraphs()],
        "values": model.operand_values,
        "extensions": names,
        "constants_length": length,
        "states": [{"input": s.input, "output": s.output, "initial": s.initial} for s in model.states],
    }
    metadata = write(schema(), {**content, "constants_offset": 0})
    # Where the constants start is known once everything before them is written.
    offset = -(-len(metadata) // POOL_ALIGNMENT) * POOL_ALIGNMENT
    put(schema(), metadata, "constants_offset", offset)
    file.write(memoryview(metadata))
    file.write(bytes(offset - len(metadata)))
    for (pool, start, count), _ in sorted(chunks.items(), key=lambda item: item[1]):
        file.write(model.pools[pool].part(start, count))
        file.write(bytes(-count % POOL_ALIGNMENT))
    return offset + length


def load(path: Path) -> Model:
    """Read a model's file; ConversionError for anything that does not hold together.

    Its constants stay mapped: replace the file by another, never write into it while the model is in use. A file that was cut
    short is a ConversionError where constants are read next; what an execution already reads in place ends the process (SIGBUS).
    BAD_DATA for vendor extensions in a process that may not use them.
    """
    try:
        with open_file(path) as file:
            model = read_model(file.fileno(), str(path))
    except OSError as error:
        raise ConversionError(Reason("a file that can be mapped", cannot_read(error), file=str(path))) from error
    for prefix in model.extensions.values():
        TYPES.check_allowed(prefix << EXTENSION_PREFIX_SHIFT, str(path))
    return model


def read_model(descriptor: int, source: str, *, foreign: bool = False) -> Model:
    """:func:`load` of an open file, which is mapped and may be closed afterwards; ``source`` names it in errors.

    ``foreign``: the file is another process's. Extensions that no device here has get prefixes that only this model knows.
    """
    try:
        mapped = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        found = "an empty file" if isinstance(error, ValueError) else cannot_read(error)
        raise ConversionError(Reason("a file that can be mapped", found, file=source)) from error
    return model_in(memoryview(mapped), mapped, source, foreign=foreign)


def model_in(data: memoryview, owner: object, source: str, *, foreign: bool = False) -> Model:
    """The model of a file whose bytes are in memory, to which ``owner`` holds a reference; constants are not copied."""
    values = read(schema(), data, source, FORMAT_VERSION)
    start, length = values["constants_offset"], values["constants_length"]
    if start + length > len(data):
        raise ConversionError(Reason(f"{length} bytes of constants at {start}", f"a file of {len(data)}", file=source))
    pool = Pool(data[start : start + length], owner)
    if not values["subgraphs"]:
        raise ConversionError(Reason("a main subgraph", "none", file=source))
    try:
        numbers = _extension_numbers(values)
        # A process has 65,535 prefixes and assigns each once: names that no device has get theirs after everything is checked.
        prefixes = [
            TYPES.prefix(name) if TYPES.extension(name) is not None else _FIRST_FREE_PREFIX - i for i, name in enumerate(numbers)
        ]
        model = _model(values, prefixes, pool if length else None)
        _check_indexes(model)
        _check_extensions(model, numbers, source)
        verdict = validate_model(model)
        if verdict.reason is not None:
            raise ConversionError(replace(verdict.reason, operation=f"{source}: {verdict.reason.operation}".rstrip()))
        _check_states(model)
    except (ValueError, IndexError) as error:
        raise ConversionError(Reason("values that hold together", first_line(error), file=source)) from error
    final = prefixes if foreign else [TYPES.prefix(name, MOST_FROM_FILES) for name in numbers]
    return model if final == prefixes else _model(values, final, pool if length else None)


def _extension_numbers(values: Mapping[str, Any]) -> dict[str, set[int]]:
    """Name → numbers of operand types in use, for each extension of a file, of which there are few and none without a use."""
    names: list[str] = values["extensions"]
    if len(names) > MAX_EXTENSIONS:
        raise ValueError(f"{len(names)} extensions, more than {MAX_EXTENSIONS}")
    used: dict[int, set[int]] = {}
    for subgraph in values["subgraphs"]:
        for operand in subgraph["operands"]:
            used.setdefault(operand["extension"], set()).add(split_extension_code(operand["type"])[1])
        for operation in subgraph["operations"]:
            used.setdefault(operation["extension"], set())
    for i, name in enumerate(names, 1):
        if i not in used or names.index(name) != i - 1:
            raise ValueError(f"the extension {name!r} without a use, or twice")
    return {name: used[i] for i, name in enumerate(names, 1)}


def _model(values: Mapping[str, Any], prefixes: list[int], pool: Pool | None) -> Model:
    main, *referenced = (_subgraph(s, prefixes) for s in values["subgraphs"])
    return Model(
        main,
        tuple(referenced),
        values["values"],
        () if pool is None else (pool,),
        values["relaxed"],
        dict(zip(values["extensions"], prefixes, strict=True)),
        values["name"],
        tuple(State(s["input"], s["output"], bytes(s["initial"] or b"")) for s in values["states"] or ()),
    )


def _subgraph_values(model: Model, subgraph: Subgraph, names: list[str], place: Any) -> dict[str, Any]:
    def code(value: int) -> dict[str, int]:
        if not is_extension(value):
            return {"type": value, "extension": 0}
        extension = model.extension_of(value)
        if extension is None:
            raise BadDataError(Reason("a code of an extension that the model names", f"{value:#x}"))
        return {"type": extension[1], "extension": 1 + names.index(extension[0])}

    def operand(o: Operand) -> dict[str, Any]:
        quant = o.channel_quant
        reference = o.lifetime is Lifetime.CONSTANT_REFERENCE
        return {
            **code(o.type),
            "dims": o.dims,
            "scale": o.scale,
            "zero_point": o.zero_point,
            "channel_quant": None if quant is None else {"scales": quant.scales, "channel_dim": quant.channel_dim},
            "lifetime": int(o.lifetime),
            "offset": place(o) if reference else o.location.offset,
            "length": o.location.length,
            "extension_data": o.extension_data,
            "name": o.name,
            "source_type": o.source_type,
        }

    return {
        "operands": [operand(o) for o in subgraph.operands],
        "operations": [
            {
                **code(o.type),
                "inputs": o.inputs,
                "outputs": o.outputs,
                "name": o.name,
                "mapping": o.mapping,
                "source": None if o.source is None else asdict(o.source),
            }
            for o in subgraph.operations
        ],
        "inputs": subgraph.inputs,
        "outputs": subgraph.outputs,
        "relaxed": subgraph.relaxed,
    }


def _subgraph(values: Mapping[str, Any], prefixes: list[int]) -> Subgraph:
    def code(item: Mapping[str, Any]) -> int:
        number: int = item["type"]
        if item["extension"] == 0:
            if is_extension(number):
                raise ValueError(f"type {number} is too large")
            return number
        return prefixes[item["extension"] - 1] << EXTENSION_PREFIX_SHIFT | split_extension_code(number)[1]

    def operand(item: Mapping[str, Any]) -> Operand:
        quant = item["channel_quant"]
        return Operand(
            code(item),
            tuple(item["dims"]),
            item["scale"],
            item["zero_point"],
            None if quant is None else ChannelQuant(tuple(quant["scales"]), quant["channel_dim"]),
            Lifetime(item["lifetime"]),
            Location(0, item["offset"], item["length"]),
            item["extension_data"] or None,
            item["name"],
            item["source_type"],
        )

    def operation(item: Mapping[str, Any]) -> Operation:
        found = item["source"]
        if found is not None:
            found = Source(found["index"], found["operator"], found["subgraph"], tuple(found["callers"] or ()))
        return Operation(code(item), tuple(item["inputs"]), tuple(item["outputs"]), item["name"], item["mapping"], found)

    return Subgraph(
        tuple(operand(o) for o in values["operands"]),
        tuple(operation(o) for o in values["operations"]),
        tuple(values["inputs"]),
        tuple(values["outputs"]),
        values["relaxed"],
    )


def _check_extensions(model: Model, numbers: Mapping[str, set[int]], source: str) -> None:
    """Operand types of extensions, whose sizes are known from a device that has them, and the options of host operations."""
    for name, listed in numbers.items():
        extension = TYPES.extension(name)
        for number in sorted(listed):
            if extension is None or extension.operand_type(number) is None:
                rule = "a driver among the devices (--device) whose extension has each operand type"
                raise ConversionError(Reason(rule, f"none with {name}#{number}", file=source))
    hosts = {prefix for name, prefix in model.extensions.items() if isinstance(TYPES.extension(name), HostExtension)}
    for operand in (o for subgraph in model.subgraphs() for o in subgraph.operands if is_extension(o.type)):
        prefix, number = split_extension_code(operand.type)
        if prefix in hosts and number == OPTIONS_TYPE.number and operand.is_constant:
            try:
                options = json.loads(bytes(model.bytes_of(operand)))
            except (ValueError, RecursionError) as error:
                raise ConversionError(Reason("options as JSON", first_line(error), operand=operand.name, file=source)) from error
            if not isinstance(options, dict):
                raise ConversionError(
                    Reason("options as a JSON object", type(options).__name__, operand=operand.name, file=source)
                )


def _check_states(model: Model) -> None:
    """States are pairs of an input and an output of one type and known size, each in one pair only."""
    main = model.main
    for indexes, count in (
        ([s.input for s in model.states], len(main.inputs)),
        ([s.output for s in model.states], len(main.outputs)),
    ):
        if len(set(indexes)) != len(indexes) or any(index >= count for index in indexes):
            raise IndexError(f"states at {indexes} of {count}")
    for state in model.states:
        before, after = main.operands[main.inputs[state.input]], main.operands[main.outputs[state.output]]
        if (before.type, before.dims) != (after.type, after.dims) or 0 in before.dims:
            raise ValueError(f"a state of {before} that is followed by {after}")
        if len(state.initial) not in (0, value_size(before)):
            raise ValueError(f"{len(state.initial)} bytes as first value of {before}")


def _check_indexes(model: Model) -> None:
    """Every index of operands and subgraphs, which validation relies on."""
    for subgraph in model.subgraphs():
        count = len(subgraph.operands)
        used = [*subgraph.inputs, *subgraph.outputs]
        for operation in subgraph.operations:
            used += [*operation.inputs, *operation.outputs]
        for i in used:
            if i >= count:
                raise IndexError(f"operand {i} of {count}")
        for o in subgraph.operands:
            if o.lifetime is Lifetime.SUBGRAPH and o.location.offset >= len(model.referenced):
                raise IndexError(f"subgraph {o.location.offset} of {len(model.referenced)}")
            quant = o.channel_quant
            if quant is not None and (quant.channel_dim >= len(o.dims) or len(quant.scales) != o.dims[quant.channel_dim]):
                raise ValueError(f"{len(quant.scales)} scales along dimension {quant.channel_dim} of {list(o.dims)}")
            if quant is not None and not (min(quant.scales, default=1) > 0 and not math.isnan(sum(quant.scales))):
                raise ValueError(f"{o.name or 'an operand'} with scales of channels that are not above 0")
