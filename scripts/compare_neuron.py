"""Compile every TFLite file of a folder by LiteRT's MediaTek compiler for emulated devices, and run what it wrote.

python scripts/compare_neuron.py models
python scripts/compare_neuron.py folder --devices nnapi-reference nnapi-sample_all

One row for each file and device. ``granted`` and ``parts`` are what the compiler did; ``as predicted``: whether granted operators
and partitions are those that nnbridge predicts from the file and the device without the compiler. The outputs of the compiled
file in nnbridge are compared with those of LiteRT's CompiledModel (``LiteRT``) and with those of the file as it was, run by
nnbridge on the device and, for what no device takes, on NNAPI's CPU and the host (``plan``): equal bit for bit, or the greatest
difference. What LiteRT computes itself it computes by its reference kernels here; by default it takes XNNPACK's, which round
otherwise (``--kernels xnnpack``).
Exit status 0 only if predictions hold and all outputs are equal. Excepted is what LiteRT's CompiledModel computes by optimised
kernels in every mode (float SOFTMAX in its last bits, 8-bit means of another scale), and, within 1e-5 of the plan's, floats that
TFLite sums in another order than NNAPI's CPU and boxes that it moves in float64.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from script_support import Array, compare_each, difference, folder_parser, one_line_errors

from nnbridge import Compilation, Execution, NnbridgeError
from nnbridge.compare.litert_compiled import KERNELS, CompiledLiteRT
from nnbridge.compare.samples import seeded_inputs
from nnbridge.devices import CPU_NAME, device
from nnbridge.loading import load
from nnbridge.model import Model
from nnbridge.neuron.compiling import compile_file, litert_folder, predicted
from nnbridge_tflite.read.reader import read

DEVICES = [CPU_NAME, "nnapi-sample_all", "nnapi-sample_quant"]
NEAR = 1e-5
"""Allowed where the host and NNAPI's CPU compute the same floats in another order, or in another precision."""
HEAD = f"{'file':<42} {'device':<24} {'granted':>9} {'parts':>5}  {'as predicted':<12}  {'LiteRT':<14} {'plan':<14} verdict"


def ours(model: Model, name: str, inputs: Sequence[Array], kernels: str | None = None) -> list[Array]:
    """The outputs of a file in nnbridge."""
    compilation = Compilation.create(model, [device(name)], kernels=kernels)
    compilation.finish()
    return list(Execution(compilation).run(inputs).values())


def greatest(a: Sequence[Array], b: Sequence[Array]) -> float | None:
    """The greatest difference; None for equal bits."""
    equal = all(x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True))
    return None if equal else max(map(difference, a, b))


def shown(difference: float | None) -> str:
    return "equal" if difference is None else f"off by {difference:.3g}"


def left_to_litert(path: Path) -> set[str]:
    """The operators of a compiled file whose floats LiteRT computes itself, and its 8-bit means."""
    graph = read(path).graph.main
    kinds = {(o.name, graph.tensors[o.outputs[0]].type.name) for o in graph.operators}
    means = {"8-bit MEAN" for name, kind in kinds if name == "MEAN" and kind in ("INT8", "UINT8")}
    return means | {name for name, kind in kinds if kind == "FLOAT32"}


def row(path: Path, name: str, folder: Path, kernels: str) -> tuple[str, bool]:
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
    inputs = seeded_inputs(model := load(target), 0)
    computed = ours(model, name, list(inputs.values()))
    # The host has no compiled kernels, which add floats in another order: what it computes is compared by the NumPy ones.
    with_plan = greatest(*(ours(each, name, list(inputs.values()), "reference") for each in (model, load(path))))
    with_litert = greatest(computed, CompiledLiteRT(target, kernels).run(inputs))
    left = left_to_litert(target)
    as_litert = with_litert is None or "8-bit MEAN" in left or ("SOFTMAX" in left and with_litert < NEAR)
    passed = as_predicted and as_litert and (with_plan is None or (bool(left) and with_plan < NEAR))
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
    parser.add_argument("--kernels", choices=list(KERNELS), default="reference", help="what computes LiteRT's own part")
    options = parser.parse_args()
    litert_folder()  # ends here where LiteRT is missing
    files = sorted(p for p in options.folder.glob("*.tflite") if options.only in p.name)
    print(HEAD)
    with tempfile.TemporaryDirectory() as folder:

        def row_or_refusal(path: Path, name: str) -> tuple[str, bool]:
            try:
                return row(path, name, Path(folder), options.kernels)
            except NnbridgeError as error:
                return f"refused: {' '.join(str(error).split())[-90:]}", True

        return compare_each(files, options.devices, Path, row_or_refusal, NnbridgeError)


if __name__ == "__main__":
    with one_line_errors("'.[neuron,litert]'"):
        sys.exit(main())
