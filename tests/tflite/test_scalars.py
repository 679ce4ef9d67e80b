"""Scalars that a run computes from shapes which only it knows, in operators whose results depend on their rank: as LiteRT."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnbridge
from tests.tflite.files import TfliteBuilder

pytest.importorskip("ai_edge_litert")

NONE = {"fused_activation_function": 0}
INPUTS = {"x": np.arange(8, dtype=np.float32)[None], "s": np.array([1, 2, 4], np.int32)}


class Open:
    """x in a shape that s states, and the sizes of it as scalars."""

    def __init__(self) -> None:
        self.file = TfliteBuilder()
        self.x, self.s = self.file.tensor([1, 8], name="x"), self.file.tensor([3], "int32", name="s")
        self.z = self.add("RESHAPE", [self.x, self.s], 3, "float32")
        self.shape = self.add("SHAPE", [self.z], [3], out_type=2)

    def add(self, kind: str, read: Sequence[int], dims: int | list[int], type: str = "int32", **options: Any) -> int:
        """An operator with one output: of an open shape of a rank, or of a known one."""
        shape, open_shape = (dims, None) if isinstance(dims, list) else ([1] * dims, [-1] * dims)
        out = self.file.tensor(shape, type, shape_signature=open_shape)
        self.file.operator(kind, list(read), [out], options)
        return out

    def int32(self, value: Any) -> int:
        return self.file.constant(np.int32(value), "int32")

    def size(self, axis: int) -> int:
        ranges = [self.file.constant([k], "int32") for k in (axis, axis + 1, 1)]
        return self.add("STRIDED_SLICE", [self.shape, *ranges], [], shrink_axis_mask=1)

    def packed(self, *parts: int) -> int:
        return self.add("PACK", parts, [len(parts)], values_count=len(parts), axis=0)


def _product(o: Open) -> int:
    every = o.add("REDUCE_PROD", [o.shape, o.file.constant([0], "int32")], [], keep_dims=False)
    return o.add("RESHAPE", [o.z, o.packed(every)], 1, "float32")


def _expanded(o: Open) -> int:
    rows = o.add("EXPAND_DIMS", [o.size(1), o.int32(0)], [1])
    return o.add(
        "RESHAPE", [o.z, o.add("CONCATENATION", [rows, o.file.constant([-1], "int32")], [2], axis=0, **NONE)], 2, "float32"
    )


def _selected(o: Open) -> int:
    more = o.add("GREATER", [o.size(1), o.int32(1)], [], "bool")
    return o.add("SELECT_V2", [more, o.z, o.add("NEG", [o.z], 3, "float32")], 3, "float32")


def _unpacked(o: Open) -> int:
    sizes = [o.file.tensor([], "int32") for _ in range(3)]
    o.file.operator("UNPACK", [o.shape], sizes, {"num": 3, "axis": 0})
    return o.packed(*sizes)


MADE: dict[str, Callable[[Open], int]] = {
    "PACK, RESHAPE": lambda o: o.add("RESHAPE", [o.z, o.packed(o.size(0), o.int32(8))], 2, "float32"),
    "PACK of a product": lambda o: o.packed(o.size(0), o.add("MUL", [o.size(1), o.size(2)], [], **NONE)),
    "PACK of floats": lambda o: o.add("PACK", [o.add("CAST", [o.size(2)], [], "float32")] * 2, [2], "float32", values_count=2),
    "TILE": lambda o: o.add("TILE", [o.z, o.packed(o.size(0), o.size(1), o.size(0))], 3, "float32"),
    "RANGE": lambda o: o.add("RANGE", [o.int32(0), o.size(2), o.int32(1)], 1),
    "GATHER": lambda o: o.add("GATHER", [o.z, o.add("SUB", [o.size(2), o.int32(1)], [], **NONE)], 2, "float32", axis=2),
    "FILL": lambda o: o.add("FILL", [o.shape, o.size(1)], 3),
    "REDUCE_PROD": _product,
    "EXPAND_DIMS": _expanded,
    "SELECT_V2": _selected,
    "UNPACK": _unpacked,
}


@pytest.mark.parametrize("target", [{"host": "nnbridge"}, {"mapping": "wide"}], ids=["phone", "wide"])
@pytest.mark.parametrize("name", MADE)
def test_a_computed_scalar_has_no_dimensions(name: str, target: dict[str, str], tmp_path: Path) -> None:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    o = Open()
    path = o.file.write(tmp_path / "m.tflite", [o.x, o.s], [MADE[name](o)])
    judge = Interpreter(str(path), experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    judge.allocate_tensors()
    for detail in judge.get_input_details():
        judge.set_tensor(detail["index"], INPUTS[detail["name"]])
    judge.invoke()
    (found,) = nnbridge.plan(path, **target).run(INPUTS).values()
    np.testing.assert_array_equal(found, judge.get_tensor(judge.get_output_details()[0]["index"]))
