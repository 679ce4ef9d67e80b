"""Compare a model with a reference, through the library.

python scripts/comparisons/compare.py model.tflite                          against LiteRT
python scripts/comparisons/compare.py model.onnx                            against ONNX Runtime
python scripts/comparisons/compare.py model.tflite --reference outputs.npz  against stored inputs and outputs
python scripts/comparisons/compare.py model.tflite --device nnapi-sample_quant --seeds 0 1 2
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import RUNTIMES, argument_parser, finished, one_line_errors

from nnbridge import load
from nnbridge.compare import compare, seeded_samples, stored_samples
from nnbridge.compare.references import reference
from nnbridge.devices import device
from nnbridge.json_data import json_text


def main() -> None:
    """Compile for the devices, compare, print JSON; exit with 1 if an output is outside tolerance, 2 for bad input."""
    parser = argument_parser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--reference", type=Path, help="an .npz file; default: the runtime that the model is made for")
    parser.add_argument("--device", action="append", default=[], help="a driver; repeatable")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    compilation = finished(load(options.model), [device(name) for name in options.device])
    if options.reference is not None:
        name, samples = str(options.reference), stored_samples(compilation.model, options.reference)
    else:
        name = RUNTIMES.get(options.model.suffix, "litert")
        samples = seeded_samples(compilation.model, reference(name, options.model), options.seeds)
    result = compare(compilation, name, samples)
    print(json_text(result.as_dict(), indent=2))
    sys.exit(0 if result.passed else 1)


if __name__ == "__main__":
    with one_line_errors():
        main()
