"""Time each reference kernel beside LiteRT's reference kernel of the same operator, on one thread.

    python scripts/benchmarks/benchmark_kernels.py
    python scripts/benchmarks/benchmark_kernels.py --only CONV_2D --rounds 21

The first table is of tensors as MobileNets have them, from the first feature map to the row of classes and SSD's detections; the
second of tensors of other networks. Both sides take the inputs as arrays and give the output as a new array, and alternate in
one run; each round runs a side for at least a millisecond. ``kernel`` is the declaration's reference kernel, prepared
as the executor prepares it; ``executor`` is a run of the model of this one operation, with all that surrounds the
kernel. ``ratio`` is kernel to LiteRT, below 1 where nnbridge takes less time, and ``run`` executor to LiteRT. The time of
LiteRT's ``invoke`` alone stands beside them, without the copies in and out. Below each table stand the ten slowest rows, and the
operators whose rows take longer than LiteRT's on the whole (by the geometric mean).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from flatbuffers import flexbuffers
from rich.box import SIMPLE
from rich.console import Console
from rich.progress import track
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import one_line_errors

from nnbridge import load
from nnbridge.compare import random_array
from nnbridge.cpu.executor import Executor
from nnbridge.cpu.settings import Tier
from nnbridge.model import Model, Operand
from nnbridge.operations import definition
from nnbridge.operations.call import Arg
from nnbridge.operations.evaluate import make_call, prepare, resolve, run_kernel
from nnbridge.operations.kernels import InPlace
from nnbridge.types import TYPE_FACTS, Lifetime, OperationCode, operation_name
from tests.tflite.case import I8, I32, SAME, SIGMOID, TANH, B, Bias, C, Case, F, W
from tests.tflite.files import TfliteBuilder

with one_line_errors():
    from ai_edge_litert.interpreter import Interpreter, OpResolverType
    from threadpoolctl import threadpool_limits


class Timed(Protocol):
    """An operator to time, and how its file is written for an element type."""

    @property
    def operator(self) -> str: ...
    @property
    def types(self) -> Sequence[str]: ...
    def write(self, folder: Path, type: str) -> Path: ...


_SECONDS = 1e-3
"""Least time of a side in a round."""

_BIG, _MIDDLE, _SMALL, _LAST = (1, 112, 112, 32), (1, 56, 56, 96), (1, 14, 14, 384), (1, 7, 7, 1280)
_CLASSES, _GATE = (1, 1001), (1, 1, 1, 960)
_BOTH = (F, I8)
_NONE = {"fused_activation_function": 0}
_CONV = {**_NONE, "padding": 0, "stride_w": 1, "stride_h": 1, "dilation_w_factor": 1, "dilation_h_factor": 1}
_POOL = {**_NONE, "padding": 0, "stride_w": 2, "stride_h": 2, "filter_width": 2, "filter_height": 2}
_HALVES = {"stride_w": 2, "stride_h": 2}
_COMPARISONS = ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")


def _alike(name: str, count: int, options: Any, types: tuple[str, ...], dims: tuple[int, ...] = _MIDDLE, **more: Any) -> Case:
    """An element-wise operator."""
    return Case(name, [dims] * count, [dims], options, types, **more)


def _products() -> list[Case]:
    def convolution(dims: tuple[int, ...], weights: tuple[int, ...], out: tuple[int, ...], **more: Any) -> Case:
        return Case("CONV_2D", [dims, W(weights), Bias(weights[0])], [out], {**_CONV, **more}, _BOTH)

    def depthwise(dims: tuple[int, ...]) -> Case:
        options = {**_CONV, "depth_multiplier": 1}
        return Case("DEPTHWISE_CONV_2D", [dims, W((1, 3, 3, dims[3])), Bias(dims[3])], [dims], options, _BOTH)

    up, wide = {"padding": 0, **_HALVES}, {**_POOL, "padding": 1, "filter_width": 7, "filter_height": 7}
    return [
        convolution((1, 224, 224, 3), (32, 3, 3, 3), _BIG, **_HALVES),
        convolution(_BIG, (16, 1, 1, 32), (1, 112, 112, 16)),
        convolution(_SMALL, (64, 1, 1, 384), (1, 14, 14, 64)),
        convolution((1, 7, 7, 320), (1280, 1, 1, 320), _LAST),
        convolution(_SMALL, (384, 3, 3, 48), _SMALL),
        depthwise(_BIG),
        depthwise(_SMALL),
        Case("TRANSPOSE_CONV", [C([1, 28, 28, 64]), W((64, 2, 2, 96)), (1, 14, 14, 96)], [(1, 28, 28, 64)], up, _BOTH),
        Case("FULLY_CONNECTED", [(1, 1280), W((1001, 1280)), Bias(1001)], [_CLASSES], _NONE, _BOTH),
        Case("AVERAGE_POOL_2D", [_LAST], [(1, 1, 1, 1280)], wide, _BOTH, parameters=SAME),
        Case("AVERAGE_POOL_2D", [_BIG], [(1, 56, 56, 32)], _POOL, _BOTH, parameters=SAME),
        Case("MAX_POOL_2D", [_BIG], [(1, 56, 56, 32)], _POOL, _BOTH, parameters=SAME),
        Case("L2_POOL_2D", [_BIG], [(1, 56, 56, 32)], _POOL),
    ]


def _elements() -> list[Case]:
    return [
        *(_alike(name, 2, _NONE, _BOTH) for name in ("ADD", "SUB", "MUL")),
        Case("ADD", [_SMALL, _SMALL], [_SMALL], _NONE, _BOTH),
        Case("MUL", [_MIDDLE, (1, 1, 1, 96)], [_MIDDLE], _NONE, _BOTH, variant="gate"),
        _alike("DIV", 2, _NONE, (F,)),
        _alike("POW", 2, {}, (F,), _SMALL),
        *(_alike(name, 2, {}, _BOTH, parameters=SAME) for name in ("MAXIMUM", "MINIMUM")),
        *(Case(name, [_MIDDLE, _MIDDLE], [(_MIDDLE, B)], {}, _BOTH) for name in _COMPARISONS),
        *(_alike(name, 2, {}, (B,)) for name in ("LOGICAL_AND", "LOGICAL_OR")),
        _alike("LOGICAL_NOT", 1, {}, (B,)),
        Case("SELECT", [(_MIDDLE, B), _MIDDLE, _MIDDLE], [_MIDDLE], {}, _BOTH, parameters=SAME),
        *(_alike(name, 1, None, _BOTH, parameters=SAME) for name in ("RELU", "RELU6", "RELU_N1_TO_1")),
        Case("PRELU", [_MIDDLE, W((1, 1, 96))], [_MIDDLE], None, _BOTH),
        *(_alike("LOGISTIC", 1, None, _BOTH, dims, parameters=SIGMOID) for dims in (_MIDDLE, _GATE)),
        _alike("TANH", 1, None, _BOTH, parameters=TANH),
        *(_alike("HARD_SWISH", 1, {}, _BOTH, dims) for dims in (_MIDDLE, _SMALL, (1, 1, 1, 1280))),
        *(_alike(name, 1, {}, (F,)) for name in ("ABS", "NEG", "EXP")),
        *(_alike(name, 1, None, (F,)) for name in ("FLOOR", "SQRT", "RSQRT", "LOG", "SIN")),
        Case("SOFTMAX", [_CLASSES], [_CLASSES], {"beta": 1.0}, _BOTH, parameters=SIGMOID),
        Case("LOG_SOFTMAX", [_CLASSES], [_CLASSES], {}),
        _alike("L2_NORMALIZATION", 1, _NONE, _BOTH, parameters=TANH),
        _alike("LOCAL_RESPONSE_NORMALIZATION", 1, {"radius": 5, "bias": 1.0, "alpha": 0.1, "beta": 0.75}, (F,), _SMALL),
        Case("QUANTIZE", [_MIDDLE], [(_MIDDLE, I8)], {}),
        Case("DEQUANTIZE", [_MIDDLE], [(_MIDDLE, F)], {}, (I8,)),
        Case("CAST", [_MIDDLE], [(_MIDDLE, I32)], {"in_data_type": 0, "out_data_type": 2}),
    ]


def _moves() -> list[Case]:
    def moved(name: str, inputs: Any, output: tuple[int, ...], options: Any = None, types: tuple[str, ...] = _BOTH) -> Case:
        return Case(name, inputs, [output], {} if options is None else options, types, parameters=SAME)

    image, border = (1, 28, 28, 96), [[0, 0], [1, 1], [1, 1], [0, 0]]
    strided = dict.fromkeys(("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0)
    return [
        moved("RESHAPE", [_SMALL, C([1, 75264])], (1, 75264), {"new_shape": [1, 75264]}),
        moved("SQUEEZE", [(1, 1, 1, 1280)], (1, 1280), {"squeeze_dims": [1, 2]}),
        moved("EXPAND_DIMS", [(196, 384), C(0)], (1, 196, 384)),
        moved("TRANSPOSE", [_MIDDLE, C([0, 3, 1, 2])], (1, 96, 56, 56)),
        moved("CONCATENATION", [_SMALL, _SMALL], (1, 14, 14, 768), {**_NONE, "axis": 3}),
        Case("SPLIT", [C(3), _SMALL], [(1, 14, 14, 192)] * 2, {"num_splits": 2}, _BOTH, parameters=SAME),
        moved("PACK", [(196, 384), (196, 384)], (196, 384, 2), {"values_count": 2, "axis": -1}),
        moved("TILE", [_SMALL, C([1, 2, 1, 1])], (1, 28, 14, 384), types=(F,)),
        moved("PAD", [_MIDDLE, C(border)], (1, 58, 58, 96)),
        moved("PADV2", [_MIDDLE, C(border), C((), "like")], (1, 58, 58, 96)),
        moved("MIRROR_PAD", [_MIDDLE, C(border)], (1, 58, 58, 96), {"mode": 0}, (F,)),
        moved("SLICE", [_MIDDLE, C([0, 0, 0, 0]), C([1, 28, 28, 96])], image),
        moved("STRIDED_SLICE", [_MIDDLE, C([0, 0, 0, 0]), C([1, 56, 56, 96]), C([1, 2, 2, 1])], image, strided),
        moved("REVERSE_V2", [_MIDDLE, C([2])], _MIDDLE, types=(F,)),
        moved("SPACE_TO_DEPTH", [_MIDDLE], (1, 28, 28, 384), {"block_size": 2}),
        moved("DEPTH_TO_SPACE", [_SMALL], image, {"block_size": 2}),
        moved("SPACE_TO_BATCH_ND", [_MIDDLE, C([2, 2]), C([[0, 0], [0, 0]])], (4, 28, 28, 96)),
        moved("BATCH_TO_SPACE_ND", [(4, 28, 28, 96), C([2, 2]), C([[0, 0], [0, 0]])], _MIDDLE),
        moved("RESIZE_BILINEAR", [image, C([56, 56])], _MIDDLE, {"align_corners": False, "half_pixel_centers": False}),
        moved("RESIZE_BILINEAR", [image, C([56, 56])], _MIDDLE, {"align_corners": False, "half_pixel_centers": True}),
        moved("RESIZE_NEAREST_NEIGHBOR", [image, C([56, 56])], _MIDDLE),
        *(moved(name, [_LAST, C([1, 2])], (1, 1280), {"keep_dims": False}) for name in ("MEAN", "REDUCE_MAX", "REDUCE_MIN")),
        *(moved(name, [_LAST, C([1, 2])], (1, 1280), {"keep_dims": False}, (F,)) for name in ("SUM", "REDUCE_PROD")),
        *(moved(name, [_LAST, C([1, 2])], (1, 1280), {"keep_dims": False}, (B,)) for name in ("REDUCE_ANY", "REDUCE_ALL")),
        *(Case(name, [_CLASSES, C(1)], [((1,), I32)], {"output_type": 2}, _BOTH) for name in ("ARG_MAX", "ARG_MIN")),
        Case("TOPK_V2", [_SMALL, C(5)], [(1, 14, 14, 5), ((1, 14, 14, 5), I32)], {}),
        Case("TOPK_V2", [_CLASSES, C(5)], [(1, 5), ((1, 5), I32)], {}),
    ]


def _others() -> list[Timed]:
    transposed, rows = {"adj_x": False, "adj_y": False}, {"axis": 0, "batch_dims": 0}
    return [
        Case("BATCH_MATMUL", [(1, 8, 196, 64), (1, 8, 64, 196)], [(1, 8, 196, 196)], transposed, _BOTH),
        Case("SOFTMAX", [(1, 8, 196, 196)], [(1, 8, 196, 196)], {"beta": 1.0}, _BOTH, parameters=SIGMOID),
        _alike("L2_NORMALIZATION", 1, _NONE, _BOTH, (1, 49, 128), parameters=TANH),
        Case("ARG_MAX", [(1, 65, 65, 21), C(3)], [((1, 65, 65), I32)], {"output_type": 2}, _BOTH),
        Case("GATHER", [(1001, 1280), C(np.arange(0, 1000, 10))], [(100, 1280)], rows, _BOTH, parameters=SAME),
        Case("EMBEDDING_LOOKUP", [((64,), I32), W((1001, 128))], [(64, 128)], None),
        Recurrent("RNN", 1, 128, 256),
        Recurrent("UNIDIRECTIONAL_SEQUENCE_RNN", 28, 28, 64),
        Recurrent("BIDIRECTIONAL_SEQUENCE_RNN", 28, 28, 64),
        Recurrent("LSTM", 1, 128, 256),
        Recurrent("UNIDIRECTIONAL_SEQUENCE_LSTM", 28, 28, 64),
        Recurrent("BIDIRECTIONAL_SEQUENCE_LSTM", 28, 28, 64),
        Recurrent("SVDF", 1, 400, 64),
    ]


@dataclass(frozen=True)
class Recurrent:
    """A recurrent operator of one image's rows, or of one step; its states are variables."""

    operator: str
    steps: int
    size: int
    cells: int
    types: tuple[str, ...] = (F,)

    def write(self, folder: Path, type: str) -> Path:
        """The file."""
        builder, rng = TfliteBuilder(), np.random.default_rng(7)
        twice, cells = self.operator.startswith("BIDIRECTIONAL"), self.cells

        def weights(*shape: int) -> int:
            return builder.constant(rng.standard_normal(shape) / 10, type)

        def states(*sizes: int) -> list[int]:
            return [builder.tensor((1, size), is_variable=True) for size in sizes]

        options: dict[str, Any] = {"fused_activation_function": 4}
        if self.operator == "SVDF":
            rank, memory = 2, 8
            options["rank"] = rank
            inputs = [weights(cells * rank, self.size), weights(cells * rank, memory), weights(cells)]
            inputs += states(memory * cells * rank)
        elif "RNN" in self.operator:
            one = [[weights(cells, self.size), weights(cells, cells), weights(cells), *states(cells)] for _ in range(1 + twice)]
            inputs = [i for inputs in one for i in inputs] + [-1] * 3 * twice
        else:
            options |= {"cell_clip": 0.0, "proj_clip": 0.0}
            inputs = []
            for _ in range(1 + twice):
                inputs += [weights(cells, size) for size in (self.size, cells) for _ in range(4)]
                inputs += [-1, -1, -1, *(weights(cells) for _ in range(4)), -1, -1]
            inputs += [*states(*[cells] * (2 + 2 * twice)), *[-1] * 9 * twice]
        lead = (self.steps, 1) if "SEQUENCE" in self.operator else (1,)
        if lead != (1,):
            options["time_major"] = True
        if twice:
            options["merge_outputs"] = False
        data, outputs = builder.tensor((*lead, self.size)), [builder.tensor((*lead, cells)) for _ in range(1 + twice)]
        builder.operator(self.operator, [data, *inputs], outputs, options)
        return builder.write(folder / f"{self.operator}.tflite", [data], outputs)


