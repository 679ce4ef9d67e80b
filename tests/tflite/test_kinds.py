"""Element types and quantisations without a kernel in LiteRT: refused by LiteRT, and by the host."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert")

from nnbridge_tflite.declaration import REGISTRY
from nnbridge_tflite.host.kinds import _MISSING
from tests.differential import Failure, Fork, computed
from tests.tflite.differential import VERSIONS, content, expected, litert
from tests.tflite.drawing import Case, Tensor, tensor, values
from tests.tflite.drawing_more import DRAWS
from tests.tflite.drawing_varied import OF_WEIGHTS, OTHER_TYPES, _type_of_data

WRITTEN = {(one.name, type.lower()): (scale, point or 0) for one in REGISTRY for type, (scale, point) in one.written.items()}
"""(operator, type) -> the scale and a zero point that its kernel writes."""
DRAWN = 6
INTEGERS = ("uint8", "int8", "int16")
TYPES = (*INTEGERS, "float16")


@pytest.fixture(scope="module")
def runtime() -> Iterator[Fork]:
    with litert() as fork:
        yield fork


def retyped(number: int, operator: str, type: str) -> Case:
    """A drawn case whose data are of another type."""
    rng = np.random.default_rng([5, number])
    case = DRAWS[operator](rng, operator)
    before, model = _type_of_data(rng, case), tensor(rng, (), type)
    for one in (*case.inputs, *(case.outputs if operator not in OTHER_TYPES else [])):
        if one is not None and one.type == before != type:
            one.type, one.scale, one.zero_point = type, model.scale, 0 if operator in OF_WEIGHTS else model.zero_point
            one.value, one.feed = (None if array is None else np.asarray(array).astype(type) for array in (one.value, one.feed))
    return case


def fed(case: Case, number: int) -> list[Any]:
    given = {id(one): one for one in case.inputs if one is not None and one.value is None and not one.variable}
    rng = np.random.default_rng([6, number])
    return [np.abs(values(rng, one.shape, one.type)) if one.feed is None else one.feed for one in given.values()]


def both(case: Case, feeds: list[Any], runtime: Fork, folder: Path) -> tuple[bool, bool, str]:
    """The results of LiteRT and of the host for a case: whether each runs it, and how it is mapped."""
    try:
        expected(case, feeds, VERSIONS[0], runtime.run)
        theirs = True
    except RuntimeError:
        theirs = False
    path = folder / "case.tflite"
    path.write_bytes(content(case, [one.shape or (1,) for one in case.outputs]))
    try:
        _, placed = computed(path, "delegate", feeds)
    except Failure:
        return theirs, False, ""
    return theirs, True, str(placed[0].mapping)


@pytest.mark.parametrize(("operator", "type"), sorted(_MISSING))
def test_a_type_without_a_kernel_is_refused_as_by_litert(operator: str, type: str, runtime: Fork, tmp_path: Path) -> None:
    for number in range(DRAWN):
        case = retyped(number, operator, type)
        theirs, ours, mapping = both(case, fed(case, number), runtime, tmp_path)
        assert not theirs
        assert not ours or mapping == "delegate"  # NNAPI computes RSQRT of uint8.


@pytest.mark.parametrize("operator", ["ADD", "MUL", "MAXIMUM", "MINIMUM", "PRELU", "GELU", "LOGISTIC", "TANH", "RESHAPE"])
@pytest.mark.parametrize("type", TYPES)
def test_a_type_with_a_kernel_is_computed(operator: str, type: str, runtime: Fork, tmp_path: Path) -> None:
    for number in range(DRAWN):
        case = retyped(number, operator, type)
        if (operator, type) in WRITTEN:
            case.outputs[0].scale, case.outputs[0].zero_point = WRITTEN[operator, type]
        theirs, ours, _ = both(case, fed(case, number), runtime, tmp_path)
        assert ours or not theirs


@pytest.mark.parametrize(("operator", "type"), sorted(WRITTEN))
def test_an_output_of_another_scale_is_refused_as_by_litert(operator: str, type: str, runtime: Fork, tmp_path: Path) -> None:
    scale, point = WRITTEN[operator, type]
    for factor, right in ((1, True), (2, False), (0.5, False), (3.3, False), (40, False), (0.01, False)):
        case = Case(operator, [Tensor((1, 4), type, 0.02)], [Tensor((1, 4), type, scale * factor, point)])
        case.options = {"beta": 1.0} if operator == "SOFTMAX" else {}
        theirs, ours, _ = both(case, [np.array([[1, 20, 5, 90]], type)], runtime, tmp_path)
        assert (theirs, ours) == (right, right)


@pytest.mark.parametrize("type", ["int8", "int16"])
@pytest.mark.parametrize(("operator", "mapping"), [("SQRT", "host"), ("RSQRT", "host")])
@pytest.mark.parametrize(("numbers", "right"), [([0, 1, 4], True), ([1, 2, 3], True), ([1, -1, 2], False), ([-100, 3, 3], False)])
def test_roots_of_numbers_below_0_are_refused_as_by_litert(
    operator: str, mapping: str, type: str, numbers: list[int], right: bool, runtime: Fork, tmp_path: Path
) -> None:
    case = Case(operator, [Tensor((3,), type, 0.05)], [Tensor((3,), type, 0.05)])
    theirs, ours, found = both(case, [np.array(numbers, type)], runtime, tmp_path)
    assert theirs == right
    assert ours == right or found != mapping  # NNAPI computes RSQRT of int8.


@pytest.mark.parametrize(
    ("operator", "type", "quotients"),
    [
        ("DIV", "int32", [2147483647, -1073741824, 1073741824, 3, -3]),
        ("FLOOR_DIV", "int32", [-2147483648, -1073741824, 1073741824, 3, -4]),
        ("FLOOR_DIV", "int16", [-32768, -16384, 16384, 3, -4]),
        ("FLOOR_DIV", "int8", [-128, -64, 64, 3, -4]),
        ("FLOOR_MOD", "int32", [0, 0, 0, 1, 1]),
        ("FLOOR_MOD", "int64", [0, 0, 0, 1, 1]),
        ("FLOOR_MOD", "int16", [0, 0, 0, 1, 1]),
        ("FLOOR_MOD", "int8", [0, 0, 0, 1, 1]),
    ],
)
@pytest.mark.parametrize("mapping", ["delegate", "wide"])
def test_the_lowest_integer_is_divided(operator: str, type: str, quotients: list[int], mapping: str, tmp_path: Path) -> None:
    # DIV and FLOOR_DIV are LiteRT 2.3.0's; FLOOR_MOD of int32 and int64 ends LiteRT's process.
    operands = [np.array(numbers, type) for numbers in ([np.iinfo(type).min] * 3 + [7, -7], [-1, 2, -2, 2, 2])]
    case = Case(operator, [Tensor((5,), type), Tensor((5,), type)], [Tensor((5,), type)], {"fused_activation_function": 0})
    case.options = {} if operator != "DIV" else case.options
    (tmp_path / "m.tflite").write_bytes(content(case, [(5,)]))
    ((found,), _) = computed(tmp_path / "m.tflite", mapping, operands)
    assert found.tolist() == quotients
