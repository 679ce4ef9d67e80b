"""Small files that ask for much: each reader's own constructions, and the work and memory that reading them takes.

``python -m tests.hostile_growth READER`` reads every file of one reader in a process of limited memory, after an intact one, and
prints a line of JSON for each.
"""

from __future__ import annotations

import gzip
import io
import json
import struct
import sys
import tempfile
import wave
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

import flatbuffers
import numpy as np

import nnbridge
from nnbridge.compare.arrays import load_arrays
from nnbridge.conformance.cases import build, read_cases
from nnbridge.conformance.questions import read_questions
from nnbridge.converters import ConversionOptions
from nnbridge.devices.profile_levels import load_any
from nnbridge.devices.profiles import ProfileDevice
from nnbridge.errors import NnbridgeError
from nnbridge.file import ModelFile, load
from nnbridge.inputs.dataset import read_labels
from nnbridge.inputs.preparation import InputTarget, Preparation, prepare
from nnbridge.matrix.budget import read_budgets
from nnbridge.model import Operand
from nnbridge.report.terminal import Table, _plain
from nnbridge.runtime.compilation import Compilation
from nnbridge.types import Lifetime, OperandCode, OperationCode
from tests.graphs import add_then
from tests.hostile import limit_process, limit_time, verdict_of
from tests.tflite.files import TfliteBuilder

Content: TypeAlias = "str | bytes"


@dataclass(frozen=True)
class Reader:
    """A reader of files, an intact file for it, and hostile ones by name."""

    read: Callable[[Path], object]
    suffix: str
    intact: Callable[[], Content]
    hostile: Mapping[str, Callable[[], Content]]

    def write(self, folder: Path, name: str, content: Content) -> Path:
        """A file of the folder."""
        path = folder / f"{name.replace(' ', '_')}{self.suffix}"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def verdicts(self, folder: Path) -> Iterator[dict[str, object]]:
        """The results for each file: outcome, message, processor time and memory."""
        self.read(self.write(folder, "intact", self.intact()))
        for name, content in self.hostile.items():
            path = self.write(folder, name, content())
            limit_time()
            yield {"name": name, "size": path.stat().st_size, **asdict(verdict_of(lambda path=path: self.read(path)))}


# -- profiles ----------------------------------------------------------------------------------------------------------

_DEVICE = '[[device]]\nname = "h"\nfeature_level = 4\n'
_ADD = "[device.operations.ADD]\n"


def _rules(*rules: str) -> str:
    return f"{_ADD}rules = {json.dumps(rules)}\n"


def _terms(count: int, each: Callable[[int], str], last: str) -> str:
    terms = "".join(f't{i} = "{each(i)}"\n' for i in range(count))
    return f'{_DEVICE}[device.terms]\n{terms}t{count} = "{last}"\n{_rules("t0 >= 0")}'


def _named(count: int, each: Callable[[int], object], last: str = "input1.rank <= 4", rule: str = "c0") -> str:
    lines = "".join(f"c{i} = {_toml(each(i))}\n" for i in range(count))
    return f"{_DEVICE}[device.conditions]\n{lines}c{count} = {json.dumps(last)}\n{_rules(rule)}"