@dataclass(frozen=True)
class Detections:
    """The end of an SSD MobileNet: 1,917 anchors, 90 classes and the background."""

    regular: bool
    operator: str = "TFLite_Detection_PostProcess"
    types: tuple[str, ...] = (F,)

    def write(self, folder: Path, type: str) -> Path:
        """The file."""
        builder, rng, count = TfliteBuilder(), np.random.default_rng(7), 1917
        anchors = builder.constant(np.concatenate([rng.random((count, 2)), rng.uniform(0.02, 0.5, (count, 2))], axis=1), type)
        data = [builder.tensor((1, count, 4)), builder.tensor((1, count, 91))]
        outputs = [builder.tensor(dims) for dims in ((1, 10, 4), (1, 10), (1, 10), (1,))]
        # The scores that are drawn are half of a normal distribution: one in eighty is above 2.5.
        options = {"use_regular_nms": self.regular, "nms_score_threshold": 2.5, "nms_iou_threshold": 0.6, "num_classes": 90}
        options |= {"max_detections": 10, "max_classes_per_detection": 1, "detections_per_class": 100}
        options |= {"y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0}
        builder.operator(self.operator, [*data, anchors], outputs, custom=bytes(flexbuffers.Dumps(options)))
        return builder.write(folder / "detections.tflite", data, outputs)


GROUPS: dict[str, Callable[[], Sequence[Timed]]] = {
    "MobileNet-sized tensors": lambda: [*_products(), *_elements(), *_moves(), Detections(False), Detections(True)],
    "tensors of other networks": _others,
}


@dataclass(frozen=True)
class Row:
    """An operator on one type: medians in microseconds."""

    operator: str
    type: str
    dims: str
    kernel: float
    executor: float
    litert: float
    invoke: float

    @property
    def ratio(self) -> float:
        """Kernel to LiteRT."""
        return self.kernel / self.litert


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="this operator")
    parser.add_argument("--rounds", type=int, default=11, help="runs of each side (default 11)")
    options = parser.parse_args()
    groups = {
        title: [(case, kind) for case in made() for kind in case.types if options.only in (None, case.operator)]
        for title, made in GROUPS.items()
    }
    if not any(groups.values()):
        parser.error(f"no operator {options.only}")
    # glibc gives freed memory back at once until a program has freed larger arrays, as networks do and one operator may not:
    # then both sides would be timed with the pages that the system has to provide for each new array.
    np.empty(31 << 20, np.uint8).fill(0)
    console, notes = Console(), Console(stderr=True)
    console.print(f"Reference kernels, {options.rounds} alternating rounds, one thread, µs")
    # The executor runs with NumPy's warnings off; so does a kernel alone.
    with threadpool_limits(1), np.errstate(all="ignore"), tempfile.TemporaryDirectory() as folder:
        for title, chosen in groups.items():
            each = track(chosen, f"measuring {title}", console=notes, transient=True)
            rows = [_measured(case, kind, Path(folder), options.rounds) for case, kind in each]
            if rows:
                _print(console, title, rows)


