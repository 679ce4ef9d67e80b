"""A TFLite file's tables while the file is edited: one operator is replaced, or changed and isolated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nnbridge_tflite.read.flatbuffer import Decoder, Span
from nnbridge_tflite.read.reader import TfliteFile
from nnbridge_tflite.read.schema import builtin_codes, builtin_names, enum_names, options_table

Table = dict[str, Any]
LETTERS = {"FLOAT32": "<f4", "INT32": "<i4", "INT8": "<i1", "UINT8": "u1", "INT64": "<i8", "INT16": "<i2", "BOOL": "?"}
"""NumPy's names of element types."""
_SMALL = 4096
"""Bytes up to which a constant of an isolated operator stays; larger ones, which are weights, become zeros."""
SIDES = ("inputs", "outputs", "intermediates")


def decoded(file: TfliteFile) -> Table:
    """A file's tables, which may be changed; weights, also those that the file has after its tables, are seen where they are."""
    data = memoryview(file.pool.data)
    model: Table = _plain(data, Decoder(file.pool.data).root("Model"))
    if not model["buffers"]:
        model["buffers"] = [{}]  # A file may have none; its tensors then have buffer 0, which is empty in others.
    model["buffers"] = [_inside(data, one, "data", "offset", "size") for one in model["buffers"]]
    names = "custom_options", "large_custom_options_offset", "large_custom_options_size"
    for subgraph in model["subgraphs"]:
        subgraph["operators"] = [_inside(data, one, *names) for one in subgraph["operators"]]
    return model


def _inside(data: memoryview, table: Table, name: str, offset: str, size: str) -> Table:
    """A table with the bytes that it names by their place in the file."""
    if table.get(offset, 0) <= 1 or not table.get(size, 0):
        return table
    found = np.frombuffer(data, np.uint8, table[size], table[offset])
    return {**table, name: found, offset: 0, size: 0}


def _plain(data: memoryview, value: Any) -> Any:
    if isinstance(value, Span):
        return np.frombuffer(data, np.uint8, value.length, value.offset)
    if isinstance(value, dict):
        return {key: _plain(data, item) for key, item in value.items()}
    return [_plain(data, item) for item in value] if isinstance(value, tuple) else value


