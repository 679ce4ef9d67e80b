"""The host's floats: sums in TFLite's order, the C library's functions, bit for bit LiteRT's reference kernels."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from nnbridge import Compilation, Execution
from nnbridge.converters import ConversionOptions
from nnbridge.errors import Reason
from nnbridge.file import load
from nnbridge_tflite.declaration import REGISTRY, OperandKind
from nnbridge_tflite.host.ordered import EXP, dots, total
from tests.differential import Fork
from tests.graphs import argument
from tests.tflite import differential
from tests.tflite.drawing import F, values
from tests.tflite.files import TfliteBuilder

LEFT = {0: Reason("a device that accepts it", "none")}
IN_ORDER = sorted(
    name for name in differential.DRAWS if (declared := REGISTRY.get(name)) is not None and OperandKind.FLOATS in declared.kernels
)
CASES = 8


def test_products_are_added_one_after_the_other() -> None:
    left = np.array([[1e8, 1, -1e8]], np.float32)
    right = np.ones((3, 2), np.float32)
    assert dots(left, right).tolist() == [[0, 0]]  # 1e8 + 1 is 1e8 in float32
    assert dots(np.repeat(left[:, [0, 2, 1]], 3, 0), right).tolist() == [[1, 1]] * 3


def test_many_rows_are_summed_as_one_is() -> None:
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((3000, 7)).astype("f4"), rng.standard_normal((7, 3)).astype("f4")
    assert np.array_equal(dots(left, right)[2500:2501], dots(left[2500:2501], right))


def test_sums_along_an_axis_begin_with_zero() -> None:
    assert math.copysign(1, float(total(np.array([-0.0], np.float32))[0])) == 1
    assert total(np.zeros((2, 0), np.float32)).tolist() == [[0], [0]]


def test_exponentials_are_those_of_the_c_library() -> None:
    x = np.linspace(-20, 20, 999, dtype=np.float32)
    exact = np.exp(x.astype(np.float64))
    assert np.all(np.abs(EXP(x) - exact) <= 0.51 * np.spacing(exact.astype(np.float32)))


def test_infinite_weights_are_multiplied_all_the_same(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    x, y = builder.tensor((1, 1, 1, 1), name="x"), builder.tensor((1, 1, 1, 1), name="y")
    weights = builder.constant(np.full((1, 1, 1, 1), np.inf), "float32")
    builder.operator("CONV_2D", [x, weights, -1], [y], {"padding": 0, "stride_w": 1, "stride_h": 1})
    model = load(builder.write(tmp_path / "m.tflite", [x], [y]), ConversionOptions(mapping="delegate", left=LEFT))
    compilation = Compilation.create(model, [])
    compilation.finish()
    assert Execution(compilation).run([np.ones((1, 1, 1, 1), np.float32)])["y"].item() == np.finfo(np.float32).max


def _held(name: str, shapes: Sequence[tuple[int, ...]], options: dict[str, int]) -> tuple[list[float], int]:
    """The result of a kernel for ones, and the most bytes that it held meanwhile."""
    tensors = [argument(shape, value=np.ones(shape, np.float32)) for shape in shapes]
    kernel = REGISTRY[name].kernels[OperandKind.FLOATS]
    tracemalloc.start()
    try:
        found = kernel(tensors, [], {"padding": 0, **options})[0]
        return found.reshape(-1).tolist(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


FAR = {f"dilation_{axis}_factor": 10**8 for axis in "dhw"}


@pytest.mark.parametrize(
    ("name", "image", "weights"),
    [
        ("CONV_2D", (1, 2, 2, 1), (1, 3, 3, 1)),
        ("DEPTHWISE_CONV_2D", (1, 2, 2, 1), (1, 3, 3, 1)),
        ("CONV_3D", (1, 2, 2, 2, 1), (3, 3, 3, 1, 1)),
    ],
)
def test_what_a_dilated_window_holds_follows_from_the_image(name: str, image: tuple[int, ...], weights: tuple[int, ...]) -> None:
    found, most = _held(name, [image, weights], FAR)
    assert set(found) == {1}  # the cell in the middle alone sees the image
    assert most < 2**16


@pytest.mark.parametrize(("name", "weights"), [("CONV_2D", (1, 1, 8001, 1)), ("DEPTHWISE_CONV_2D", (1, 1, 8001, 1))])
def test_windows_above_the_image_are_not_gathered_at_all_positions_at_once(name: str, weights: tuple[int, ...]) -> None:
    found, most = _held(name, [(1, 1, 4000, 1), weights], {})
    assert set(found) == {4000}
    assert most < 2**26  # 4,000 positions of 7,999 cells are 128 MB


def test_a_spread_window_holds_no_more_than_the_output() -> None:
    shape = argument((5,), "i4", value=np.array([1, 2, 2, 2, 1], np.int32))
    data, weights = (argument(dims, value=np.ones(dims, np.float32)) for dims in ((1, 2, 2, 2, 1), (3, 3, 3, 1, 1)))
    kernel = REGISTRY["CONV_3D_TRANSPOSE"].kernels[OperandKind.FLOATS]
    assert kernel([shape, weights, data], [], {"padding": 0, **FAR})[0].reshape(-1).tolist() == [1] * 8


@pytest.fixture(scope="module")
def litert() -> Iterator[Fork]:
    pytest.importorskip("ai_edge_litert.interpreter")
    with differential.litert() as fork:
        yield fork


@pytest.mark.parametrize("name", IN_ORDER)
def test_the_host_is_bit_for_bit_litert(name: str, litert: Fork, tmp_path: Path) -> None:
    for number in range(CASES):
        rng = np.random.default_rng([17, number])
        case = differential.DRAWS[name](rng, name)
        inputs = [one for one in case.inputs if one is not None and one.value is None and not one.variable]
        if case.outputs[0].type != F:
            continue
        feeds = [values(rng, one.shape, one.type) if one.feed is None else one.feed for one in inputs]
        feeds = [np.abs(feed) + np.float32(0.01) if name in differential.POSITIVE else feed for feed in feeds]
        try:
            (theirs,) = differential.expected(case, feeds, differential.VERSIONS[0], litert.run)
        except RuntimeError:
            continue  # LiteRT refuses the case
        path = tmp_path / "m.tflite"
        path.write_bytes(differential.content(case, [theirs.shape]))
        compilation = Compilation.create(load(path, ConversionOptions(mapping="delegate", left=LEFT)), [])
        compilation.finish()
        (ours,) = Execution(compilation).run([np.atleast_1d(feed) for feed in feeds]).values()
        assert ours.tobytes() == theirs.tobytes(), case