def _toml(value: object) -> str:
    """A value as TOML writes it: as JSON does, but for tables."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + "}"
    return "[" + ", ".join(map(_toml, value)) + "]" if isinstance(value, list) else json.dumps(value)


_RANGE = "range(1024)"
_SQUARE = f"all(all(i * j >= 0 for i in {_RANGE}) for j in {_RANGE})"
_OPERATIONS = [code.name for code in OperationCode if code.name != "OEM_OPERATION"]

PROFILES: Mapping[str, Callable[[], Content]] = {
    "terms of eight terms each": lambda: _terms(8, lambda i: " + ".join([f"t{i + 1}"] * 8), "input1.rank"),
    "terms of eight terms each with a mistake": lambda: _terms(8, lambda i: " + ".join([f"t{i + 1}"] * 8), "inputs1.rank"),
    "lists of lists compared": lambda: (
        f"{_DEVICE}[device.terms]\n"
        + "".join(f'{n}{i} = "[{", ".join([f"{n}{i + 1}"] * 8)}]"\n' for n in "tu" for i in range(9))
        + f't9 = "input1.dims"\nu9 = "input1.dims"\n{_rules("t0 == u0", "len(unique([t0, u0])) == 1")}'
    ),
    "products of products": lambda: _terms(
        8, lambda i: f"product([{', '.join([f't{i + 1}'] * 200)}])", f"product(list(i + {'9' * 300} for i in {_RANGE}))"
    ),
    "hundreds of long lists": lambda: (
        f"{_DEVICE}[device.terms]\n"
        + "".join(f't{i} = "list(list(i * j * {i} for i in {_RANGE}) for j in {_RANGE})"\n' for i in range(300))
        + _rules(" and ".join(f"len(t{i}) > 0" for i in range(100)))
    ),
    "loops in a loop": lambda: _DEVICE + _rules(_SQUARE),
    "thirty loops in loops": lambda: _DEVICE + _rules(" and ".join([_SQUARE] * 30)),
    "sums in loops in loops": lambda: _DEVICE + _rules(_SQUARE.replace("i * j", f"i + sum({_RANGE}) + input1.rank")),
    "loops without a name": lambda: _DEVICE + _rules(*[_SQUARE.replace("i * j", str(k)) for k in range(90)]),
    "conditions of eight conditions each": lambda: _named(12, lambda i: [f"c{i + 1}"] * 8),
    "conditions that narrow each other": lambda: _named(12, lambda i: [{"require": f"c{i + 1}", "when": "input1.rank > 1"}] * 4),
    "a chain of conditions": lambda: _named(3_000, lambda i: f"c{i + 1}"),
    "common rules for each operation": lambda: (
        f"{_DEVICE}rules = {json.dumps([f'first_input.rank < {i}' for i in range(5, 2_000)])}\n"
        + "".join(f"[device.operations.{name}]\n" for name in _OPERATIONS)
    ),
    "devices like a device": lambda: (
        (_DEVICE + "".join(f"[device.operations.{name}]\n" for name in _OPERATIONS)).replace(
            "feature_level = 4", "feature_level = 8"
        )
        + "".join(f'[[device]]\nname = "d{i}"\nlike = "h"\n' for i in range(3_000))
    ),
    "names of thousands of terms": lambda: (
        f"{_DEVICE}[device.terms]\n"
        + "".join(f'term_{i} = "1"\n' for i in range(3_000))
        + _rules(*[f"term_x{i}" for i in range(900)])
    ),
    "empty lines": lambda: "\n" * 120_000 + _DEVICE + _rules("input1.rank < 5"),
    "keys that no table has": lambda: _DEVICE + "".join(f"operation_{i} = 1\n" for i in range(6_000)),
    "keys between dots": lambda: _DEVICE + "a" + ".a" * 50_000 + " = 1\n",
    "tables between dots": lambda: (
        _DEVICE + f"[{'.'.join('a' * 150)}]\n" + "".join(f"{'b.' * 150}c{i} = 1\n" for i in range(300))
    ),
    "numbers of thousands of digits": lambda: f"{_DEVICE}[device.hardware]\nx = 0.{'1' * 100_000}\n{_rules('x > 1')}",
}


def _asked(path: Path) -> object:
    model = add_then(OperationCode.RELU)
    return [device.supported_operations(model) for device in load_any(path)[:1] if isinstance(device, ProfileDevice)]


_SOURCE = '[[device]]\nname = "h"\nlevel = "tflite"\n'


def _source(conditions: Mapping[str, str], *rules: str) -> str:
    lines = "".join(f"{name} = {json.dumps(text)}\n" for name, text in conditions.items())
    return f"{_SOURCE}[device.conditions]\n{lines}[device.operations]\nCONV_2D = {json.dumps(rules)}\n"


SOURCE_PROFILES: Mapping[str, Callable[[], Content]] = {
    "conditions of eight conditions each": lambda: _source(
        {**{f"c{i}": " and ".join([f"c{i + 1}"] * 8) for i in range(9)}, "c9": "len(inputs) > 0"}, "c0 or c1"
    ),
    "thirty loops in loops": lambda: _source({}, " and ".join([_SQUARE] * 30)),
    "loops in conditions": lambda: _source({f"c{i}": _SQUARE for i in range(300)}, " and ".join(f"c{i}" for i in range(300))),
    "products of products": lambda: _source(
        {**{f"c{i}": f"product([{', '.join([f'c{i + 1}'] * 200)}])" for i in range(8)}, "c8": "9" * 400 + " * 1"}, "c0 > 1"
    ),
    "common rules for each operator": lambda: (
        f"{_SOURCE}rules = {json.dumps([f'len(inputs) < {i}' for i in range(5, 2_000)])}\n[device.operations]\n"
        + "".join(f"{name} = []\n" for name in ("ADD", "MUL", "SUB", "CONV_2D", "RELU", "LOGISTIC", "TANH", "SOFTMAX"))
    ),
    "devices like a device": lambda: (
        _source({}, *[f"len(inputs) < {i}" for i in range(5, 500)])
        + "".join(f'[[device]]\nname = "d{i}"\nlike = "h"\nrules = []\n' for i in range(2_000))
    ),
    "mistakes in each condition": lambda: _source({}, *[f"number_{i} > 1" for i in range(4_000)]),
}

DIGITS = Path(__file__).parents[1] / "models" / "digits_float32.tflite"


def _claimed(path: Path) -> object:
    graph = ModelFile(DIGITS).source_graph
    return [device.claims(graph) for device in load_any(path)[:1] if not isinstance(device, ProfileDevice)]


# -- tables of text ----------------------------------------------------------------------------------------------------


def _shown(path: Path) -> object:
    """The lines of a table with each text in a row of its own, as ``inspect`` prints names."""
    texts = path.read_text().split("|")
    return sum(len(line) for line in _plain(Table("", ("name", "type"), [(text, "float32") for text in texts])))


CELLS: Mapping[str, Callable[[], Content]] = {
    "digits and a letter": lambda: "9" * 900_000 + "x",
    "exponents": lambda: "1e-5" * 200_000 + "x",
    "an exponent of digits": lambda: "1e-" + "5" * 900_000 + "x",
    "spaces": lambda: " " * 900_000 + "x",
    "signs and words": lambda: "-" * 900_000 + "in",
    "one long name of many": lambda: "|".join(["n" * 500_000] + ["t"] * 200_000),
    "separators": lambda: ":/" * 400_000 + "x",
}


# -- TFLite files ------------------------------------------------------------------------------------------------------


def _label_metadata(names: list[str], repeat: int = 1, description: str = "") -> bytes:
    """Metadata whose output lists these files as labels; the output's table is there ``repeat`` times."""
    b = flatbuffers.Builder(1 << 16)

    def vector(items: list[int]) -> int:
        b.StartVector(4, len(items), 4)
        for item in reversed(items):
            b.PrependUOffsetTRelative(item)
        return int(b.EndVector())

    def table(slots: int, **fields: int) -> int:
        b.StartObject(slots)
        for slot, offset in fields.items():
            b.PrependUOffsetTRelativeSlot(int(slot[1:]), offset, 0)
        return int(b.EndObject())

    files = []
    for name in names:
        text = b.CreateString(name)
        b.StartObject(5)
        b.PrependUOffsetTRelativeSlot(0, text, 0)
        b.PrependInt8Slot(2, 2, 0)
        files.append(b.EndObject())
    text, listed = b.CreateString(description), vector(files)
    tensors = vector([table(7, s1=text, s6=listed)] * repeat)
    graphs = vector([table(5, s3=tensors)])
    b.Finish(table(8, s3=graphs), b"M001")
    return bytes(b.Output())


