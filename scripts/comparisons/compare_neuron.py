"""Compile every TFLite file of a folder by LiteRT's MediaTek compiler for emulated devices, and run what it wrote.

python scripts/comparisons/compare_neuron.py models
python scripts/comparisons/compare_neuron.py folder --devices nnapi-reference nnapi-sample_all

One row for each file and device. ``granted`` and ``parts`` are what the compiler did; ``as predicted``: whether granted operators
and partitions are those that nnbridge predicts from the file and the device without the compiler. The outputs of the compiled
file in nnbridge are compared with those of LiteRT's CompiledModel (``LiteRT``) and with those of the file as it was, run by
nnbridge on the device, and on the host what the device does not get (``plan``): equal bit for bit, or the greatest difference.
What LiteRT computes itself it computes by its default kernels, XNNPACK's, or by those of ``--kernels``; nnbridge's host is LiteRT
with these kernels, which for the default ones is what `nnbridge run` has without an option.
Exit status 0 only if predictions hold and all outputs are equal.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import Array, compare_each, difference, folder_parser, one_line_errors

from nnbridge import Compilation, Execution, NnbridgeError
from nnbridge.compare.litert_compiled import KERNELS, CompiledLiteRT
from nnbridge.compare.samples import seeded_inputs
from nnbridge.converters import ConversionOptions
from nnbridge.devices import CPU_NAME, device
from nnbridge.engines import AUTO, host_for
from nnbridge.errors import Reason
from nnbridge.file import ModelFile, load
from nnbridge.neuron.compiling import compile_file, litert_folder, predicted

DEVICES = [CPU_NAME, "nnapi-sample_all", "nnapi-sample_quant"]
HOST_NAMES = {"reference": "litert-plain", "optimised": "litert-plain", "xnnpack": "litert"}
"""LiteRT's sets of kernels → hosts that compute with them; CompiledModel has no reference kernels."""
HEAD = f"{'file':<42} {'device':<24} {'granted':>9} {'parts':>5}  {'as predicted':<12}  {'LiteRT':<14} {'plan':<14} verdict"


def ours(path: Path, name: str, inputs: Sequence[Array], host: str, left: Mapping[int, Reason]) -> list[Array]:
    """The outputs of a file in nnbridge: ``left`` are the operators that the device does not get."""
    asked = ConversionOptions(left=left)
    compilation = Compilation.create(load(path, asked), [device(name), *host_for(host, ModelFile(path, asked))])
    compilation.finish()
    return list(Execution(compilation).run(inputs).values())


def greatest(a: Sequence[Array], b: Sequence[Array]) -> float | None:
    """The greatest difference; None for equal bits."""
    equal = all(x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True))
    return None if equal else max(map(difference, a, b))


def shown(difference: float | None) -> str:
    return "equal" if difference is None else f"off by {difference:.3g}"


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
    inputs = seeded_inputs(load(target), 0)
    host = HOST_NAMES[kernels]
    computed = ours(target, name, list(inputs.values()), AUTO if kernels == "xnnpack" else host, {})
    with_plan = greatest(computed, ours(path, name, list(inputs.values()), host, forecast[0].refused))
    with_litert = greatest(computed, CompiledLiteRT(target, kernels).run(inputs))
    passed = as_predicted and with_litert is None and with_plan is None
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
    parser.add_argument("--kernels", choices=list(KERNELS), default="xnnpack", help="what computes LiteRT's own part")
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