def _print(console: Console, title: str, rows: list[Row]) -> None:
    table = Table(title=title, box=SIMPLE, padding=(0, 1, 0, 0))
    for column in ("operator", "type", "shape"):
        table.add_column(column, overflow="fold")
    for column in ("kernel", "executor", "LiteRT", "invoke", "ratio", "run"):
        table.add_column(column, justify="right", no_wrap=True)
    ratios: dict[str, list[float]] = {}
    for row in rows:
        ratios.setdefault(row.operator, []).append(row.ratio)
        times = [f"{value:.1f}" for value in (row.kernel, row.executor, row.litert, row.invoke)]
        shares = [f"{value / row.litert:.2f}" for value in (row.kernel, row.executor)]
        table.add_row(row.operator, row.type, row.dims.removeprefix("1x"), *times, *shares)
    console.print(table)
    above, runs = sum(row.ratio > 1 for row in rows), sum(row.executor > row.litert for row in rows)
    console.print(f"rows: {len(rows)}, kernels above 1: {above}, runs above 1: {runs}")
    means = {name: statistics.geometric_mean(found) for name, found in ratios.items()}
    longer = [f"{name} {mean:.2f}" for name, mean in means.items() if mean > 1]
    console.print(f"operators: {len(means)}, longer on the whole: {', '.join(longer) or 'none'}")
    slowest = sorted(rows, key=lambda row: -row.ratio)[:10]
    console.print("slowest against LiteRT: " + ", ".join(f"{r.operator} {r.type} {r.dims} {r.ratio:.2f}" for r in slowest))