def _labelled(files: Mapping[str, bytes], metadata: bytes, method: int = zipfile.ZIP_DEFLATED, fillers: int = 0) -> bytes:
    made = TfliteBuilder()
    x, y = made.tensor([1, 4]), made.tensor([1, 4])
    made.operator("RELU", [x], [y])
    buffers = [*made.buffers, {"data": np.frombuffer(metadata, np.uint8)}]
    content = io.BytesIO(
        made.content([x], [y], metadata=[{"name": "TFLITE_METADATA", "buffer": len(made.buffers)}], buffers=buffers)
    )
    content.seek(0, io.SEEK_END)
    with zipfile.ZipFile(content, "a", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        for i in range(fillers):
            archive.writestr(zipfile.ZipInfo(f"f{i}"), b"")
    return content.getvalue()


_LINES = b"ab\n" * 349_525
_NAMES = [f"l{i}" for i in range(300)]

LABELS: Mapping[str, Callable[[], Content]] = {
    "many files of labels": lambda: _labelled(dict.fromkeys(_NAMES, _LINES), _label_metadata(_NAMES)),
    "one file mentioned often": lambda: _labelled({"l": b"a\nb\n"}, _label_metadata(["l"], 20_000), fillers=5_000),
    "one table of many files": lambda: _labelled(dict.fromkeys(_NAMES, b"a\n"), _label_metadata(_NAMES, 300)),
    "a file of empty lines": lambda: _labelled({"l": b"\n" * (64 << 20)}, _label_metadata(["l"])),
    "a long description mentioned often": lambda: _labelled({}, _label_metadata(["l"], 5_000, "d" * 500_000)),
    "a file packed by LZMA": lambda: _labelled({"l": b"\0" * (256 << 20)}, _label_metadata(["l"]), zipfile.ZIP_LZMA),
    "a file packed by bzip2": lambda: _labelled({"l": b"\0" * (256 << 20)}, _label_metadata(["l"]), zipfile.ZIP_BZIP2),
}


def _chain(count: int, kinds: tuple[str, ...] = ("RELU",), long: str = "") -> bytes:
    """Operators one after the other; ``long``: the name of the tensor that all of them read besides."""
    made = TfliteBuilder()
    tensors = [made.tensor([1, 4]) for _ in range(count + 1)]
    more = [made.tensor([1, 4], name=long)] if long else []
    for i in range(count):
        made.operator(kinds[i % len(kinds)], [tensors[i], *more], [tensors[i + 1]])
    codes = {kind: made.codes[k] for k, kind in enumerate(kinds)}
    made.codes[:] = codes.values()
    for i, operator in enumerate(made.operators):
        operator["opcode_index"] = i % len(kinds)
    return made.content([tensors[0], *more], [tensors[-1]])


def _fan(count: int, kinds: tuple[str, ...]) -> bytes:
    made = TfliteBuilder()
    x = made.tensor([1, 4])
    outputs = [made.tensor([1, 4]) for _ in range(count)]
    for i, y in enumerate(outputs):
        made.operator(kinds[i % len(kinds)], [x], [y])
    made.codes[:] = made.codes[: len(kinds)]
    for i, operator in enumerate(made.operators):
        operator["opcode_index"] = i % len(kinds)
    return made.content([x], outputs)


def _ladder(count: int) -> bytes:
    """Sums of the two sums before."""
    made = TfliteBuilder()
    tensors = [made.tensor([1, 4]), made.tensor([1, 4])]
    for _ in range(count):
        tensors.append(made.tensor([1, 4]))
        made.operator("ADD", tensors[-3:-1], tensors[-1:], {"fused_activation_function": 0})
    made.codes[:] = made.codes[:1]
    for operator in made.operators:
        operator["opcode_index"] = 0
    return made.content(tensors[:2], tensors[-1:])


OPERATORS: Mapping[str, Callable[[], Content]] = {
    "a chain": lambda: _chain(6_000),
    "a chain on device and host": lambda: _chain(4_000, ("RELU", "COS")),
    "a fan": lambda: _fan(6_000, ("RELU",)),
    "a fan on device and host": lambda: _fan(3_000, ("RELU", "COS")),
    "a ladder": lambda: _ladder(6_000),
    "a long custom operator": lambda: _chain(2_000, ("N" * 500_000,)),
    "a long name that all operators read": lambda: _chain(2_000, ("ADD",), "n" * 500_000),
}


def _called(count: int, each: int) -> bytes:
    """Operators that each choose between two calls of one subgraph of ``each`` operators."""
    made = TfliteBuilder()
    inner = made.beside()
    tensors = [inner.tensor([1, 4]) for _ in range(each + 1)]
    for i in range(each):
        inner.operator("GELU", [tensors[i]], [tensors[i + 1]])
    number = made.add(inner, [tensors[0]], [tensors[-1]])
    condition = made.tensor([1], "bool")
    values = [made.tensor([1, 4]) for _ in range(count + 1)]
    for i in range(count):
        options = {"then_subgraph_index": number, "else_subgraph_index": number}
        made.operator("IF", [condition, values[i]], [values[i + 1]], options)
    return made.content([condition, values[0]], [values[-1]])


def _inspected(path: Path) -> object:
    """The description of a file's content."""
    return ModelFile(path, ConversionOptions()).inspection


def _planned(path: Path) -> object:
    """A file inspected and planned."""
    _ = ModelFile(path, ConversionOptions()).inspection
    compilation = Compilation.create(load(path, ConversionOptions()), [])
    compilation.finish()
    return compilation


def _on_phone(path: Path) -> object:
    """A file planned for a device in both ways: what is handed over as on a phone, and all that NNAPI expresses."""
    refused: list[NnbridgeError] = []
    for mapping in ("phone", "wide"):
        try:
            nnbridge.plan(path, device="arm-nn-21.11", mapping=mapping)
        except NnbridgeError as error:
            refused.append(error)
    if refused:
        raise refused[0]
    return None


WRITTEN_OUT: Mapping[str, Callable[[], Content]] = {
    "operators of one operation": lambda: _chain(12_000),
    "operators on the host": lambda: _chain(5_000, ("GELU",)),
    "fewer operators on the host": lambda: _chain(1_500, ("GELU",)),
    "operators of several operations": lambda: _chain(6_000, ("HARD_SWISH", "ELU", "LOG_SOFTMAX")),
    "operators that read one long name": lambda: _chain(4_000, ("GELU",), "n" * 300_000),
    "subgraphs of operators": lambda: _called(60, 80),
}


# -- ONNX files --------------------------------------------------------------------------------------------------------


def _onnx(
    nodes: list[object],
    outputs: tuple[str, ...] = ("y",),
    constants: Mapping[str, object] | None = None,
    functions: tuple[object, ...] = (),
    opset: int = 17,
) -> bytes:
    from onnx import TensorProto, helper, numpy_helper

    def value(name: str) -> object:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4])

    held = [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", [value("x")], [value(name) for name in outputs], initializer=held)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("f", 1)]
    content: bytes = helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=8).SerializeToString()
    return content


