"""Elementwise arithmetic at the edges of numbers, by itself and one operation after another, gives the same on compiled as on
reference kernels: zeros of both signs as divisors, the lowest integer by -1, NaN, infinities, numbers that no type can hold."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from nnbridge.builder import ModelBuilder
from nnbridge.cpu.executor import Executor
from nnbridge.cpu.settings import Tier
from nnbridge.model import Model
from nnbridge.types import OperandCode, OperationCode
from tests.compiled.models import F16, F32, I8, I32, U8

NAN, INF, LOWEST = np.nan, np.inf, -(2**31)
FLOATS = [0.0, -0.0, 1, -1, 0.5, -0.5, 2, -3, 1e-45, -1e-40, 6e-8, 65504, 70000, 3e9, -3e9, 2**31, 1e20, 3.4e38, INF, -INF, NAN]
INTEGERS = [0, 1, -1, 2, -2, 7, -7, 255, 256, LOWEST, LOWEST + 1, 2**31 - 1, 46341, -46341]
TYPES = {"float32": F32, "float16": F16, "int32": I32, "uint8": U8, "int8": I8}
PAIRS, SINGLE = ("ADD", "SUB", "MUL", "DIV"), ("EXP", "LOG", "SQRT", "RSQRT", "SIN", "ABS", "NEG", "FLOOR")
WITHOUT_CODE = ("POW", "MAXIMUM", "MINIMUM", "EQUAL", "LESS", "GREATER_EQUAL", "NOT_EQUAL")
OTHERS = ("RELU", "RELU1", "RELU6", "TANH", "LOGISTIC", "HARD_SWISH")
REALS, QUANTISED = {"float32", "float16"}, {"uint8", "int8"}
SUPPORTED = {
    **{key: {*TYPES} for key in ("ADD", "SUB", "MUL")},
    "DIV": {"float32", "float16", "int32"},
    **dict.fromkeys(SINGLE, REALS),
    **dict.fromkeys(("ABS", "NEG"), REALS | {"int32"}),
    "POW": REALS,
    **{key: {*TYPES} for key in WITHOUT_CODE[1:]},
    **dict.fromkeys(OTHERS, REALS | QUANTISED),
    "CAST": {"float32", "float16", "int32", "uint8"},
    "QUANTIZE": REALS,
}


def drawn(rng: np.random.Generator, name: str, count: int) -> Any:
    """Edges of a type; for quantised ones all numbers."""
    if name in QUANTISED:
        return rng.integers(*((0, 256) if name == "uint8" else (-128, 128)), count).astype(name)
    values = rng.choice(INTEGERS if name == "int32" else FLOATS, count)
    with np.errstate(all="ignore"):
        return values.astype(name)


class EdgesModel:
    """A model that grows by an operation at a time."""

    def __init__(self, rng: np.random.Generator, name: str, count: int) -> None:
        self.rng, self.count, self.builder = rng, count, ModelBuilder("edges")
        self.name, self.last = name, self.operand(name)
        self.inputs, self.values = [self.last], [drawn(rng, name, count)]
        self.results: list[int] = []

    def operand(self, name: str, kind: OperandCode | None = None) -> int:
        scale, point = {"uint8": (0.5, 3), "int8": (0.25, -7)}.get("" if kind else name, (0.0, 0))
        return self.builder.add_operand(kind or TYPES[name], (self.count,), scale=scale, zero_point=point)

    def number(self, value: int) -> int:
        found = self.builder.add_operand(OperandCode.INT32)
        self.builder.set_operand_value(found, value)
        return found

    def another(self) -> int:
        """A second operand: an input, a constant, or the same again."""
        how = self.rng.integers(3)
        if how == 0:
            return self.last
        found, values = self.operand(self.name), drawn(self.rng, self.name, self.count)
        if how == 1:
            self.builder.set_operand_value(found, values)
        else:
            self.inputs.append(found)
            self.values.append(values)
        return found

    def add(self, operation: str) -> None:
        """One more operation of the last result; what has another type ends the chain."""
        operands, name, kind = [self.last], self.name, None
        if operation in PAIRS:
            operands += [self.another(), self.number(int(self.rng.integers(4)) if name != "int32" else 0)]
        elif operation in WITHOUT_CODE:
            operands.append(self.another())
            kind = OperandCode.TENSOR_BOOL8 if operation not in ("POW", "MAXIMUM", "MINIMUM") else None
        elif operation == "CAST":
            name = str(self.rng.choice(["float32", "float16", "int32", "uint8"]))
        elif operation == "QUANTIZE":
            name = str(self.rng.choice(["uint8", "int8"]))
        fixed = {("TANH", "uint8"): (1 / 128, 128), ("TANH", "int8"): (1 / 128, 0), ("LOGISTIC", "uint8"): (1 / 256, 0),
                 ("LOGISTIC", "int8"): (1 / 256, -128)}.get((operation, name))  # fmt: skip
        if fixed is not None:
            result = self.builder.add_operand(TYPES[name], (self.count,), scale=fixed[0], zero_point=fixed[1])
        else:
            result = self.operand(name, kind)
        self.builder.add_operation(OperationCode[operation], operands, [result])
        self.last, self.name = result, "" if kind is not None or fixed is not None else name
        self.results.append(result)

    def finished(self) -> Model:
        """The model, whose outputs are all results."""
        self.builder.identify_inputs_and_outputs(self.inputs, self.results)
        return self.builder.finish()


def cases(first: int, count: int) -> Iterator[tuple[int, list[str], Model, list[Any]]]:
    for seed in range(first, first + count):
        rng = np.random.default_rng(seed)
        drawing = EdgesModel(rng, str(rng.choice(list(TYPES))), int(rng.choice([1, 3, 8, 17, 64])))
        names: list[str] = []
        for _ in range(int(rng.integers(1, 4))):
            fitting = sorted(operation for operation, types in SUPPORTED.items() if drawing.name in types)
            if not fitting:
                break
            # Every other one is a division, a power or a root.
            sharp = [name for name in ("DIV", "POW", "LOG", "SQRT", "RSQRT", "CAST", "QUANTIZE") if name in fitting]
            names.append(str(rng.choice(sharp if sharp and rng.integers(2) else fitting)))
            drawing.add(names[-1])
        yield seed, [str(drawing.count), *names], drawing.finished(), drawing.values


def differing(model: Model, values: list[Any]) -> list[str]:
    """The outputs that differ between the tiers, in a word each."""
    answers = []
    for tier in (Tier.REFERENCE, Tier.COMPILED):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            answers.append([found.value for found in Executor(model, kernels=tier).run([one.copy() for one in values])])
    wrong = []
    for position, (expected, found) in enumerate(zip(*answers, strict=True)):
        if expected.dtype.kind == "f":
            steps = np.finfo(expected.dtype).eps * np.abs(np.where(np.isfinite(expected), expected, 1)) * 4
            with np.errstate(all="ignore"):
                near = np.isclose(found, expected, rtol=0, atol=0, equal_nan=True) | (np.abs(found - expected) <= steps)
        else:
            near = found == expected
        if not near.all():
            at = int(np.argmin(near))
            wrong.append(f"output {position} [{at}]: {found[at]!r}, expected {expected[at]!r}")
    return wrong


@pytest.mark.parametrize("part", range(8))
def test_edges_are_the_same_in_all_tiers(part: int) -> None:
    found = [
        f"{seed} {names}: {wrong}" for seed, names, model, values in cases(part * 25, 25) if (wrong := differing(model, values))
    ]
    assert not found, "\n".join(found)
