"""Comparison of LiteRT's kernels and ONNX Runtime with the envelope of devices' arithmetics, for every file of a folder.

python scripts/comparisons/envelope_folder.py models
python scripts/comparisons/envelope_folder.py folder --seeds 0 1 2 --shape vad:input=1,512 --shape vad:state=2,1,128

TFLite files are computed by LiteRT's reference kernels, its plain kernels and XNNPACK, ONNX files by ONNX Runtime with its
operators as written and fused. One row for each output and runtime: the largest deviation from NNAPI's CPU beside that of the
envelope, the mildest arithmetic that deviates as far, and the arithmetic whose answers are the nearest, with how many elements
are not equal to its. Exit status 0 only if every answer is within; a file that no runtime of its format reads is left out.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import Array, files_with_shapes, folder_and_shapes_parser, one_line_errors

from nnbridge import NnbridgeError, load
from nnbridge.compare import Sample, in_model, named_inputs, named_outputs, seeded_samples, sign_flipped
from nnbridge.compare.envelope import Envelope, envelope
from nnbridge.compare.litert import LiteRT
from nnbridge.compare.onnx_runtime import OnnxRuntime
from nnbridge.converters import ConversionOptions
from nnbridge.model import Model

SIDES: Mapping[str, Mapping[str, Callable[[Path], LiteRT | OnnxRuntime]]] = {
    ".tflite": {
        "litert reference": lambda path: LiteRT(path, kernels="reference"),
        "litert plain": lambda path: LiteRT(path, kernels="optimised"),
        "litert xnnpack": lambda path: LiteRT(path, kernels="xnnpack"),
    },
    ".onnx": {
        "onnxruntime as written": lambda path: OnnxRuntime(path, as_written=True),
        "onnxruntime": OnnxRuntime,
    },
}
HEAD = f"{'file':<40} {'output':<24} {'runtime':<22} {'max diff':>9} {'envelope':>9}  {'reached by':<20} nearest"


def answering(model: Model, runtime: LiteRT | OnnxRuntime) -> Callable[[Sample], Mapping[str, Array]]:
    """A runtime's outputs for a sample, in the model's types."""
    inputs, outputs = named_inputs(model), named_outputs(model)

    def answer(sample: Sample) -> Mapping[str, Array]:
        if not sample.continues:
            runtime.reset()
        found = runtime.run({name: sign_flipped(inputs[name], value) for name, value in sample.inputs.items()})
        named = found if isinstance(found, Mapping) else dict(zip(outputs, found, strict=True))
        fitted = {name: in_model(operand, named[name]) for name, operand in outputs.items()}
        return {name: array if array.shape else array.reshape(1) for name, array in fitted.items()}

    return answer


def of_file(path: Path, seeds: list[int], shapes: Mapping[str, tuple[int, ...]]) -> Envelope:
    """The envelope of a file with its runtimes' answers."""
    model = load(path, ConversionOptions(shapes=dict(shapes)))
    sides = {name: answering(model, create(path)) for name, create in SIDES[path.suffix].items()}
    return envelope(model, seeded_samples(model, None, seeds), sides)


def rows(path: Path, found: Envelope) -> list[str]:
    """One for each output and runtime."""
    return [
        f"{path.name[:40]:<40} {d.output[-24:]:<24} {d.arithmetic:<22} {d.largest:9.2g} {found.span(d.output)[0]:9.2g}  "
        f"{d.reached_by or 'OUTSIDE':<20} {d.nearest}, {d.nearest_unequal} of {d.elements} unequal"
        for d in found.others
    ]


def main() -> None:
    """Print a row for each output and runtime; exit with 1 if one is outside."""
    parser = folder_and_shapes_parser()
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    files = files_with_shapes(options)
    started = time.monotonic()
    outside, answers, left_out = [], 0, []
    print(HEAD)
    for path, dimensions in files:
        try:
            found = of_file(path, options.seeds, dimensions)
        except NnbridgeError as error:
            left_out.append(path.name)
            print(f"{path.name:<40} left out: {str(error).splitlines()[0][:200]}", flush=True)
            continue
        print("\n".join(rows(path, found)), flush=True)
        answers += len(found.others)
        outside += [f"{path.name} {d.output} {d.arithmetic}" for d in found.others if not d.within]
    counts = f"{len(files)} files, {len(left_out)} left out, {answers} answers, {len(outside)} outside"
    print(f"{counts}, {time.monotonic() - started:.0f} s")
    sys.exit(1 if outside else 0)


if __name__ == "__main__":
    with one_line_errors():
        main()
