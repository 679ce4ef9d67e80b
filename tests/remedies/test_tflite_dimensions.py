"""Dimensions of TFLite files that are stated, and numbers computed of them that become constants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from nnbridge.advice import advise
from nnbridge.errors import OptionError
from nnbridge.file import ModelFile
from nnbridge.plan import plan
from nnbridge.target import Target
from nnbridge_tflite.edits import FIXED
from tests.remedies.files import MASKS, PHONE, RELU, advice, npu, same_bits, written
from tests.tflite.files import TfliteBuilder
from tests.tflite.test_edits import call


@dataclass
class Chain:
    """A file that computes numbers of its input's dimensions, (1, 4, 4, 2) with an open batch or (2, 4, 4, 2)."""

    open_batch: bool
    file: TfliteBuilder = field(default_factory=TfliteBuilder)

    def __post_init__(self) -> None:
        self.batch = 1 if self.open_batch else 2
        self.x, self.m = self.value(4, 4, 2), self.value(4, 4, 2)
        self.file.operator("MUL", [self.x, self.file.constant(np.float32(2))], [self.m], RELU)
        self.dims = self.file.tensor((4,), "int32")
        self.file.operator("SHAPE", [self.m], [self.dims], {"out_type": 2})

    def value(self, *shape: int) -> int:
        more = {"shape_signature": [-1, *shape]} if self.open_batch else {}
        return self.file.tensor((self.batch, *shape), **more)

    def part(self, begin: int, end: int, shrink: bool = False) -> int:
        out = self.file.tensor(() if shrink else (end - begin,), "int32")
        ranges = [self.file.constant(np.int32([number])) for number in (begin, end, 1)]
        self.file.operator("STRIDED_SLICE", [self.dims, *ranges], [out], {**MASKS, "shrink_axis_mask": int(shrink)})
        return out

    def joined(self, *numbers: int) -> int:
        out = self.file.tensor((len(numbers) + 1,), "int32")
        parts = [self.part(0, 1, True), *(self.file.constant(np.int32(n)) for n in numbers)]
        self.file.operator("PACK", parts, [out], {"values_count": len(parts), "axis": 0})
        return out


def reshape(chain: Chain) -> int:
    y = chain.value(32)
    chain.file.operator("RESHAPE", [chain.m, chain.joined(32)], [y], {})
    return y


def resize(chain: Chain) -> int:
    """Twice as high and wide, as exporters write ``interpolate(scale_factor=2)``: by way of float32."""
    f, sides, y = chain.file, chain.part(1, 3), chain.value(8, 8, 2)
    real, twice, whole = f.tensor((2,)), f.tensor((2,)), f.tensor((2,), "int32")
    f.operator("CAST", [sides], [real], {"in_data_type": 2, "out_data_type": 0})
    f.operator("MUL", [real, f.constant(np.float32(2))], [twice], RELU)
    f.operator("CAST", [twice], [whole], {"in_data_type": 0, "out_data_type": 2})
    f.operator("RESIZE_NEAREST_NEIGHBOR", [chain.m, whole], [y], {"align_corners": False, "half_pixel_centers": False})
    return y


def filled(chain: Chain) -> int:
    f, z, y = chain.file, chain.value(4, 4, 2), chain.value(4, 4, 2)
    f.operator("FILL", [chain.joined(4, 4, 2), f.constant(np.float32(0.5))], [z], {})
    f.operator("ADD", [chain.m, z], [y], RELU)
    return y


def tiled(chain: Chain) -> int:
    y, ones = chain.value(4, 4, 2), chain.file.tensor((4,), "int32")
    chain.file.operator("FLOOR_DIV", [chain.dims, chain.dims], [ones], {})
    chain.file.operator("TILE", [chain.m, ones], [y], {})
    return y


def padded(chain: Chain) -> int:
    f, y, sides, flat = chain.file, chain.value(5, 4, 2), f_tensor(chain, 4, 2), f_tensor(chain, 8)
    zeros = f.tensor((4,), "int32")
    f.operator("SUB", [chain.dims, chain.dims], [zeros], RELU)
    f.operator("CONCATENATION", [zeros, f.constant(np.int32([0, 0, 0, 0]))], [flat], {"axis": 0, **RELU})
    f.operator("RESHAPE", [flat, f.constant(np.int32([4, 2]))], [sides], {})
    more = f_tensor(chain, 4, 2)
    f.operator("ADD", [sides, f.constant(np.int32([[0, 0], [0, 1], [0, 0], [0, 0]]))], [more], RELU)
    f.operator("PAD", [chain.m, more], [y], {})
    return y


def f_tensor(chain: Chain, *shape: int) -> int:
    return chain.file.tensor(shape, "int32")


def broadcast(chain: Chain) -> int:
    f, y = chain.file, chain.value(4, 4, 2)
    f.operator("BROADCAST_TO", [f.constant(np.float32([[[[1, 2]]]])), chain.dims], [y], {}, 2)
    return y


