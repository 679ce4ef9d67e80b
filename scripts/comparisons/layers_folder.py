"""Comparison of every tensor of a folder's files on NNAPI's CPU with LiteRT or ONNX Runtime, with the cause of each difference.

python scripts/comparisons/layers_folder.py models
python scripts/comparisons/layers_folder.py folder --shape vad:input=1,512 --shape vad:state=2,1,128

One row for each file: tensors that both sides have, those that are equal bit for bit, operations with an error of their own, the
first of them, and how many have each cause (docs/layers.md). Exit status 0 only if every operation with an error of its own has a
cause that was verified. LiteRT's reference kernels and ONNX Runtime without optimisations are the references.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import RUNTIMES, files_with_shapes, finished, folder_and_shapes_parser, one_line_errors

from nnbridge import NnbridgeError
from nnbridge.compare import seeded_samples
from nnbridge.compare.layers import LayerComparison, compare_layers
from nnbridge.compare.references import reference
from nnbridge.compare.tensors import tensors_of
from nnbridge.converters import ConversionOptions
from nnbridge.file import ModelFile


def of_file(path: Path, mapping: str, shapes: Mapping[str, tuple[int, ...]]) -> LayerComparison:
    """The layers of a file on NNAPI's CPU for seed 0."""
    model, mapped = ModelFile(path, ConversionOptions(mapping=mapping, shapes=dict(shapes))).converted
    runtime = reference(RUNTIMES[path.suffix], path, preserve=True)
    samples = seeded_samples(model, runtime, [0])
    return compare_layers(finished(model), runtime.name, samples, tensors_of(runtime), mapped=mapped)


def row(path: Path, found: LayerComparison) -> str:
    """The findings for a file."""
    wrong = [layer for layer in found.layers if layer.own is not None and layer.own.mismatches]
    equal = sum(layer.drift is not None and not layer.drift.mismatches for layer in found.compared)
    causes = Counter(layer.why or "UNEXPLAINED" for layer in wrong)
    shown = ", ".join(f"{kind} {count}" for kind, count in causes.most_common())
    first = f"{wrong[0].operator}; " if wrong else ""
    return f"{path.name:<42} {equal:>4} of {len(found.compared):<4} {len(wrong):>4}  {first}{shown}"


def main() -> None:
    """Print a row for each file; exit with 1 if an operation's error has no cause."""
    parser = folder_and_shapes_parser()
    parser.add_argument("--mapping", choices=("wide", "delegate", "provider"), default="wide")
    options = parser.parse_args()
    files = files_with_shapes(options)
    started, unexplained = time.monotonic(), 0
    print(f"{'file':<42} {'equal tensors':<12} {'own':>4}  first operation with an error of its own; causes")
    for path, dimensions in files:
        try:
            found = of_file(path, options.mapping, dimensions)
        except NnbridgeError as error:
            print(f"{path.name:<42} left out: {str(error).splitlines()[0][:150]}", flush=True)
            continue
        print(row(path, found), flush=True)
        unexplained += sum(bool(layer.own and layer.own.mismatches and not layer.why) for layer in found.layers)
    print(f"{len(files)} files, {unexplained} errors without a cause, {time.monotonic() - started:.0f} s")
    sys.exit(1 if unexplained else 0)


if __name__ == "__main__":
    with one_line_errors():
        main()