def _node(kind: str, inputs: list[str], outputs: list[str], **more: object) -> object:
    from onnx import helper

    return helper.make_node(kind, inputs, outputs, **more)


def _in_row(count: int, kind: str = "Relu", more: tuple[str, ...] = (), **attributes: object) -> list[object]:
    names = ["x", *(f"a{i}" for i in range(1, count)), "y"]
    return [_node(kind, [names[i], *more], [names[i + 1]], **attributes) for i in range(count)]


def _function(name: str, nodes: list[object]) -> object:
    from onnx import helper

    return helper.make_function("f", name, ["x"], ["y"], nodes, [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)])


def _calling(depth: int, width: int) -> bytes:
    """Functions that each call the next several times."""
    inner = [_function(f"f{i}", _in_row(width, f"f{i + 1}", domain="f")) for i in range(depth)]
    last = _function(f"f{depth}", _in_row(1))
    return _onnx([_node("f0", ["x"], ["y"], domain="f")], functions=(*inner, last))


def _constant_of(size: int) -> list[object]:
    from onnx import numpy_helper

    value = numpy_helper.from_array(np.ones(size // 4, np.float32))
    maximum = _node("ReduceMax", ["c"], ["s"], keepdims=0)
    return [_node("Constant", [], ["c"], value=value), maximum, _node("Add", ["x", "s"], ["y"])]


_DECOMPOSED = {
    "Erf": {}, "Mish": {}, "Gelu": {}, "HardSwish": {}, "Softplus": {}, "LayerNormalization": {}, "LpNormalization": {},
    "MeanVarianceNormalization": {"axes": [0, 1]},
}  # fmt: skip
"""Operators that become several operations, with their attributes."""


def _decomposed(kind: str, count: int) -> bytes:
    more = ("c",) if kind == "LayerNormalization" else ()
    return _onnx(_in_row(count, kind, more, **_DECOMPOSED[kind]), constants={"c": np.ones(4, np.float32)}, opset=20)


def _loop(count: int, nodes: list[object]) -> bytes:
    from onnx import TensorProto, helper

    def scalar(name: str, type: int) -> object:
        return helper.make_tensor_value_info(name, type, [])

    def value(name: str) -> object:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4])

    body = helper.make_graph(
        [*nodes, _node("Identity", ["go"], ["on"])],
        "body",
        [scalar("i", TensorProto.INT64), scalar("go", TensorProto.BOOL), value("v")],
        [scalar("on", TensorProto.BOOL), value("w")],
    )
    return _onnx([_node("Loop", ["count", "", "x"], ["y"], body=body)], constants={"count": np.int64(count)})