def ranged(chain: Chain) -> int:
    """A row of places, as position embeddings have."""
    f, count, places, y = chain.file, chain.part(1, 2, True), chain.file.tensor((4,), "int32"), chain.value(4, 4, 2)
    f.operator("RANGE", [f.constant(np.int32(0)), count, f.constant(np.int32(1))], [places], {})
    f.operator("GATHER", [chain.m, places], [y], {"axis": 1, "batch_dims": 0})
    return y


CHAINS = (reshape, resize, filled, tiled, padded, broadcast, ranged)


ALL = ("MUL", "ADD", "RESHAPE", "RESIZE_NEAREST_NEIGHBOR", "TILE", "PAD", "GATHER")


@pytest.mark.parametrize("open_batch", [False, True])
@pytest.mark.parametrize("make", CHAINS)
def test_numbers_computed_of_dimensions_become_constants_with_the_same_bits(
    make: Callable[[Chain], int], open_batch: bool, tmp_path: Path
) -> None:
    pytest.importorskip("ai_edge_litert")
    chain = Chain(open_batch)
    out = make(chain)
    path = chain.file.write(tmp_path / "chain.tflite", [chain.x], [out])
    (edit,) = (one for one in ModelFile(path, PHONE).edits if one.text.endswith(FIXED))
    assert open_batch == ("inputs of only these dimensions (t0=1,4,4,2)" in edit.text)
    after = tmp_path / "after.tflite"
    edit.content().write(after)
    graph = ModelFile(after, PHONE).source_graph
    assert "SHAPE" not in {operator.name for operator in graph.operators}
    assert not [tensor for operator in graph.operators for tensor in operator.outputs if tensor.open_dims]
    assert same_bits("litert", path, after)


def test_a_graph_that_tflite_refuses_for_computed_shapes_is_advised_constants_first(tmp_path: Path) -> None:
    chain = Chain(True)
    out = resize(chain)
    path = chain.file.write(tmp_path / "chain.tflite", [chain.x], [out])
    first = advice(path, npu(tmp_path, *ALL))[0]
    assert (first.kind, FIXED in first.text) == ("rewrite", True)
    assert (first.before.standing, first.after.standing, len(first.after.elsewhere)) == (1, 0, 0)
    after = written(first, tmp_path, ".tflite")
    assert "hands over 2 of 2 operators" in plan(ModelFile(after, PHONE), Target.of(npu(tmp_path, *ALL))).summary.sentence


def test_rewrite_proves_it_under_requested_dimensions(tmp_path: Path) -> None:
    chain = Chain(True)
    out = reshape(chain)
    path, target = chain.file.write(tmp_path / "chain.tflite", [chain.x], [out]), tmp_path / "after.tflite"
    device = ("--device", npu(tmp_path, *ALL), "--shape", "t0=3,4,4,2")
    done = call("rewrite", str(path), *device, "--advice", "1", "-o", str(target))
    assert done["text"].startswith("whole file: inputs of only these dimensions (t0=3,4,4,2)")
    graph = ModelFile(target, PHONE).source_graph
    assert [tensor.shape for tensor in (*graph.inputs, *graph.outputs)] == [(3, 4, 4, 2), (3, 32)]


def test_an_output_that_is_dimensions_stays_computed(tmp_path: Path) -> None:
    chain = Chain(False)
    path = chain.file.write(tmp_path / "chain.tflite", [chain.x], [chain.m, chain.dims])
    assert [one.text for one in ModelFile(path, PHONE).edits if FIXED in one.text] == []


def test_float16_weights_stay_as_they_are(tmp_path: Path) -> None:
    chain = Chain(False)
    out, weights = reshape(chain), chain.file.tensor((32,))
    chain.file.operator("DEQUANTIZE", [chain.file.constant(np.ones(32, np.float16))], [weights], {})
    last = chain.file.tensor((2, 32))
    chain.file.operator("ADD", [out, weights], [last], RELU)
    path = chain.file.write(tmp_path / "chain.tflite", [chain.x], [last])
    (edit,) = (one for one in ModelFile(path, PHONE).edits if one.text.endswith(FIXED))
    after = tmp_path / "after.tflite"
    edit.content().write(after)
    assert [one.name for one in ModelFile(after, PHONE).source_graph.operators] == ["MUL", "RESHAPE", "DEQUANTIZE", "ADD"]


@pytest.mark.parametrize("device", ["ethos-u55-128", "ethos-u85-256", "edgetpu", "tflite-gpu-delegate", "xnnpack", "hexagon"])
def test_devices_before_nnapi_see_requested_dimensions(device: str, tmp_path: Path) -> None:
    chain = Chain(True)
    out = reshape(chain)
    path = chain.file.write(tmp_path / "chain.tflite", [chain.x], [out])
    asked = replace(PHONE, shapes={"t0": (2, 4, 4, 2)})
    graph = ModelFile(path, asked).source_graph
    assert [(t.shape, t.open_dims) for t in (*graph.inputs, *graph.outputs)] == [((2, 4, 4, 2), ()), ((2, 32), ())]
    assert plan(ModelFile(path, asked), Target.of(device)).summary.operators == 5


