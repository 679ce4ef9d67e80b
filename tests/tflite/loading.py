"""Files that TFLite may not load, drawn at random, and stock LiteRT's verdict on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from tests.tflite.case import Case
from tests.tflite.cases import cases
from tests.tflite.differential import DRAWS
from tests.tflite.drawing_structures import structure
from tests.tflite.drawing_varied import varied
from tests.tflite.files import TfliteBuilder
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
    return None if model is None else changed(model, rng)


def changed(model: bytes, rng: Rng) -> bytes:
    """A file with one or two changes, mostly to its main graph's last operator."""
    tables = decoded(read_pool(Path("drawn"), Pool.of(memoryview(model))))
    for _ in range(int(rng.integers(1, 3))):
        graph = tables["subgraphs"][0] if rng.random() < 0.7 else _pick(rng, tables["subgraphs"])
        if graph["operators"]:
            at = len(graph["operators"]) - 1 if rng.random() < 0.7 else int(rng.integers(len(graph["operators"])))
            _pick(rng, _CHANGES)(Place(tables, graph, at), rng)
    return encode(tables)


def _cased(rng: Rng, seed: int, number: int) -> bytes | None:
    """A file of one operator as tests/tflite/cases.py has it, for any of its types, and changed."""
    case, type = _cases()[number % len(_cases())]
    builder = TfliteBuilder()
    given, outputs = case.add(builder, type)
    return changed(builder.content(given, outputs), rng)


def _structured(rng: Rng, seed: int, number: int) -> bytes | None:
    """Graphs that run graphs, variables and tables, mostly changed."""
    model = structure(rng, number)
    return changed(model, rng) if rng.random() < 0.8 else model


def _damaged(rng: Rng, seed: int, number: int) -> bytes | None:
    sources = _sources()
    ways = sources[number % len(sources)].ways
    return ways[int(rng.integers(len(ways)))](rng)


_WAYS: Sequence[Callable[[Rng, int, int], bytes | None]] = (
    *(_plain, _altered, _varied, _altered, _damaged),
    *(_cased, _altered, _structured, _altered, _cased),
)


@cache
def _cases() -> list[tuple[Case, str]]:
    return [(case, type) for case in cases() for type in case.types]


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


@dataclass(frozen=True)
class Place:
    """The operator of a file that is changed."""

    model: Table
    graph: Table
    at: int

    @property
    def operator(self) -> Table:
        return self.graph["operators"][self.at]

    @property
    def tensors(self) -> list[Table]:
        """Its operands."""
        return [self.graph["tensors"][i] for i in (*self.operator["inputs"], *self.operator["outputs"]) if i >= 0]

    def data(self, tensor: Table) -> bytes:
        """The stored bytes of a constant; empty for other tensors."""
        data = self.model["buffers"][tensor.get("buffer", 0)].get("data")
        return b"" if data is None else np.asarray(data).view(np.uint8).tobytes()

    def store(self, tensor: Table, data: bytes) -> None:
        """Have a tensor be a constant of these bytes."""
        self.model["buffers"].append({"data": np.frombuffer(data, np.uint8)})
        tensor["buffer"] = len(self.model["buffers"]) - 1


def _scaled(place: Place, rng: Rng) -> None:
    """Another scale, another zero point, scales along a dimension, or none at all."""
    stated = [one for one in place.tensors if len((one.get("quantization") or {}).get("scale", ()))]
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


def _typed(place: Place, rng: Rng) -> None:
    """A tensor, or all of its type, has another one."""
    tensors = place.tensors
    if not tensors:
        return
    chosen = _pick(rng, tensors)
    before, after = chosen.get("type", 0), int(_pick(rng, TYPES))
    changed = [one for one in tensors if one.get("type", 0) == before] if rng.random() < 0.5 else [chosen]
    for one in changed:
        if before in DTYPES and one.get("type", 0) == before:
            _convert(place, one, DTYPES[before], DTYPES[after])
            one["type"] = after


def _convert(place: Place, tensor: Table, before: str, after: str) -> None:
    data = place.data(tensor)
    if data:
        with np.errstate(all="ignore"):
            place.store(tensor, np.frombuffer(data, before).astype(after).tobytes())