def _branches(depth: int, condition: str = "c", times: int = 1, leaf: str = "Relu") -> bytes:
    """Branches of branches, so many one after the other in each; ``condition`` is a constant ``c``, or computed."""
    from onnx import TensorProto, helper

    def value(name: str) -> object:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4])

    inner = helper.make_graph([_node(leaf, ["x"], ["z0"])], "leaf", [], [value("z0")])
    for k in range(1, depth):
        names = [f"z{k}_{i}" for i in range(times - 1)] + [f"z{k}"]
        choices = [_node("If", [condition], [name], then_branch=inner, else_branch=inner) for name in names]
        inner = helper.make_graph(choices, f"b{k}", [], [value(f"z{k}")])
    begins = [_node("ReduceSum", ["x"], ["sum"], keepdims=0), _node("Cast", ["sum"], ["computed"], to=TensorProto.BOOL)]
    last = _node("If", [condition], ["y"], then_branch=inner, else_branch=inner)
    return _onnx([*begins, last], constants={"c": np.array(True)})


def _choices_of(kind: str, count: int) -> bytes:
    """So many branches one after the other."""
    from onnx import TensorProto, helper

    def body(name: str) -> object:
        result = helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, 4])
        return helper.make_graph([_node(kind, [name], ["z"])], "b", [], [result])

    begins = [_node("ReduceSum", ["x"], ["sum"], keepdims=0), _node("Cast", ["sum"], ["c"], to=TensorProto.BOOL)]
    names = ["x", *(f"a{i}" for i in range(1, count)), "y"]
    choices = [_node("If", ["c"], [names[i + 1]], then_branch=body(names[i]), else_branch=body(names[i])) for i in range(count)]
    return _onnx([*begins, *choices])


def _choices(count: int) -> bytes:
    """Branches that all read a large constant, one after the other."""
    from onnx import TensorProto, helper

    value = helper.make_tensor_value_info("z", TensorProto.FLOAT, None)
    body = helper.make_graph([_node("Slice", ["large", "zero", "one"], ["s"]), _node("Relu", ["s"], ["z"])], "b", [], [value])
    begins = [_node("ReduceSum", ["x"], ["sum"], keepdims=0), _node("Cast", ["sum"], ["computed"], to=TensorProto.BOOL)]
    choices = [_node("If", ["computed"], [f"i{i}"], then_branch=body, else_branch=body) for i in range(count)]
    sums = [_node("Add", [f"a{i - 1}" if i else "x", f"i{i}"], [f"a{i}"]) for i in range(count)]
    ends = [_node("Relu", [f"a{count - 1}"], ["y"])]
    constants = {"large": np.ones((30_000, 4), np.float32), "zero": np.int64([0]), "one": np.int64([1])}
    return _onnx([*begins, *choices, *sums, *ends], constants=constants)


