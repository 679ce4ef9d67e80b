"""Files that TFLite may not load, drawn at random, and stock LiteRT's verdict on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from nnbridge.converters import ConversionOptions
from nnbridge.errors import NnbridgeError
from nnbridge.model import Pool
from nnbridge_tflite.convert import convert
from nnbridge_tflite.passes.loading import not_loaded
from nnbridge_tflite.read.reader import read_pool
from nnbridge_tflite.tables import Table, decoded
from nnbridge_tflite.write import encode
from tests.tflite.cases import cases
from tests.tflite.differential import DRAWS
from tests.tflite.drawing_varied import varied
from tests.tflite.mutations import Source
from tests.tflite.verdicts import content_of, drawn

Rng = np.random.Generator
TYPES = (0, 1, 2, 3, 4, 6, 7, 9, 10)
"""FLOAT32, FLOAT16, INT32, UINT8, INT64, BOOL, INT16, INT8, FLOAT64."""
DTYPES = {0: "<f4", 1: "<f2", 2: "<i4", 3: "u1", 4: "<i8", 6: "?", 7: "<i2", 9: "i1", 10: "<f8"}


def litert_refusal(model: bytes) -> list[str]:
    """The reason why LiteRT does not load a file, empty if it does; run in a separate process, which some files end."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    try:
        kernels = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        Interpreter(model_content=model, experimental_op_resolver_type=kernels).allocate_tensors()
    except (RuntimeError, ValueError) as error:
        return [str(error) or "refused"]
    return [""]


def refusal(model: bytes) -> tuple[str, bool]:
    """The reason why nnbridge refuses a file, empty if it does not; whether it says that TFLite does not load the file."""
    try:
        file = read_pool(Path("drawn.tflite"), Pool.of(memoryview(model)))
        reason = not_loaded(file)
        if reason is None:
            convert(file, ConversionOptions(mapping="delegate"))
    except NnbridgeError as error:
        return str(error), False
    return str(reason or ""), reason is not None


def loading_outcome(litert: str, nnbridge: str, *, loaded: bool) -> str:
    """Both sides' refusals in a word; ``loaded``: nnbridge's is one of TFLite, else one of its own."""
    if bool(litert) == bool(nnbridge):
        return "both refuse" if litert else "both load"
    if litert:
        return "only LiteRT refuses"
    return "only nnbridge refuses" if loaded else "nnbridge does not convert it"


