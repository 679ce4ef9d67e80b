"""Time each reference kernel beside LiteRT's reference kernel of the same operator, on one thread.

    python scripts/benchmark_kernels.py
    python scripts/benchmark_kernels.py --only CONV_2D --rounds 20

Shapes are those of MobileNet-like networks. Both sides take the input as arrays and give the output as a new array, and
alternate in one run; a ratio below 1 means that nnbridge's reference kernel (the declaration's, not a faster one) takes less
time. The time of LiteRT's ``invoke`` alone stands beside it, without the copies in and out. The ten slowest are listed last.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ai_edge_litert.interpreter import Interpreter, OpResolverType

from nnbridge import load
from nnbridge.compare import random_array
from nnbridge.cpu.executor import Executor
from tests.tflite.files import TfliteBuilder

FLOAT, QUANTISED = "float32", "int8"
_SCALE = {"float32": 0.0, "int8": 0.05, "uint8": 0.05, "int32": 0.0, "bool": 0.0}


@dataclass(frozen=True)
class Shape:
    """An operator on one set of shapes. Constants come as arrays behind the computed inputs, in operator order."""

    operator: str
    inputs: tuple[tuple[int, ...], ...]
    output: tuple[int, ...]
    options: dict[str, Any] = field(default_factory=dict)
    constants: tuple[Any, ...] = ()
    types: tuple[str, ...] = (FLOAT, QUANTISED)
    first: int = 0
    """Position of the first computed input; constants fill the other places."""
    out_scale: float = 0.05
    out_type: str = ""


_BIG, _MIDDLE, _SMALL = (1, 112, 112, 32), (1, 56, 56, 96), (1, 14, 14, 384)


def _window(**more: int) -> dict[str, int]:
    return {"padding": 0, "stride_w": 1, "stride_h": 1, **more}


def _weights(*shape: int) -> tuple[str, tuple[int, ...]]:
    return "weights", shape


SHAPES: tuple[Shape, ...] = (
    Shape("CONV_2D", ((1, 224, 224, 3),), (1, 112, 112, 32), _window(stride_w=2, stride_h=2), (_weights(32, 3, 3, 3),)),
    Shape("CONV_2D", (_BIG,), (1, 112, 112, 16), _window(), (_weights(16, 1, 1, 32),)),
    Shape("CONV_2D", (_SMALL,), (1, 14, 14, 64), _window(), (_weights(64, 1, 1, 384),)),
    Shape("CONV_2D", ((1, 7, 7, 320),), (1, 7, 7, 1280), _window(), (_weights(1280, 1, 1, 320),)),
    Shape("DEPTHWISE_CONV_2D", (_BIG,), _BIG, _window(depth_multiplier=1), (_weights(1, 3, 3, 32),)),
    Shape("DEPTHWISE_CONV_2D", (_SMALL,), _SMALL, _window(depth_multiplier=1), (_weights(1, 3, 3, 384),)),
    Shape("FULLY_CONNECTED", ((1, 1280),), (1, 1001), {}, (_weights(1001, 1280),)),
    Shape("AVERAGE_POOL_2D", ((1, 7, 7, 1280),), (1, 1, 1, 1280), _window(padding=1, filter_width=7, filter_height=7)),
    Shape("MAX_POOL_2D", (_BIG,), (1, 56, 56, 32), _window(stride_w=2, stride_h=2, filter_width=2, filter_height=2)),
    *(Shape(name, (_MIDDLE, _MIDDLE), _MIDDLE, {"fused_activation_function": 0}) for name in ("ADD", "SUB")),
    Shape("MUL", (_MIDDLE, _MIDDLE), _MIDDLE, {"fused_activation_function": 0}),
    Shape("DIV", (_MIDDLE, _MIDDLE), _MIDDLE, {"fused_activation_function": 0}, types=(FLOAT,)),
    *(Shape(name, (_MIDDLE, _MIDDLE), _MIDDLE) for name in ("MAXIMUM", "MINIMUM")),
    *(Shape(name, (_MIDDLE,), _MIDDLE) for name in ("RELU", "RELU6")),
    Shape("LOGISTIC", (_MIDDLE,), _MIDDLE, out_scale=1 / 256),
    Shape("TANH", (_MIDDLE,), _MIDDLE, out_scale=1 / 128),
    Shape("HARD_SWISH", (_MIDDLE,), _MIDDLE),
    *(Shape(name, (_MIDDLE,), _MIDDLE, types=(FLOAT,)) for name in ("ABS", "NEG", "EXP", "FLOOR", "SQRT", "RSQRT")),
    Shape("SOFTMAX", ((1, 1001),), (1, 1001), {"beta": 1.0}, out_scale=1 / 256),
    Shape("LOG_SOFTMAX", ((1, 1001),), (1, 1001), types=(FLOAT,)),
    Shape("RESHAPE", (_SMALL,), (1, 75264), {"new_shape": [1, 75264]}, (np.array([1, 75264], np.int32),)),
    Shape("TRANSPOSE", (_MIDDLE,), (1, 96, 56, 56), {}, (np.array([0, 3, 1, 2], np.int32),)),
    Shape("CONCATENATION", (_SMALL, _SMALL), (1, 14, 14, 768), {"axis": 3}),
    Shape("PAD", (_MIDDLE,), (1, 58, 58, 96), {}, (np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32),)),
    Shape("MEAN", ((1, 7, 7, 1280),), (1, 1280), {"keep_dims": False}, (np.array([1, 2], np.int32),), types=(FLOAT,)),
    Shape("SUM", ((1, 7, 7, 1280),), (1, 1280), {"keep_dims": False}, (np.array([1, 2], np.int32),), types=(FLOAT,)),
    Shape("RESIZE_BILINEAR", ((1, 28, 28, 96),), _MIDDLE, {}, (np.array([56, 56], np.int32),)),
    Shape("RESIZE_NEAREST_NEIGHBOR", ((1, 28, 28, 96),), _MIDDLE, {}, (np.array([56, 56], np.int32),)),
    Shape("SPACE_TO_DEPTH", (_MIDDLE,), (1, 28, 28, 384), {"block_size": 2}),
    Shape("DEPTH_TO_SPACE", (_SMALL,), (1, 28, 28, 96), {"block_size": 2}),
    Shape("L2_NORMALIZATION", ((1, 49, 128),), (1, 49, 128), types=(FLOAT,)),
    Shape(
        "LOCAL_RESPONSE_NORMALIZATION",
        (_SMALL,),
        _SMALL,
        {"radius": 5, "bias": 1.0, "alpha": 0.1, "beta": 0.75},
        types=(FLOAT,),
    ),
    Shape("ARG_MAX", ((1, 1001),), (1,), {"output_type": 2}, (np.array([1], np.int32),), out_type="int32"),
    Shape("SLICE", (_MIDDLE,), (1, 28, 28, 96), {}, (np.array([0, 0, 0, 0], np.int32), np.array([1, 28, 28, 96], np.int32))),
    Shape("TILE", (_SMALL,), (1, 28, 14, 384), {}, (np.array([1, 2, 1, 1], np.int32),), types=(FLOAT,)),
    Shape("QUANTIZE", (_MIDDLE,), _MIDDLE, types=(FLOAT,), out_type="int8"),
    Shape("DEQUANTIZE", (_MIDDLE,), _MIDDLE, types=(QUANTISED,), out_type="float32"),
)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="this operator")
    parser.add_argument("--rounds", type=int, default=11, help="runs of each side (default 11)")
    options = parser.parse_args()
    rows = []
    with threadpool_limits(1), tempfile.TemporaryDirectory() as folder:
        for shape in SHAPES:
            if options.only in (None, shape.operator):
                rows += [_measured(shape, kind, Path(folder), options.rounds) for kind in shape.types]
    table = Table(title=f"Reference kernels, {options.rounds} alternating rounds, one thread, ms")
    for column in ("operator", "type", "shape", "nnbridge", "LiteRT", "invoke", "ratio"):
        table.add_column(column, justify="left" if column in ("operator", "type", "shape") else "right", overflow="fold")
    for name, kind, dims, ours, theirs, invoke in rows:
        table.add_row(name, kind, dims, f"{ours:.3f}", f"{theirs:.3f}", f"{invoke:.3f}", f"{ours / theirs:.2f}")
    console = Console()
    console.print(table)
    slowest = sorted(rows, key=lambda row: -row[3] / row[4])[:10]
    console.print("slowest against LiteRT: " + ", ".join(f"{r[0]} {r[1]} {r[3] / r[4]:.2f}" for r in slowest))


def _measured(shape: Shape, kind: str, folder: Path, rounds: int) -> tuple[str, str, str, float, float, float]:
    path = folder / "operator.tflite"
    path.write_bytes(_file(shape, kind))
    model = load(path)
    executor = Executor(model, kernels="reference")
    rng = np.random.default_rng(0)
    inputs = [np.abs(random_array(rng, np.dtype(kind), dims)) for dims in shape.inputs]
    runtime = Interpreter(model_path=str(path), experimental_op_resolver_type=OpResolverType.BUILTIN_REF, num_threads=1)
    runtime.allocate_tensors()
    places = [detail["index"] for detail in runtime.get_input_details()]
    target = runtime.get_output_details()[0]["index"]

    def answer() -> Any:
        for place, value in zip(places, inputs, strict=True):
            runtime.set_tensor(place, value)
        runtime.invoke()
        return runtime.get_tensor(target)

    sides: tuple[Callable[[], Any], ...] = (lambda: executor.run(inputs), answer, runtime.invoke)
    times: tuple[list[float], ...] = ([], [], [])
    for _ in range(rounds):
        for side, taken in zip(sides, times, strict=True):
            start = time.perf_counter()
            side()
            taken.append((time.perf_counter() - start) * 1e3)
    ours, theirs, invoke = (statistics.median(taken) for taken in times)
    return shape.operator, kind, "x".join(map(str, shape.inputs[0])), ours, theirs, invoke


def _file(shape: Shape, kind: str) -> bytes:
    """A TFLite file with the operator alone."""
    builder, scale = TfliteBuilder(), _SCALE[kind]
    inputs = [builder.tensor(dims, kind, scale=scale) for dims in shape.inputs]
    listed = [*inputs, *(_constant(builder, c, kind) for c in shape.constants)]
    if shape.constants and isinstance(shape.constants[0], tuple):
        listed.append(_bias(builder, shape.constants[0][1], shape.operator, kind))
    out_kind = shape.out_type or kind
    out_scale = shape.out_scale if _SCALE[out_kind] else 0.0
    point = -128 if out_scale == 1 / 256 and out_kind == "int8" else 0
    output = builder.tensor(shape.output, out_kind, scale=out_scale, zero_point=point)
    builder.operator(shape.operator, listed, [output], shape.options)
    return builder.content(inputs, [output])


def _constant(builder: TfliteBuilder, constant: Any, kind: str) -> int:
    if not isinstance(constant, tuple):
        return builder.constant(constant)
    rng = np.random.default_rng(1)
    dims: Sequence[int] = constant[1]
    if kind == FLOAT:
        return builder.constant(rng.normal(size=dims).astype(np.float32))
    return builder.constant(rng.integers(-127, 128, dims).astype(np.int8), scale=0.01)


def _bias(builder: TfliteBuilder, weights: Sequence[int], operator: str, kind: str) -> int:
    count = weights[3] if operator == "DEPTHWISE_CONV_2D" else weights[0]
    if kind == FLOAT:
        return builder.constant(np.zeros(count, np.float32))
    return builder.constant(np.zeros(count, np.int32), scale=float(np.float32(0.05) * np.float32(0.01)))


if __name__ == "__main__":
    main()
