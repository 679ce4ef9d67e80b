"""The host's floats: sums in TFLite's order, the C library's functions, bit for bit LiteRT's reference kernels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from nnbridge import Compilation, Execution
from nnbridge.converters import ConversionOptions
from nnbridge.errors import Reason
from nnbridge.loading import load
from nnbridge_tflite.declaration import REGISTRY
from nnbridge_tflite.host.ordered import EXP, dots, total
from tests.differential import Fork
from tests.tflite import differential
from tests.tflite.drawing import F, values
from tests.tflite.files import TfliteBuilder

LEFT = {0: Reason("a device that accepts it", "none")}
IN_ORDER = sorted(name for name in differential.DRAWS if (declared := REGISTRY.get(name)) is not None and declared.floats)
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


def test_weights_that_are_no_numbers_are_computed_as_before(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    x, y = builder.tensor((1, 1, 1, 1), name="x"), builder.tensor((1, 1, 1, 1), name="y")
    weights = builder.constant(np.full((1, 1, 1, 1), np.inf), "float32")
    builder.operator("CONV_2D", [x, weights, -1], [y], {"padding": 0, "stride_w": 1, "stride_h": 1})
    model = load(builder.write(tmp_path / "m.tflite", [x], [y]), ConversionOptions(mapping="delegate", left=LEFT))
    compilation = Compilation.create(model, [])
    compilation.finish()
    assert Execution(compilation).run([np.ones((1, 1, 1, 1), np.float32)])["y"].item() == np.inf


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