def candidate(seed: int, number: int) -> bytes | None:
    """A drawn file: as operators are drawn, with one thing changed, or as a fuzzer damages it; None if nothing can be drawn."""
    rng = np.random.default_rng([seed, number, 7])
    return _WAYS[number % len(_WAYS)](rng, seed, number // len(_WAYS))


def undamaged(seed: int, number: int) -> bytes | None:
    """A drawn file that is no damaged one: each operator in turn, as it is drawn or with varied dimensions and values."""
    rng = np.random.default_rng([seed, number, 7])
    return (_plain, _varied)[number % 2](rng, seed, number // 2)


def _plain(rng: Rng, seed: int, number: int) -> bytes | None:
    return drawn("operator", seed, number, 1 + number // len(DRAWS) % 3)


def _varied(rng: Rng, seed: int, number: int) -> bytes | None:
    name = sorted(DRAWS)[number % len(DRAWS)]
    try:
        case = varied(rng, DRAWS[name](rng, name))
        case.version = int(rng.integers(1, 5))
    except (RuntimeError, ValueError, IndexError):
        return None
    return content_of(rng, [case])


def _altered(rng: Rng, seed: int, number: int) -> bytes | None:
    model = _plain(rng, seed, number)
    if model is None:
        return None
    tables = decoded(read_pool(Path("drawn"), Pool.of(memoryview(model))))
    for _ in range(int(rng.integers(1, 3))):
        _CHANGES[int(rng.integers(len(_CHANGES)))](tables, rng)
    return encode(tables)


def _damaged(rng: Rng, seed: int, number: int) -> bytes | None:
    sources = _sources()
    ways = sources[number % len(sources)].ways
    return ways[int(rng.integers(len(ways)))](rng)


_WAYS: Sequence[Callable[[Rng, int, int], bytes | None]] = (_plain, _altered, _varied, _altered, _damaged)


@cache
def _sources() -> list[Source]:
    """Single operators for the fuzzers, opened once in each process."""
    folder = TemporaryDirectory()
    found = []
    for i, case in enumerate(case for case in cases() if case.types):
        place = Path(folder.name) / str(i)
        place.mkdir()
        found.append(Source(case.write(place, case.types[0])))
        _ = found[-1].content, found[-1]._tree, found[-1].places
    return found


# -- one thing is changed ------------------------------------------------------------------------------------------------------


def _pick(rng: Rng, listed: Sequence[Any]) -> Any:
    return listed[int(rng.integers(len(listed)))]


def _tensors(model: Table) -> list[Table]:
    graph = model["subgraphs"][0]
    last = graph["operators"][-1]
    return [graph["tensors"][i] for i in (*last["inputs"], *last["outputs"]) if i >= 0]


def _scaled(model: Table, rng: Rng) -> None:
    """Another scale, another zero point, scales along a dimension, or none at all."""
    stated = [one for one in _tensors(model) if len((one.get("quantization") or {}).get("scale", ()))]
    if not stated:
        return
    tensor = _pick(rng, stated)
    parameters = tensor["quantization"]
    way = int(rng.integers(5))
    if way == 0:
        parameters["scale"] = np.asarray(parameters["scale"]) * np.float32(2)
    elif way == 1:
        parameters["zero_point"] = np.asarray(parameters["zero_point"]) + 3
    elif way == 2:
        tensor["quantization"] = None
    elif way == 3:
        parameters["scale"] = np.asarray(parameters["scale"]) * np.float32(0)
    elif len(tensor.get("shape", ())):
        axis = int(rng.integers(len(tensor["shape"])))
        size = int(tensor["shape"][axis])
        parameters |= {"scale": np.full(size, 0.1, np.float32), "zero_point": np.zeros(size, np.int64)}
        parameters["quantized_dimension"] = axis


def _typed(model: Table, rng: Rng) -> None:
    """A tensor, or all of its type, has another one."""
    tensors = _tensors(model)
    chosen = _pick(rng, tensors)
    before, after = chosen.get("type", 0), int(_pick(rng, TYPES))
    changed = [one for one in tensors if one.get("type", 0) == before] if rng.random() < 0.5 else [chosen]
    for one in changed:
        if before in DTYPES and one.get("type", 0) == before:
            _convert(model, one, DTYPES[before], DTYPES[after])
            one["type"] = after


def _convert(model: Table, tensor: Table, before: str, after: str) -> None:
    data = model["buffers"][tensor.get("buffer", 0)].get("data")
    if data is not None and len(data):
        with np.errstate(all="ignore"):
            array = np.asarray(data).view(np.uint8).tobytes()
            converted = np.frombuffer(array, before).astype(after)
        model["buffers"].append({"data": np.frombuffer(converted.tobytes(), np.uint8)})
        tensor["buffer"] = len(model["buffers"]) - 1


def _shaped(model: Table, rng: Rng) -> None:
    """A computed tensor has a dimension more, one less, or one of another size."""
    graph = model["subgraphs"][0]
    # TFLite infers the dimensions of what an earlier operator writes.
    early = {int(i) for operator in graph["operators"][:-1] for i in operator["outputs"]}
    free = [one for one in _tensors(model) if not one.get("buffer", 0) and all(one is not graph["tensors"][i] for i in early)]
    if not free:
        return
    tensor = _pick(rng, free)
    shape = [int(d) for d in tensor.get("shape", ())]
    way, at = int(rng.integers(3)), int(rng.integers(len(shape) + 1))
    if way == 0:
        shape.insert(at, int(rng.integers(1, 3)))
    elif shape and way == 1:
        del shape[at % len(shape)]
    elif shape:
        shape[at % len(shape)] = int(rng.integers(1, 6))
    tensor["shape"] = np.asarray(shape, np.int32)
    tensor["shape_signature"] = None


def _versioned(model: Table, rng: Rng) -> None:
    last = model["subgraphs"][0]["operators"][-1]
    model["operator_codes"][last.get("opcode_index", 0)]["version"] = int(rng.integers(1, 10))


def _omitted(model: Table, rng: Rng) -> None:
    """An operand is left out, or one too many."""
    last = model["subgraphs"][0]["operators"][-1]
    operands = [int(i) for i in last["inputs"]]
    way = int(rng.integers(3))
    if way == 0 and operands:
        operands[int(rng.integers(len(operands)))] = -1
    elif way == 1 and len(operands) > 1:
        operands.pop()
    elif operands:
        operands.append(operands[-1])
    last["inputs"] = np.asarray(operands, np.int32)


def _optioned(model: Table, rng: Rng) -> None:
    """An option has another value, or all are left out."""
    last = model["subgraphs"][0]["operators"][-1]
    options = last.get("builtin_options")
    whole = [name for name, value in (options or {}).items() if isinstance(value, (int, np.integer, bool))]
    if not whole:
        return
    if rng.random() < 0.1:
        last["builtin_options"] = {}
        return
    name = _pick(rng, whole)
    old = options[name]
    options[name] = (not old) if isinstance(old, (bool, np.bool_)) else int(_pick(rng, (0, 1, 2, 3, 5)))


def _stored(model: Table, rng: Rng) -> None:
    """The numbers of a small constant are others."""
    held = [one for one in _tensors(model) if one.get("buffer", 0) and one.get("type", 0) in (2, 4)]
    if not held:
        return
    tensor = _pick(rng, held)
    data = model["buffers"][tensor["buffer"]].get("data")
    if data is None or not len(data):
        return
    array = np.frombuffer(np.asarray(data).tobytes(), DTYPES[tensor["type"]]).copy()
    array[int(rng.integers(array.size))] += int(_pick(rng, (-3, -1, 1, 2)))
    model["buffers"].append({"data": np.frombuffer(array.tobytes(), np.uint8)})
    tensor["buffer"] = len(model["buffers"]) - 1


_CHANGES = (_scaled, _scaled, _typed, _typed, _shaped, _shaped, _versioned, _omitted, _optioned, _optioned, _stored)