def _pairs(count: int, between: tuple[str, ...] = ()) -> bytes:
    """QuantizeLinear and DequantizeLinear one after the other, with operators between the pairs."""
    nodes, last = [], "x"
    for i in range(count):
        nodes += [_node("QuantizeLinear", [last, "s", "z"], [f"q{i}"]), _node("DequantizeLinear", [f"q{i}", "s", "z"], [f"d{i}"])]
        last = f"d{i}"
        for k, kind in enumerate(between):
            nodes.append(_node(kind, [last], [f"r{i}_{k}"]))
            last = f"r{i}_{k}"
    return _onnx([*nodes, _node("Identity", [last], ["y"])], constants={"s": np.float32(0.1), "z": np.uint8(3)})


_LONG = "n" * 400_000
ONNX: Mapping[str, Callable[[], Content]] = {
    "a chain": lambda: _onnx(_in_row(6_000)),
    "a chain backwards": lambda: _onnx(_in_row(4_000)[::-1]),
    "thousands of outputs": lambda: _onnx(
        [_node("Relu", ["x"], [f"y{i}"]) for i in range(5_000)], tuple(f"y{i}" for i in range(5_000))
    ),
    "one name for many outputs": lambda: _onnx([_node("Relu", ["x"], ["y"])] * 20_000),
    "constants that grow": lambda: _onnx(
        [_node("Concat", ["c" if i == 0 else f"c{i - 1}"] * 2, [f"c{i}"], axis=0) for i in range(30)]
        + [_node("ReduceSum", ["c29"], ["s"], keepdims=0), _node("Add", ["x", "s"], ["y"])],
        constants={"c": np.ones(4, np.float32)},
    ),
    "functions that call functions": lambda: _calling(40, 2),
    "functions that call functions to the limit": lambda: _calling(12, 2),
    "a function with a constant": lambda: _onnx(
        _in_row(2_000, "f0", domain="f"), functions=(_function("f0", _constant_of(400_000)),)
    ),
    "a function with a long name": lambda: _onnx(
        _in_row(2_000, "f0", domain="f"),
        functions=(_function("f0", [_node("Relu", ["x"], [_LONG]), _node("Relu", [_LONG], ["y"])]),),
    ),
    "a loop with a constant": lambda: _loop(800, [*_constant_of(400_000)[:2], _node("Add", ["v", "s"], ["w"])]),
    "a loop with a long name": lambda: _loop(1_000, [_node("Relu", ["v"], [_LONG]), _node("Relu", [_LONG], ["w"])]),
    "branches in branches": lambda: _branches(11),
    "branches in branches by a computed condition": lambda: _branches(11, "computed"),
    "two branches in each branch": lambda: _branches(6, "computed", 2),
    "branches that read a large constant": lambda: _choices(600),
    "branches in a deep branch": lambda: _branches(9, "computed", 1, "Erf"),
    "quantised pairs": lambda: _pairs(3_000),
    "quantised pairs between operators": lambda: _pairs(1_500, ("Relu", "Abs")),
    "an unknown operator with a long name": lambda: _onnx([_node(_LONG, ["x"], ["a0"], domain="f"), _node("Cos", ["a0"], ["y"])]),
    "a long name that all nodes read": lambda: _onnx(
        [
            _node("Relu", ["x"], [_LONG]),
            *[_node("Add", [_LONG, "x"], [f"a{i}"]) for i in range(2)],
            _node("Add", ["a0", "a1"], ["y"]),
        ]
    ),
}


ONNX_WRITTEN_OUT: Mapping[str, Callable[[], Content]] = {
    **{
        f"{count} of {kind}": lambda kind=kind, count=count: _decomposed(kind, count)  # type: ignore[misc]
        for kind in _DECOMPOSED
        for count in (300, 3_000)
    },
    "nodes of one operation": lambda: _onnx(_in_row(30_000)),
    "nodes that are folded": lambda: _onnx(
        [*_in_row(1), *(_node("Abs", ["c" if i == 0 else f"c{i - 1}"], [f"c{i}"]) for i in range(20_000))],
        constants={"c": np.ones(4, np.float32)},
    ),
    "nodes that nothing reads": lambda: _onnx([*_in_row(1), *(_node("Erf", ["x"], [f"d{i}"]) for i in range(20_000))]),
    "calls of a function of decomposed nodes": lambda: _onnx(
        _in_row(300, "f0", domain="f"), functions=(_function("f0", _in_row(20, "Erf")),)
    ),
    "branches of decomposed nodes": lambda: _choices_of("Erf", 1_000),
    "a loop of decomposed nodes": lambda: _loop(1_000, [_node("Erf", ["v"], ["w"])]),
}


