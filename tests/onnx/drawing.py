"""Small ONNX files drawn at random: types, shapes, attributes, opsets, constants and computed inputs.

``DRAWS`` has a function for each operator; scripts/nets/differential_onnx.py compares what files compute here and in ONNX
Runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.differential import Draws

F, H, D, U8, I8, I32, I64, B = "float32", "float16", "float64", "uint8", "int8", "int32", "int64", "bool"
TYPES = (F, F, F, F, H, D, U8, I8, "int16", "uint16", I32, I32, I64, I64, "uint32", "uint64", B)
MICROSOFT = "com.microsoft"
NEWEST = 23
"""The newest opset that the reference runs; operators that came later are drawn at their own."""
Rng = np.random.Generator


@cache
def first_version(operator: str) -> int:
    """The opset that has an operator first; GroupNormalization was withdrawn before 21."""
    if operator == "GroupNormalization":
        return 21
    return min(
        (s.since_version for s in onnx.defs.get_all_schemas_with_history() if s.name == operator and not s.domain), default=1
    )


class Case:
    """A model under construction, with the values that it is run on."""

    def __init__(self, rng: Rng, operator: str, opset: int = 0) -> None:
        self.rng = rng
        self.operator = operator
        self.opset = max(opset or int(rng.integers(7, NEWEST + 1)), first_version(operator))
        self.nodes: list[Any] = []
        self.feeds: dict[str, Any] = {}
        self.constants: dict[str, Any] = {}
        self.outputs: list[str] = []
        self.functions: list[Any] = []
        self.stated: list[Any] = []
        """Descriptions of values on the way."""
        self.quantised = False
        self.defaulted: list[str] = []
        """Constants that are listed as inputs as well: defaults, which no one replaces."""
        self.forms: list[tuple[str, Callable[[Any, Rng], None], int]] = []
        """Changes of the finished file by name, each with the seed that it draws from."""

    # -- drawing

    def pick(self, *options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def whole(self, low: int, high: int) -> int:
        """A number from low to high."""
        return int(self.rng.integers(low, high + 1))

    def dims(self, low: int = 1, high: int = 4, most: int = 5) -> tuple[int, ...]:
        return tuple(int(d) for d in self.rng.integers(1, most + 1, self.whole(low, high)))

    def axis(self, rank: int, *, negative: bool = True) -> int:
        return self.whole(-rank if negative else 0, rank - 1)

    def type(self, i: int = 0, of: Sequence[str] = TYPES) -> str:
        """An element type that the operator's input accepts in this opset."""
        schema = onnx.defs.get_schema(self.operator, self.opset)
        allowed = {name[7:-1] for name in schema.inputs[min(i, len(schema.inputs) - 1)].types}
        names = {"float": F, "double": D}
        allowed = {names.get(name, name) for name in allowed}
        return str(self.pick(*([t for t in of if t in allowed] or [F])))

    def values(self, shape: Sequence[int], type: str = F) -> Any:
        kind = np.dtype(type).kind
        if kind == "f":
            array = self.rng.standard_normal(shape) * self.pick(1.0, 1.0, 1.0, 4.0)
            return np.asarray(np.round(array) if self.chance(0.1) else array).astype(type)
        if kind == "b":
            return np.asarray(self.rng.integers(0, 2, shape)).astype(bool)
        ends = (0, 255) if type == U8 else (-128, 127) if type == I8 else (0, 20) if kind == "u" else (-20, 20)
        if self.chance(0.1):
            return np.full(shape, self.pick(*ends), type)
        return np.asarray(self.rng.integers(ends[0], ends[1] + 1, shape)).astype(type)

    # -- building

    def value(self, array: Any, constant: bool | None = None) -> str:
        """A constant or an input, by chance if not stated."""
        array = np.asarray(array)
        constant = self.chance(0.3) if constant is None else constant
        table = self.constants if constant else self.feeds
        name = f"{'c' if constant else 'x'}{len(table)}"
        table[name] = array
        return name

    def data(self, shape: Sequence[int], type: str = F) -> str:
        return self.value(self.values(shape, type), False)

    def parameter(self, values: Any, type: str = I64) -> str:
        """Sizes or axes: constants as a rule."""
        return self.value(np.asarray(values, type), not self.chance(0.2))

    def node(self, inputs: Sequence[str], outputs: int = 1, operator: str = "", domain: str = "", **attributes: Any) -> list[str]:
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        inputs = list(inputs)
        while inputs and not inputs[-1]:
            inputs.pop()
        kept = {name: value for name, value in attributes.items() if value is not None}
        self.nodes.append(helper.make_node(operator or self.operator, inputs, names, domain=domain, **kept))
        self.outputs = names
        return names

    def maybe(self, value: Any) -> Any:
        """An attribute that may be left out."""
        return value if self.chance(0.7) else None

    def __str__(self) -> str:
        kinds = {n: f"{a.dtype}{list(a.shape)}" for n, a in self.feeds.items()}
        fixed = {n: a.tolist() if a.size <= 8 else f"{a.dtype}{list(a.shape)}" for n, a in self.constants.items()}
        nodes = "; ".join(
            f"{n.op_type}({', '.join(n.input)}; " + ", ".join(f"{a.name}={_shown(a)}" for a in n.attribute) + ")"
            for n in self.nodes
        )
        forms = f" as {', '.join(name for name, _, _ in self.forms)}" if self.forms else ""
        return f"opset {self.opset}: {nodes} {kinds} {fixed}{forms}"

    def model(self, outputs: Sequence[Any] | None = None) -> Any:
        """The model; ``outputs`` are the reference's, whose types are declared, and by chance their shapes."""
        kinds = []
        for i, name in enumerate(self.outputs):
            if outputs is None:
                kinds.append(onnx.ValueInfoProto(name=name))
                continue
            shape = self.pick(list(outputs[i].shape), list(outputs[i].shape), [None] * outputs[i].ndim)
            kinds.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(outputs[i].dtype), shape))
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), list(a.shape))
            for name, a in (*self.feeds.items(), *((name, self.constants[name]) for name in self.defaulted))
        ]
        tensors = [numpy_helper.from_array(np.asarray(a), name) for name, a in self.constants.items()]
        graph = helper.make_graph(self.nodes, self.operator, inputs, kinds, tensors, value_info=self.stated)
        domains = {one.domain for one in (*self.nodes, *self.functions)} - {""}
        opsets = [helper.make_opsetid("", self.opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=self.functions)
        for _, change, seed in self.forms:
            change(model, np.random.default_rng(seed))
        return model


def _shown(attribute: Any) -> Any:
    value = helper.get_attribute_value(attribute)
    return value if isinstance(value, (int, float, bytes, list)) else list(value) if hasattr(value, "append") else "..."


Draw = Callable[[Case], object]
DRAWS: Draws[Draw] = Draws()
draws = DRAWS.of
