"""Compile every TFLite file of a folder by LiteRT's MediaTek compiler for emulated devices, and run what it wrote.

python scripts/compare_neuron.py models
python scripts/compare_neuron.py folder --devices nnapi-reference nnapi-sample_all

One row for each file and device. ``granted`` and ``parts`` are what the compiler did; ``as predicted``: whether granted operators
and partitions are those that nnbridge predicts from the file and the device without the compiler. The outputs of the compiled
file in nnbridge are compared with those of LiteRT's CompiledModel (``LiteRT``) and with those of the file as it was, run by
nnbridge on the device and, for what no device takes, on NNAPI's CPU and the host (``plan``): equal bit for bit, or the greatest
difference. What LiteRT computes itself it computes by its built-in kernels here; by default it takes XNNPACK's, which round
8-bit numbers otherwise (``--xnnpack``).
Exit status 0 only if predictions hold and all outputs are equal; within 1e-5 is enough for LiteRT's where it sums floats itself,
in another order, and for the plan's where NNAPI moves boxes in float32 and LiteRT in float64. LiteRT's 8-bit means of another
scale, which its optimised kernel rounds otherwise than its reference kernel and nnbridge, are excepted.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from ai_edge_litert.compiled_model import CompiledModel
from ai_edge_litert.cpu_kernel_mode import CpuKernelMode
from ai_edge_litert.cpu_options import CpuOptions
from ai_edge_litert.environment import Environment
from ai_edge_litert.hardware_accelerator import HardwareAccelerator
from ai_edge_litert.options import Options
from ai_edge_litert.tensor_buffer import TensorBuffer
from script_support import Array, compare_each, difference, folder_parser, one_line_errors

from nnbridge import Compilation, Execution, NnbridgeError, neuron
from nnbridge.compare.samples import seeded_inputs
from nnbridge.devices import CPU_NAME, device
from nnbridge.loading import load
from nnbridge.model import Model
from nnbridge.neuron.compiling import compile_file, predicted
from nnbridge_tflite.read.reader import read

DEVICES = [CPU_NAME, "nnapi-sample_all", "nnapi-sample_quant"]
SUMS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV", "BATCH_MATMUL", "MEAN", "SUM", "SOFTMAX")
FLOAT64 = ("TFLite_Detection_PostProcess",)
NEAR = 1e-5
"""Allowed where LiteRT itself sums floats, in another order, and where it computes in float64 what NNAPI does in float32."""
HEAD = f"{'file':<42} {'device':<24} {'granted':>9} {'parts':>5}  {'as predicted':<12}  {'LiteRT':<14} {'plan':<14} verdict"


def ours(model: Model, name: str, inputs: Sequence[Array], kernels: str | None = None) -> list[Array]:
    """The outputs of a file in nnbridge."""
    compilation = Compilation.create(model, [device(name)], kernels=kernels)
    compilation.finish()
    return list(Execution(compilation).run(inputs).values())


def litert(path: Path, inputs: Sequence[Array], outputs: Sequence[Array], kernels: CpuKernelMode) -> list[Array]:
    """The outputs of a file in LiteRT's runtime, in the order of nnbridge's; RuntimeError if it does not run."""
    environment = Environment.create(dispatch_library_path=str(neuron.dispatch_library().cached().parent))
    accelerators = HardwareAccelerator.NPU | HardwareAccelerator.CPU
    options = Options(hardware_accelerators=accelerators, cpu_options=CpuOptions(kernel_mode=kernels))
    model = CompiledModel.from_file(str(path), environment=environment, options=options)
    # Without the question LiteRT does not learn the dimensions of outputs before it runs.
    model.get_output_tensor_details(next(iter(model.get_signature_list())))
    given = model.create_input_buffers(0)
    for buffer, array in zip(given, inputs, strict=True):
        buffer.write(array.view(np.bool_) if array.dtype == np.bool_ else array)
    # LiteRT's own buffers are of the dimensions that the file declares, and it would write beyond them.
    written = [TensorBuffer.create_from_host_memory(np.zeros_like(array)) for array in outputs]
    model.run_by_index(0, given, written)
    return [b.read(a.size, a.dtype.type).reshape(a.shape) for b, a in zip(written, outputs, strict=True)]


def greatest(a: Sequence[Array], b: Sequence[Array]) -> float | None:
    """The greatest difference; None for equal bits."""
    equal = all(x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True))
    return None if equal else max(map(difference, a, b))


def shown(difference: float | None) -> str:
    return "equal" if difference is None else f"off by {difference:.3g}"


def left_floats(path: Path) -> set[str]:
    """The operators of a compiled file whose floats LiteRT computes itself, and its 8-bit means."""
    graph = read(path).graph.main
    kinds = {(o.name, graph.tensors[o.outputs[0]].type.name) for o in graph.operators}
    means = {"8-bit MEAN" for name, kind in kinds if name == "MEAN" and kind in ("INT8", "UINT8")}
    return means | {name for name, kind in kinds if kind == "FLOAT32"}


def row(path: Path, name: str, folder: Path, kernels: CpuKernelMode) -> tuple[str, bool]:
    """A file on a device: figures, and whether all is as it must be."""
    forecast = predicted(path, [name])
    target = folder / path.name
    if not any(answer.runs() for answer in forecast):
        wrong = compiles(path, target, name)
        return "FAIL: nothing was predicted" if wrong else "nothing is granted, as predicted", not wrong
    found = compile_file(path, target, [name])
    operators, granted = sum(len(a.names) for a in found.answers), sum(len(a.names) - len(a.refused) for a in found.answers)
    parts = [partition.operators for partition in found.partitions]
    as_predicted = parts == [tuple(a.names[i] for i in run) for a in forecast for run in a.runs()] and all(
        a.refused.keys() == b.refused.keys() for a, b in zip(found.answers, forecast, strict=True)
    )
    inputs = list(seeded_inputs(model := load(target), 0).values())
    computed = ours(model, name, inputs)
    # The host has no compiled kernels, which add floats in another order: what it computes is compared by the NumPy ones.
    with_plan = greatest(ours(model, name, inputs, "reference"), ours(load(path), name, inputs, "reference"))
    with_litert = greatest(computed, litert(target, inputs, computed, kernels))
    left = left_floats(target)
    allowed = ((with_litert, SUMS), (with_plan, FLOAT64))
    near = [d is None or (d < NEAR and not left.isdisjoint(names)) for d, names in allowed]
    passed = as_predicted and near[1] and (near[0] or "8-bit MEAN" in left)
    figures = f"{granted:>4}/{operators:<4} {len(parts):>5}  {'yes' if as_predicted else 'NO':<12}"
    return f"{figures}  {shown(with_litert):<14} {shown(with_plan):<14} {'ok' if passed else 'FAIL'}", passed


def compiles(path: Path, target: Path, name: str) -> bool:
    """True if LiteRT's compiler writes a file."""
    try:
        compile_file(path, target, [name])
    except NnbridgeError:
        return False
    return True


def main() -> int:
    parser = folder_parser(DEVICES)
    parser.add_argument("--xnnpack", action="store_true", help="LiteRT's own part by XNNPACK's kernels, as by default")
    options = parser.parse_args()
    kernels = CpuKernelMode.XNNPACK if options.xnnpack else CpuKernelMode.BUILTIN
    files = sorted(p for p in options.folder.glob("*.tflite") if options.only in p.name)
    print(HEAD)
    with tempfile.TemporaryDirectory() as folder:

        def row_or_refusal(path: Path, name: str) -> tuple[str, bool]:
            try:
                return row(path, name, Path(folder), kernels)
            except NnbridgeError as error:
                return f"refused: {' '.join(str(error).split())[-90:]}", True

        return compare_each(files, options.devices, Path, row_or_refusal, NnbridgeError)


if __name__ == "__main__":
    with one_line_errors("'.[neuron,litert]'"):
        sys.exit(main())