def _measured(case: Timed, kind: str, folder: Path, rounds: int) -> Row:
    path = case.write(folder, kind)
    model = load(path)
    # Detections end as floats, which NNAPI's integers are cast to; these are part of a run, not of the kernel.
    first, *others = [operation.type for operation in model.main.operations]
    if definition(first) is None or any(other != OperationCode.CAST for other in others):
        found = [operation_name(code) for code in (first, *others)]
        sys.exit(f"{case.operator} {kind} becomes {', '.join(found)}: there is no reference kernel of its own to time")
    rng = np.random.default_rng(0)
    runtime = Interpreter(model_path=str(path), experimental_op_resolver_type=OpResolverType.BUILTIN_REF, num_threads=1)
    runtime.allocate_tensors()
    details = runtime.get_input_details()
    # Nothing negative, so that roots and logarithms have results.
    inputs = [np.abs(random_array(rng, np.dtype(d["dtype"]), tuple(d["shape"]))) for d in details]
    targets = [detail["index"] for detail in runtime.get_output_details()]

    def answer() -> Any:
        for detail, value in zip(details, inputs, strict=True):
            runtime.set_tensor(detail["index"], value)
        runtime.invoke()
        return [runtime.get_tensor(target) for target in targets]

    executor, drawn, states = Executor(model, kernels=Tier.REFERENCE), iter(inputs), {state.input for state in model.states}
    fed = [_zeros(model.main.operands[i]) if i in states else next(drawn) for i in model.main.inputs]
    sides = (_kernel(model, fed), lambda: executor.run(fed), answer, runtime.invoke)
    repeats = [_repeats(side) for side in sides]
    times: tuple[list[float], ...] = tuple([] for _ in sides)
    for _ in range(rounds):
        for side, count, taken in zip(sides, repeats, times, strict=True):
            taken.append(_time(side, count) * 1e6)
    dims = "x".join(map(str, details[0]["shape"]))
    return Row(case.operator, kind, dims, *(statistics.median(taken) for taken in times))


