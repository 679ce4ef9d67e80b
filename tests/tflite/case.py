"""A single-operator file: what a case says of it, and how it is written for an element type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.tflite.files import TfliteBuilder

F, U8, I8, I16, I32, I64, B = "float32", "uint8", "int8", "int16", "int32", "int64", "bool"
QUANT8 = (U8, I8)
REAL = (F, U8, I8)
SAME = "same"
"""Output parameters are the first input's."""

_PARAMETERS = {U8: ((0.05, 120), (0.11, 130)), I8: ((0.05, -8), (0.11, 2)), I16: ((0.001, 0), (0.002, 0))}
SIGMOID = {U8: (1 / 256, 0), I8: (1 / 256, -128), I16: (1 / 32768, 0)}
TANH = {U8: (1 / 128, 128), I8: (1 / 128, 0), I16: (1 / 32768, 0)}


@dataclass(frozen=True)
class C:
    """A constant input; ``like`` gives it the type of the data and random values."""

    values: Any
    dtype: str = I32


@dataclass(frozen=True)
class W:
    """Constant random weights of a shape: float, or 8-bit with one scale or one for each index of ``axis``."""

    shape: tuple[int, ...]
    axis: int | None = None


@dataclass(frozen=True)
class Bias:
    """A constant bias of ``units``: float, or int32 with the product of the scales."""

    units: int
    axis: bool = False


@dataclass(frozen=True)
class Case:
    """One operator with one list of operands, for several element types."""

    operator: str
    inputs: Sequence[Any]
    """Shapes of data, or C, W, Bias, or None for an omitted input."""
    outputs: Sequence[Any]
    """Shapes; ``(shape, type)`` where the type is not the data's."""
    options: dict[str, Any] | None = None
    types: Sequence[str] = (F,)
    mapping: str = "delegate"
    parameters: Any = None
    """SAME, or a table type → (scale, zero point), for 8-bit outputs."""
    tolerance: float = 1e-5
    """Of floats, as a share of the range; integers may be ``steps`` off unless ``exact``."""
    steps: int = 1
    exact: bool = False
    version: int = 1
    variant: str = ""
    kernels: str = "BUILTIN_REF"
    """LiteRT's kernels; the reference kernel of local response normalisation leaves out the window's last element."""
    host: Sequence[str] = field(default=())
    """Types that only the host computes."""

    def place(self, type: str) -> str:
        """The mapping of the operator for an element type."""
        return "host" if type in self.host else self.mapping

    def write(self, folder: Path, type: str) -> Path:
        """The file for one element type."""
        builder = TfliteBuilder()
        return builder.write(folder / f"{self.operator}_{type}.tflite", *self.add(builder, type))

    def add(self, builder: TfliteBuilder, type: str) -> tuple[list[int], list[int]]:
        """Add the operator with operands of its own to a file; its computed inputs and its outputs."""
        rng = np.random.default_rng(7)
        scale, point = _PARAMETERS.get(type, ((0.0, 0),))[0]
        data: list[int] = []
        indexes: list[int] = []
        for spec in self.inputs:
            if spec is None:
                indexes.append(-1)
            elif isinstance(spec, C):
                indexes.append(self._constant(builder, spec, type, scale, point, rng))
            elif isinstance(spec, W):
                indexes.append(_weights(builder, spec, type, rng))
            elif isinstance(spec, Bias):
                indexes.append(_bias(builder, spec, type, scale, rng))
            else:
                shape, own = spec if spec and isinstance(spec[-1], str) else (spec, type)
                quantised = {"scale": scale, "zero_point": point} if own in _PARAMETERS else {}
                indexes.append(builder.tensor(shape, own, **quantised))
                data.append(indexes[-1])
        outputs = [self._output(builder, spec, type, (scale, point)) for spec in self.outputs]
        builder.operator(self.operator, indexes, outputs, self.options, self.version)
        return data, outputs

    def _constant(self, builder: TfliteBuilder, spec: C, type: str, scale: float, point: int, rng: np.random.Generator) -> int:
        if spec.dtype != "like":
            return builder.constant(spec.values, spec.dtype)
        if type in _PARAMETERS:
            info = np.iinfo(type)
            return builder.constant(rng.integers(info.min, info.max, spec.values), type, scale=scale, zero_point=point)
        return builder.constant(rng.standard_normal(spec.values) if type == F else rng.integers(1, 9, spec.values), type)

    def _output(self, builder: TfliteBuilder, spec: Any, type: str, data: tuple[float, int]) -> int:
        shape, own = spec if spec and isinstance(spec[-1], str) else (spec, type)
        if own not in _PARAMETERS:
            return builder.tensor(shape, own)
        chosen = _PARAMETERS[own][1]
        if self.parameters == SAME:
            chosen = data
        elif self.parameters is not None:
            chosen = self.parameters[own]
        return builder.tensor(shape, own, scale=chosen[0], zero_point=chosen[1])


def _weights(builder: TfliteBuilder, spec: W, type: str, rng: np.random.Generator) -> int:
    if type == F:
        return builder.constant(rng.standard_normal(spec.shape), F)
    if type == U8:
        return builder.constant(rng.integers(0, 256, spec.shape), U8, scale=0.01, zero_point=128)
    values = rng.integers(-127, 128, spec.shape)
    if spec.axis is None:
        return builder.constant(values, I8, scale=0.01)
    scales = np.linspace(0.005, 0.02, spec.shape[spec.axis])
    return builder.constant(values, I8, scale=scales, axis=spec.axis)


def _bias(builder: TfliteBuilder, spec: Bias, type: str, scale: float, rng: np.random.Generator) -> int:
    if type == F:
        return builder.constant(rng.standard_normal(spec.units), F)
    values = rng.integers(-500, 500, spec.units)
    dtype = I64 if type == I16 else I32
    if not spec.axis:
        return builder.constant(values, dtype, scale=float(np.float32(scale) * np.float32(0.01)))
    return builder.constant(values, dtype, scale=scale * np.linspace(0.005, 0.02, spec.units))