# -- inputs ------------------------------------------------------------------------------------------------------------


def _npy(array: object) -> bytes:
    made = io.BytesIO()
    np.save(made, np.asarray(array))
    return made.getvalue()


def _npz(arrays: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        for name, content in arrays.items():
            archive.writestr(f"{name}.npy", content)
    return made.getvalue()


_ZEROS = _npy(np.zeros(32 << 20, np.uint8))
_HEADER = b"\x93NUMPY\x01\x00"


def _claiming(shape: str, dtype: str = "<f4") -> bytes:
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}}}".encode().ljust(117) + b"\n"
    return _HEADER + struct.pack("<H", len(text)) + text


ARRAYS: Mapping[str, Callable[[], Content]] = {
    "one array of zeros": lambda: _npz({"x": _claiming("(300000000,)", "|u1") + bytes(300_000_000)}),
    "many arrays of zeros": lambda: _npz({f"x{i}": _ZEROS for i in range(20)}),
    "an array that claims to be long": lambda: _npz({"x": _claiming("(4000000000000,)")}),
    "an array of nothing": lambda: _npz({"x": _claiming("(4000000000000,)", "|V0")}),
    "thousands of arrays": lambda: _npz({f"x{i}": _npy(i) for i in range(4_000)}, zipfile.ZIP_STORED),
    "an array packed by LZMA": lambda: _npz({"x": _ZEROS * 8}, zipfile.ZIP_LZMA),
}


def _prepared(path: Path, dims: tuple[int, ...] = (1, 8, 8, 3), how: Preparation | None = None) -> object:
    operand = Operand(OperandCode.TENSOR_FLOAT32, dims, lifetime=Lifetime.SUBGRAPH_INPUT)
    return prepare(InputTarget("x", operand), path, how or Preparation(scale=1.0))


def _png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    packer = zlib.compressobj(9)
    row = b"\0" * (1 + 3 * width)
    rows = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def _jpeg(scans: int) -> bytes:
    """A progressive JPEG whose last scan is repeated."""
    from PIL import Image

    made = io.BytesIO()
    Image.new("RGB", (2_000, 2_000)).save(made, "JPEG", progressive=True)
    content = made.getvalue()
    last = content.rindex(b"\xff\xda")
    return content[:last] + content[last:-2] * scans + content[-2:]


IMAGES: Mapping[str, Callable[[], Content]] = {
    "seventy million pixels": lambda: _png(8_400, 8_400),
    "hundreds of millions of pixels": lambda: _png(60_000, 5_000),
    "a wide image": lambda: _png(8_000_000, 3),
    "thousands of scans": lambda: _jpeg(4_000),
    "an image that claims to be large": lambda: _png(8, 8).replace(struct.pack(">II", 8, 8), struct.pack(">II", 30_000, 30_000)),
    "a program": lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n{} loop\n%%EOF\n",
}