def _zeros(operand: Operand) -> Any:
    """A state at its start."""
    return np.zeros(operand.dims, TYPE_FACTS[operand.type].dtype)


def _kernel(model: Model, inputs: list[Any]) -> Callable[[], Any]:
    """The reference kernel of a model's first operation, with all that is decided before a run decided."""
    operation, values = model.main.operations[0], dict(zip(model.main.inputs, inputs, strict=True))
    operands = model.main.operands
    args = [
        Arg.of(operands[i], values.get(i, model.value(operands[i])), present=operands[i].lifetime is not Lifetime.NO_VALUE)
        for i in operation.inputs
    ]
    declared = definition(operation.type)
    assert declared is not None
    call = make_call(declared, args, [Arg.of(operands[i]) for i in operation.outputs])
    call = replace(call, outs=resolve(call))
    found = prepare(call)
    if found is None:
        return lambda: run_kernel(call)
    positions, second = found
    compute = second.allocating([(out.dims, out.dtype) for out in call.outs]) if isinstance(second, InPlace) else second
    data = [call.args[i].data for i in positions]
    return lambda: compute(*data)


def _repeats(side: Callable[[], Any]) -> int:
    """The number of runs of a side in a round."""
    side()
    return max(1, round(_SECONDS / _time(side, 3)))


def _time(side: Callable[[], Any], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        side()
    return (time.perf_counter() - start) / count


if __name__ == "__main__":
    with one_line_errors():
        main()