class EditedGraph:
    """One subgraph of a file while one of its operators is replaced."""

    def __init__(self, model: Table, subgraph: int, index: int) -> None:
        self.model = model
        self.subgraph = model["subgraphs"][subgraph]
        self.operator: Table = self.subgraph["operators"][index]
        self.placed: list[Table] = []
        self.before: list[Table] = []
        self.after: list[Table] = []
        self.gone = False
        """Nothing is in the operator's place: what it computes is a constant."""

    @classmethod
    def fork(cls, model: Table, subgraph: int, index: int) -> EditedGraph:
        """The same of a copy, whose lists and whose operator may be changed; the other tables are the original's."""
        graphs = list(model["subgraphs"])
        old = graphs[subgraph]
        graphs[subgraph] = {**old, "tensors": list(old["tensors"]), "operators": list(old["operators"])}
        graphs[subgraph]["operators"][index] = dict(old["operators"][index])
        lists = {name: list(model[name]) for name in ("buffers", "operator_codes")}
        return cls({**model, **lists, "subgraphs": graphs}, subgraph, index)

    @property
    def name(self) -> str:
        """The operator's name."""
        return operator_name(self.model, self.operator)

    @property
    def label(self) -> str:
        """The operator's name for readers: of custom operators, their code."""
        return operator_label(self.model, self.operator)

    def option(self, name: str, default: Any = 0) -> Any:
        found = (self.operator.get("builtin_options") or {}).get(name)
        return default if found is None else found

    def input(self, i: int) -> int:
        return int(self.operator["inputs"][i])

    @property
    def out(self) -> int:
        return int(self.operator["outputs"][0])

    def shape(self, tensor: int) -> tuple[int, ...]:
        found = self.subgraph["tensors"][tensor].get("shape")
        return () if found is None else tuple(int(d) for d in found)

    def type(self, tensor: int) -> str:
        return self.type_name(self.subgraph["tensors"][tensor])

    @staticmethod
    def type_name(tensor: Mapping[str, Any]) -> str:
        """The element type of a tensor's table."""
        return enum_names("TensorType")[tensor.get("type") or 0]

    def fixed(self, *tensors: int) -> bool:
        """True if all dimensions are stated, none 0, and none may change."""
        signatures = (self.subgraph["tensors"][t].get("shape_signature") for t in tensors)
        return all(min(self.shape(t), default=0) > 0 for t in tensors) and not any(
            signature is not None and len(signature) and min(signature) < 0 for signature in signatures
        )

    def constant(self, tensor: int) -> Any | None:
        """The int32 numbers of a constant; None if it is computed or of another type."""
        if not self.stored(tensor) or self.type(tensor) != "INT32":
            return None
        return self.model["buffers"][self.subgraph["tensors"][tensor]["buffer"]]["data"].view("<i4")

    def stored(self, tensor: int) -> bool:
        """True for a constant of any type."""
        data = self.raw(tensor)
        return data is not None and len(data) > 0

    def raw(self, tensor: int) -> Any | None:
        """The stored bytes of a tensor; None where there are none."""
        return self.model["buffers"][self.subgraph["tensors"][tensor]["buffer"]].get("data")

    def scales(self, tensor: int) -> Any:
        """The scales of a quantised tensor; empty for others."""
        quantisation = self.subgraph["tensors"][tensor].get("quantization") or {}
        found = quantisation.get("scale")
        return np.zeros(0, "<f4") if found is None else np.asarray(found, "<f4")

    def zero_point(self, tensor: int) -> int:
        """The first zero point of a tensor."""
        found = (self.subgraph["tensors"][tensor].get("quantization") or {}).get("zero_point")
        return 0 if found is None or not len(found) else int(found[0])

    def axis(self, tensor: int) -> int:
        """The dimension of several scales; the last one where the file states one that the tensor does not have."""
        found = (self.subgraph["tensors"][tensor].get("quantization") or {}).get("quantized_dimension") or 0
        return min(int(found), max(len(self.shape(tensor)) - 1, 0))

    def quantise(self, tensor: int, scales: Any, zero_points: Any, dimension: int = 0) -> None:
        """Give a tensor scales and zero points, one for all or one for each index of a dimension."""
        found = {"scale": np.asarray(scales, "<f4"), "zero_point": np.asarray(zero_points, "<i8")}
        quantisation = {**found, "quantized_dimension": dimension}
        self.subgraph["tensors"][tensor] = {**self.subgraph["tensors"][tensor], "quantization": quantisation}

    def values(self, tensor: int) -> Any | None:
        """A constant as an array; None if it is computed, or of a type that NumPy does not have."""
        data = self.raw(tensor)
        letter = LETTERS.get(self.type(tensor))
        return None if data is None or not len(data) or letter is None else data.view(letter).reshape(self.shape(tensor))

    def tensor(self, like: int, shape: Sequence[int], name: str) -> int:
        """A new computed tensor of another one's type and quantisation."""
        source = self.subgraph["tensors"][like]
        made = {**source, "shape": np.asarray(shape, "<i4"), "name": name, "buffer": 0, "shape_signature": None}
        return self.append(made)

    def float_tensor(self, like: int) -> int:
        """A new tensor of float32 in another one's dimensions; a variable for a variable."""
        return self.append({**self.subgraph["tensors"][like], "type": 0, "quantization": None, "buffer": 0, "name": "float"})

    def data(self, array: Any, type: str, name: str) -> int:
        """A new constant."""
        array = np.asarray(array)
        self.model["buffers"].append({"data": np.frombuffer(array.tobytes(), np.uint8)})
        code = next(code for code, known in enum_names("TensorType").items() if known == type)
        made = {"shape": np.asarray(array.shape, "<i4"), "type": code, "name": name, "buffer": len(self.model["buffers"]) - 1}
        return self.append(made)

    def append(self, made: Mapping[str, Any]) -> int:
        """Another tensor's table; its index."""
        self.subgraph["tensors"].append(made)
        return len(self.subgraph["tensors"]) - 1

    def place(self, name: str, inputs: Sequence[int], outputs: Sequence[int], version: int = 1, **options: Any) -> None:
        """An operator in the place of the one that is replaced."""
        self.placed.append(self.made(name, inputs, outputs, version, **options))

    def made(self, name: str, inputs: Sequence[int], outputs: Sequence[int], version: int = 1, **options: Any) -> Table:
        """A new operator, not placed yet."""
        code = builtin_codes()[name]
        known = {"builtin_code": code, "deprecated_builtin_code": min(code, 127), "version": version}
        self.model["operator_codes"].append(known)
        made: Table = {"opcode_index": len(self.model["operator_codes"]) - 1}
        made |= {"inputs": np.asarray(inputs, "<i4"), "outputs": np.asarray(outputs, "<i4")}
        table = options_table(name)
        if table is not None:
            codes = {member: number for number, member in enum_names("BuiltinOptions").items()}
            made |= {"builtin_options_type": codes[table], "builtin_options": options}
        return made

    def slice(self, data: int, begin: Sequence[int], output: int) -> Table:
        """The STRIDED_SLICE of an output's size from a place on, not placed yet."""
        last = [int(b) + d for b, d in zip(begin, self.shape(output), strict=True)]
        numbers = [self.data(np.asarray(v, "<i4"), "INT32", "slice") for v in (begin, last, [1] * len(last))]
        return self.made("STRIDED_SLICE", [data, *numbers], [output], 2 if self.type(data) == "INT8" else 1)

    def finish(self, index: int) -> None:
        """Put what was placed, or the changed operator between those added, where the operator stood."""
        changed = [] if self.gone else self.placed or [*self.before, self.operator, *self.after]
        self.subgraph["operators"][index : index + 1] = changed