def _wav(rate: int, count: int) -> bytes:
    made = io.BytesIO()
    with wave.open(made, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(1)
        file.setframerate(rate)
        file.writeframes(b"\x80" * count)
    return made.getvalue()


SOUNDS: Mapping[str, Callable[[], Content]] = {
    "a sample a second": lambda: _wav(1, 5_000),
    "a hundred samples a second": lambda: _wav(100, 700_000),
    "a thousand samples a second": lambda: _wav(1_000, 1_000_000),
    "as many samples as claimed": lambda: _wav(48_000, 10)[:44],
    "many channels": lambda: _wav(8_000, 70_000).replace(b"\x01\x00\x01\x00", b"\x01\x00\xff\xff", 1),
}

NUMBERS: Mapping[str, Callable[[], Content]] = {
    "one long number": lambda: "9" * 1_000_000,
    "numbers of thousands of digits": lambda: ("9" * 4_200 + " ") * 230,
    "a long fraction": lambda: "0." + "123456789" * 100_000,
    "a long exponent": lambda: "1e" + "9" * 1_000_000,
    "half a million numbers": lambda: "1," * 500_000,
}

TOML: Mapping[str, Callable[[], Content]] = {
    "a key of many parts": lambda: "a" + ".a" * 200_000 + " = 1\n",
    "tables of many parts": lambda: "".join(f"[{'.'.join('a' * 300)}.b{i}]\n" for i in range(1_500)),
    "lists in lists": lambda: "a = " + "[" * 400_000,
    "tables in tables": lambda: "a = " + "{a = " * 150_000,
    "a long number": lambda: "a = " + "9" * 900_000,
    "a long real number": lambda: "a = 0." + "9" * 900_000,
    "many tables": lambda: "[[budget]]\n" * 80_000,
    "many patterns": lambda: f'[[budget]]\nmodels = "{"*a" * 200_000}"\npartitions = 1\n',
}


# -- conformance cases -------------------------------------------------------------------------------------------------


def _case(**more: object) -> dict[str, object]:
    operands = [
        {"type": "TENSOR_FLOAT32", "dims": [1], "lifetime": "SUBGRAPH_INPUT"},
        {"type": "TENSOR_FLOAT32", "dims": [1], "lifetime": "SUBGRAPH_OUTPUT"},
    ]
    model = {"operands": operands, "operations": [{"type": "RELU", "inputs": [0], "outputs": [1]}], "inputs": [0], "outputs": [1]}
    return {
        "name": "c",
        "relaxed": False,
        "model": {**model, **more},
        "inputs": [[1.0]],
        "outputs": [[1.0]],
        "expect_failure": False,
    }


def _spec(case: object) -> bytes:
    return gzip.compress(json.dumps({"cases": [case]}).encode(), 9)


CASES: Mapping[str, Callable[[], Content]] = {
    "empty lists": lambda: gzip.compress(b'{"cases": [' + b"[]," * (8 << 20) + b"[]]}"),
    "empty objects": lambda: gzip.compress(b'{"cases": [' + b"{}," * (4 << 20) + b"{}]}"),
    "zeros": lambda: gzip.compress(b'{"cases": [' + b"0," * (100 << 20) + b"0]}"),
    "lists in lists": lambda: gzip.compress(b"[" * (16 << 20)),
    "a long number": lambda: gzip.compress(b"9" * (16 << 20)),
    "a text of a gigabyte": lambda: gzip.compress(b'"' + b"a" * (1 << 28) + b'"'),
    "thousands of inputs": lambda: _spec(_case(inputs=[0] * 300_000)),
}
QUESTIONS: Mapping[str, Callable[[], Content]] = {
    "empty lines": lambda: gzip.compress(b"\n" * (256 << 20)),
    "long lines": lambda: gzip.compress((b"[" + b"0," * (7 << 20) + b"0]\n") * 12),
    "one long line": lambda: gzip.compress(b" " * (1 << 28)),
    "empty lists": lambda: gzip.compress(b"[" + b"[]," * (5 << 20) + b"[]]\n"),
    "lists in lists": lambda: gzip.compress(b"[" * (8 << 20)),
}

_INTACT_PROFILE = f"{_DEVICE}{_rules('input1.rank <= 4')}"
READERS: Mapping[str, Reader] = {
    "profiles": Reader(_asked, ".toml", lambda: _INTACT_PROFILE, PROFILES),
    "source profiles": Reader(_claimed, ".toml", lambda: _source({}, "len(inputs) > 0"), SOURCE_PROFILES),
    "cells": Reader(_shown, ".txt", lambda: "a", CELLS),
    "labels": Reader(_inspected, ".tflite", lambda: _labelled({"l": b"a\n"}, _label_metadata(["l"])), LABELS),
    "operators written out": Reader(_on_phone, ".tflite", lambda: _chain(3, ("RELU", "GELU")), WRITTEN_OUT),
    "onnx operators written out": Reader(_on_phone, ".onnx", lambda: _onnx(_in_row(3, "Erf")), ONNX_WRITTEN_OUT),
    "operators": Reader(_planned, ".tflite", lambda: _chain(3, ("RELU", "COS")), OPERATORS),
    "onnx": Reader(_planned, ".onnx", lambda: _onnx(_in_row(3)), ONNX),
    "arrays": Reader(load_arrays, ".npz", lambda: _npz({"x": _npy(1)}), ARRAYS),
    "images": Reader(_prepared, ".png", lambda: _png(8, 8), IMAGES),
    "sounds": Reader(lambda path: _prepared(path, (1, 0), Preparation(rate=48_000)), ".wav", lambda: _wav(8_000, 100), SOUNDS),
    "numbers": Reader(lambda path: _prepared(path, (1, 0)), ".txt", lambda: "1 2", NUMBERS),
    "lines": Reader(
        read_labels, ".txt", lambda: "a", {"empty lines": lambda: "\n" * 1_000_000, "a line": lambda: "a" * 1_000_000}
    ),
    "tables": Reader(read_budgets, ".toml", lambda: '[[budget]]\nmodels = "*"\npartitions = 1\n', TOML),
    "cases": Reader(lambda path: [build(case) for case in read_cases(path)], ".json.gz", lambda: _spec(_case()), CASES),
    "questions": Reader(lambda path: sum(1 for _ in read_questions(path)), ".jsonl.gz", lambda: gzip.compress(b"\n"), QUESTIONS),
}


if __name__ == "__main__":
    limit_process()
    with tempfile.TemporaryDirectory() as work:
        for verdict in READERS[sys.argv[1]].verdicts(Path(work)):
            print(json.dumps(verdict), flush=True)
