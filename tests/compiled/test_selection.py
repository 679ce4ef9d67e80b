"""Picking by index and by value, compiled against the reference kernels, with every instruction set."""

from __future__ import annotations

import numpy as np
import pytest

from nnbridge import Compilation, Execution
from nnbridge.cpu.compiled.instructions import InstructionSet
from nnbridge.errors import OpFailedError
from nnbridge.types import OperandCode, OperationCode
from tests.compiled.hybrid import Hybrid
from tests.compiled.models import F32, I8, I32, U8, Tensor, assert_same, check, model_of, random_data

BOOL = OperandCode.TENSOR_BOOL8
KINDS = [F32, U8, I8]
COMPARISONS = [OperationCode[name] for name in ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")]


def of_kind(kind: OperandCode, dims: tuple[int, ...], scale: float = 0.1, point: int = 3) -> Tensor:
    return Tensor(kind, dims) if kind in (F32, I32, BOOL) else Tensor(kind, dims, scale, point)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather(isa: InstructionSet, kind: OperandCode, axis: int) -> None:
    rng = np.random.default_rng(axis + 5)
    dims = (3, 7, 5)
    indices = Tensor(I32, (2, 4), value=rng.integers(0, dims[axis], (2, 4)).astype(np.int32))
    at = axis % 3
    out = of_kind(kind, (*dims[:at], 2, 4, *dims[at + 1 :]))
    check(model_of(OperationCode.GATHER, [of_kind(kind, dims), axis, indices], [out]), isa, rng)


@pytest.mark.parametrize(("indices", "found"), [([0, 4, 7, 5], 7), ([0, -3, 9, -1], -3)])
def test_gather_refuses_indexes_like_the_reference_kernel(indices: list[int], found: int) -> None:
    model = model_of(OperationCode.GATHER, [Tensor(F32, (5, 2)), 0, Tensor(I32, (4,))], [Tensor(F32, (4, 2))])
    x, texts = np.arange(10, dtype=np.float32).reshape(5, 2), set()
    for kernels in ("compiled", "reference"):
        compilation = Compilation.create(model, [], kernels=kernels)
        compilation.finish()
        with pytest.raises(OpFailedError, match=f"indexes from 0 to 4, found {found}") as refused:
            Execution(compilation).run([x, np.array(indices, np.int32)])
        texts.add(str(refused.value))
        # What was refused is forgotten.
        good = np.array([4, 0, 1, 1], np.int32)
        np.testing.assert_array_equal(next(iter(Execution(compilation).run([x, good]).values())), x[good])
    assert len(texts) == 1


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("code", [OperationCode.ARGMAX, OperationCode.ARGMIN])
def test_arg_extremes_stand_first(isa: InstructionSet, kind: OperandCode, code: OperationCode) -> None:
    rng = np.random.default_rng(3)
    for dims, axis in (((2, 9, 19), 1), ((3, 300), 1), ((17, 2, 3), 0), ((5,), 0)):
        out = Tensor(I32, (*dims[:axis], *dims[axis + 1 :]) or (1,))
        hybrid = Hybrid(model_of(code, [of_kind(kind, dims), axis], [out]), isa)
        assert not hybrid.plan.left
        for step in range(3):
            x = random_data(rng, kind, dims)
            if kind == F32:
                x = np.round(x)
                x.reshape(-1)[:: 7 - step] = np.nan if step else 0.0
            np.testing.assert_array_equal(hybrid.run([x])[0], hybrid.reference([x])[0])


@pytest.mark.parametrize(("code", "expected"), [(OperationCode.ARGMAX, [2, 0, 1]), (OperationCode.ARGMIN, [3, 0, 0])])
def test_what_is_not_a_number_is_an_extreme_only_where_it_comes_first(
    isa: InstructionSet, code: OperationCode, expected: list[int]
) -> None:
    x = np.float32([[1, np.nan, 2, 0], [np.nan, 3, 2, 0], [1, 3, 2, np.nan]])
    assert Hybrid(model_of(code, [Tensor(F32, (3, 4)), 1], [Tensor(I32, (3,))]), isa).run([x])[0].tolist() == expected


@pytest.mark.parametrize("code", COMPARISONS, ids=lambda code: code.name)
def test_comparisons(isa: InstructionSet, code: OperationCode) -> None:
    rng = np.random.default_rng(11)
    for kind in (F32, I32, U8):
        first, second = of_kind(kind, (3, 1, 21)), of_kind(kind, (2, 21) if kind == U8 else (1, 2, 1), 0.2, 100)
        hybrid = Hybrid(model_of(code, [first, second], [Tensor(BOOL, (3, 2, 21))]), isa)
        assert not hybrid.plan.left
        sides = [np.round(rng.normal(size=t.dims) * 3) for t in (first, second)]
        if kind == F32:
            sides[0].reshape(-1)[::5] = np.nan
            inputs = [side.astype(np.float32) for side in sides]
        else:
            inputs = [(np.nan_to_num(side) + 50).astype(np.int32 if kind == I32 else np.uint8) for side in sides]
        assert_same(hybrid.run(inputs)[0], hybrid.reference(inputs)[0])


@pytest.mark.parametrize("kind", [*KINDS, I32], ids=lambda kind: kind.name)
def test_select_and_logic(isa: InstructionSet, kind: OperandCode) -> None:
    rng, dims = np.random.default_rng(2), (3, 29)
    condition, other = (rng.integers(0, 2, dims).astype(np.bool_) for _ in range(2))
    x = of_kind(kind, dims)
    sides = [rng.integers(0, 100, dims).astype({F32: "f4", U8: "u1", I8: "i1", I32: "i4"}[kind]) for _ in range(2)]
    cases = [
        (model_of(OperationCode.SELECT, [Tensor(BOOL, dims), x, x], [x]), [condition, *sides]),
        (model_of(OperationCode.LOGICAL_NOT, [Tensor(BOOL, dims)], [Tensor(BOOL, dims)]), [condition]),
        (model_of(OperationCode.LOGICAL_AND, [Tensor(BOOL, dims)] * 2, [Tensor(BOOL, dims)]), [condition, other]),
        (model_of(OperationCode.LOGICAL_OR, [Tensor(BOOL, dims)] * 2, [Tensor(BOOL, dims)]), [condition, other]),
    ]
    for model, inputs in cases:
        hybrid = Hybrid(model, isa)
        assert not hybrid.plan.left
        np.testing.assert_array_equal(hybrid.run(inputs)[0], hybrid.reference(inputs)[0])


def test_logarithms_of_all_magnitudes(isa: InstructionSet) -> None:
    """Zero, the smallest numbers, infinity, what has no logarithm; between them every power of 2 and its neighbours."""
    powers = np.ldexp(np.float32(1), np.arange(-149, 128)).astype(np.float32)
    edges = np.array([0, -0.0, -1, np.inf, -np.inf, np.nan, 3.4e38, 1e-45, 0.70710677, 0.7071068], np.float32)
    x = np.concatenate([powers, np.nextafter(powers, np.float32(0)), powers * np.float32(1.37), edges])
    hybrid = Hybrid(model_of(OperationCode.LOG, [Tensor(F32, x.shape)], [Tensor(F32, x.shape)]), isa)
    assert not hybrid.plan.left
    assert_same(hybrid.run([x])[0], hybrid.reference([x])[0])