def operator_name(model: Table, operator: Mapping[str, Any]) -> str:
    """The name of a builtin operator; empty for others."""
    code = model["operator_codes"][operator["opcode_index"]]
    number = max(code.get("builtin_code") or 0, code.get("deprecated_builtin_code") or 0)
    return builtin_names().get(number, "")


def operator_label(model: Table, operator: Mapping[str, Any]) -> str:
    """The name of a builtin operator, and the code of a custom one."""
    name = operator_name(model, operator)
    code = model["operator_codes"][operator["opcode_index"]].get("custom_code")
    return code if name == "CUSTOM" and code else name


def copied(value: Any) -> Any:
    """Tables that may be changed while the originals stay; arrays are shared, and replaced as a whole."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value


def listed(indexes: Any) -> list[int]:
    """A list of tensors, empty where the table has none."""
    return [] if indexes is None else [int(i) for i in indexes]


def is_constant(model: Table, tensor: Mapping[str, Any]) -> bool:
    """True if the file has the tensor's value, or stores it between runs."""
    data = model["buffers"][tensor["buffer"]].get("data")
    return bool(tensor.get("is_variable")) or (data is not None and len(data) > 0)


def alone(model: Table, subgraph: int, index: int) -> Table:
    """A file of one operator: computed inputs are the file's, weights are zeros."""
    source = model["subgraphs"][subgraph]
    operator = source["operators"][index]
    computed = [t for t in dict.fromkeys(listed(operator["inputs"])) if t >= 0 and not is_constant(model, source["tensors"][t])]
    main = {**source, "operators": [operator], "inputs": computed, "outputs": operator["outputs"]}
    made = copied({**model, "subgraphs": [main], "description": None, "buffers": list(model["buffers"])})
    drop_unused(made)
    for k, buffer in enumerate(made["buffers"]):
        if buffer.get("data") is not None and len(buffer["data"]) > _SMALL:
            made["buffers"][k] = {"data": np.zeros(len(buffer["data"]), np.uint8)}
    for k, tensor in enumerate(made["subgraphs"][0]["tensors"]):
        tensor["name"] = f"t{k}"
    return made


def drop_unused(model: dict[str, Any]) -> dict[int, int]:
    """Tensors of the first subgraph that nothing refers to, data that no tensor has, codes of no operator, and what describes
    the whole file. Returns the new index of each tensor that stays."""
    main = model["subgraphs"][0]
    lists = [
        main["inputs"],
        main["outputs"],
        *(operator.get(side) for operator in main["operators"] for side in SIDES),
    ]
    used = sorted({t for indexes in lists for t in listed(indexes) if t >= 0})
    moved = {old: new for new, old in enumerate(used)} | {-1: -1}

    def renumbered(indexes: Any) -> Any:
        return None if indexes is None else np.asarray([moved[t] for t in listed(indexes)], "<i4")

    for operator in main["operators"]:
        operator.update({side: renumbered(operator.get(side)) for side in SIDES})
    main.update(inputs=renumbered(main["inputs"]), outputs=renumbered(main["outputs"]))
    main["tensors"] = [main["tensors"][t] for t in used]
    # Buffer 0 is the one without data.
    _renumber(model, "buffers", [t for graph in model["subgraphs"] for t in graph["tensors"]], "buffer", (0,))
    _renumber(model, "operator_codes", [o for graph in model["subgraphs"] for o in graph["operators"]], "opcode_index")
    model.update(signature_defs=None, metadata=None, metadata_buffer=None)
    return moved


def _renumber(model: Table, rows: str, users: Sequence[Table], name: str, retained: Sequence[int] = ()) -> None:
    """Drop rows of a list that no user names."""
    moved = {old: new for new, old in enumerate(sorted({*retained, *(user[name] for user in users)}))}
    model[rows] = [model[rows][k] for k in moved]
    for user in users:
        user[name] = moved[user[name]]