def _shaped(place: Place, rng: Rng) -> None:
    """A computed tensor has a dimension more, one less, or one of another size."""
    graph = place.graph
    # TFLite infers the dimensions of what an earlier operator writes.
    early = {int(i) for operator in graph["operators"][: place.at] for i in operator["outputs"]}
    free = [one for one in place.tensors if not one.get("buffer", 0) and all(one is not graph["tensors"][i] for i in early)]
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
        shape[at % len(shape)] = int(_pick(rng, (0, 1, 2, 3, 4, 5)))
    tensor["shape"] = np.asarray(shape, np.int32)
    tensor["shape_signature"] = None


def _versioned(place: Place, rng: Rng) -> None:
    place.model["operator_codes"][place.operator.get("opcode_index", 0)]["version"] = int(rng.integers(1, 10))


def _omitted(place: Place, rng: Rng) -> None:
    """An operand is left out, or one too many."""
    last = place.operator
    operands = [int(i) for i in last["inputs"]]
    way = int(rng.integers(3))
    if way == 0 and operands:
        operands[int(rng.integers(len(operands)))] = -1
    elif way == 1 and len(operands) > 1:
        operands.pop()
    elif operands:
        operands.append(operands[-1])
    last["inputs"] = np.asarray(operands, np.int32)


def _optioned(place: Place, rng: Rng) -> None:
    """An option has another value, or all are left out."""
    last = place.operator
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


def _constants(place: Place) -> list[Table]:
    return [one for one in place.tensors if one.get("buffer", 0)]


def _stored(place: Place, rng: Rng) -> None:
    """The numbers of a small constant are others."""
    held = [one for one in _constants(place) if one.get("type", 0) in (2, 4) and place.data(one)]
    if held:
        tensor = _pick(rng, held)
        array = np.frombuffer(place.data(tensor), DTYPES[tensor["type"]]).copy()
        array[int(rng.integers(array.size))] += int(_pick(rng, (-3, -1, 1, 2)))
        place.store(tensor, array.tobytes())


def _emptied(place: Place, rng: Rng) -> None:
    """A constant has no elements."""
    held = _constants(place)
    if held:
        tensor = _pick(rng, held)
        shape = [int(d) for d in tensor.get("shape", ())]
        at = int(rng.integers(len(shape) + 1))
        tensor["shape"] = np.asarray([0] if at == len(shape) else [*shape[:at], 0, *shape[at + 1 :]], np.int32)
        place.store(tensor, b"")


def _reshaped(place: Place, rng: Rng) -> None:
    """A constant has a dimension more of size 1 or one less, or twice its elements, or one of them."""
    held = [one for one in _constants(place) if one.get("type", 0) in DTYPES and place.data(one)]
    if held:
        tensor = _pick(rng, held)
        shape, array = [int(d) for d in tensor.get("shape", ())], np.frombuffer(place.data(tensor), DTYPES[tensor.get("type", 0)])
        way = int(rng.integers(4))
        if way == 0:
            shape.insert(int(rng.integers(len(shape) + 1)), 1)
        elif way == 1 and 1 in shape:
            shape.remove(1)
        elif way == 2 and shape:
            shape[0], array = 2 * shape[0], np.concatenate([array, array])
        elif way == 3:
            shape, array = [1] * int(rng.integers(3)), array[:1]
        tensor["shape"] = np.asarray(shape, np.int32)
        place.store(tensor, array.tobytes())


def _given(place: Place, rng: Rng) -> None:
    """A constant is an input of the graph."""
    held = _constants(place)
    if held:
        tensor = _pick(rng, held)
        tensor["buffer"] = 0
        graph = place.graph
        at = next(i for i, one in enumerate(graph["tensors"]) if one is tensor)
        graph["inputs"] = np.asarray([*(int(i) for i in graph["inputs"]), at], np.int32)


_CHANGES = (
    *(_scaled, _scaled, _typed, _typed, _shaped, _shaped, _versioned, _omitted, _omitted, _optioned, _optioned),
    *(_stored, _emptied, _reshaped, _given),
)