def test_devices_before_nnapi_refuse_dimensions_of_what_is_no_input(tmp_path: Path) -> None:
    chain = Chain(True)
    out = reshape(chain)
    path = chain.file.write(tmp_path / "chain.tflite", [chain.x], [out])
    with pytest.raises(OptionError, match="expected an input"):
        _ = ModelFile(path, replace(PHONE, shapes={"other": (2, 4, 4, 2)})).source_graph


@pytest.mark.parametrize("device", ["ethos-u55-128", "edgetpu", "tflite-gpu-delegate"])
def test_compilers_are_advised_stated_dimensions_that_rewrite_proves(device: str, tmp_path: Path) -> None:
    """A convolution, its rows, and a product: with an open batch, or a computed shape, compilers leave some of it to the CPU."""
    eight = {"type": "float32"} if device == "tflite-gpu-delegate" else {"type": "int8", "scale": 0.05}
    file, random = TfliteBuilder(), np.random.default_rng(0)
    x, y = (file.tensor((1, 4, 4, 2), shape_signature=[-1, 4, 4, 2], **eight) for _ in range(2))
    rows, out = (file.tensor((1, n), shape_signature=[-1, n], **eight) for n in (32, 4))
    kind = str(eight["type"])
    weights = [random.standard_normal(s) if kind == "float32" else random.integers(-99, 99, s) for s in ((2, 1, 1, 2), (4, 32))]
    scaled = {} if kind == "float32" else {"scale": 0.01}
    filters = [file.constant(w, kind, **scaled) for w in weights]
    step = {} if kind == "float32" else {"scale": float(np.float32(0.05) * np.float32(0.01))}
    biases = [file.constant(np.zeros(n), "float32" if kind == "float32" else "int32", **step) for n in (2, 4)]
    ones = dict.fromkeys(("stride_h", "stride_w", "dilation_h_factor", "dilation_w_factor"), 1)
    file.operator("CONV_2D", [x, filters[0], biases[0]], [y], {"padding": 1, **ones, **RELU}, 1 if kind == "float32" else 3)
    dims, first, both = file.tensor((4,), "int32"), file.tensor((), "int32"), file.tensor((2,), "int32")
    file.operator("SHAPE", [y], [dims], {"out_type": 2})
    ranges = [file.constant(np.int32([number])) for number in (0, 1, 1)]
    file.operator("STRIDED_SLICE", [dims, *ranges], [first], {**MASKS, "shrink_axis_mask": 1})
    file.operator("PACK", [first, file.constant(np.int32(32))], [both], {"values_count": 2, "axis": 0})
    file.operator("RESHAPE", [y, both], [rows], {})
    product = [rows, filters[1], biases[1]]
    file.operator("FULLY_CONNECTED", product, [out], {"weights_format": 0, **RELU}, 1 if kind == "float32" else 4)
    path, target = file.write(tmp_path / "net.tflite", [x], [out]), tmp_path / "after.tflite"
    planned = call("plan", str(path), "--device", device, "--advice")
    number, found = next((k, one) for k, one in enumerate(planned["advice"], 1) if FIXED in one["text"])
    assert found["after"]["elsewhere"] < found["before"]["elsewhere"]
    call("rewrite", str(path), "--device", device, "--advice", str(number), "-o", str(target))
    assert same_bits("litert", path, target)


@pytest.mark.parametrize("device", ["ethos-u55-128", "edgetpu"])
@pytest.mark.parametrize("signature", [[-1, 8, 4, 3], [1, -1, -1, 3], [1, 8, -1, 3], [-1, -1, -1, 3], [-1, -1, -1, -1]])
def test_npus_of_stated_dimensions_and_8_bits_are_advised_both(device: str, signature: list[int], tmp_path: Path) -> None:
    """Each of the two leaves the operator where it is."""
    file = TfliteBuilder()
    shape = [1 if d < 0 else d for d in signature]
    x, y = (file.tensor(shape, shape_signature=signature, name=name) for name in "xy")
    file.operator("MAX_POOL_2D", [x], [y], {"stride_w": 1, "stride_h": 1, "filter_width": 1, "filter_height": 1})
    path = file.write(tmp_path / "open.tflite", [x], [y])
    found = advise(ModelFile(path, PHONE), Target.of(device)).advice[0]
    assert (found.kind, len(found.before.elsewhere), len(found.after.elsewhere)) == ("calibrate", 1, 0)
    assert "only these dimensions" in found.text
    assert "batch_size=1" in found.converter
    assert "representative_dataset" in found.converter
