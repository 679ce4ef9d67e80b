"""Build networks with TensorFlow, convert them with nnbridge, and compare with LiteRT's reference kernels.

pip install tensorflow tf_keras -e '.[litert]'
python scripts/comparisons/tensorflow_models.py
python scripts/comparisons/tensorflow_models.py --networks resnet50 gru --variants int8 int16x8 --keep folder

Weights are random by a seed. Each network is written as float32, with float16 weights, with 8-bit weights (dynamic range),
as int8 throughout, and as int8 with int16 activations. A row has the number of operations on NNAPI and on the host, the
largest difference (as a share of the reference's range, or in steps of integers), the share of elements that are not equal,
and the verdict. Where only weights are quantised, Android's delegate dequantises them and computes on floats, while LiteRT's
own kernels quantise activations as well. There the reference is LiteRT on the file with dequantised weights; the difference of
LiteRT's own kernels stands beside it. Exit status 0 only if every file that TensorFlow's converter writes agrees.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import (
    argument_parser,
    failures,
    finished,
    folder_of_keep,
    largest_difference,
    one_line_errors,
    operations_by_place,
    share_unequal,
    verdict,
    zero_inputs,
)

from nnbridge import Compilation, NnbridgeError, load
from nnbridge.compare import Comparison, compare, seeded_samples
from nnbridge.compare.references import reference

NETWORKS = (
    "mobilenet_v3",
    "efficientnet_lite",
    "resnet50",
    "transformer",
    "lstm",
    "lstm_loop",
    "gru",
    "gru_unrolled",
    "unet",
)
VARIANTS = ("float32", "float16", "dynamic range", "int8", "int16x8")
HEAD = f"{'network':<18} {'variant':<14} {'bytes':>10} {'NNAPI':>6} {'host':>5} {'max diff':>9} {'off':>7}  verdict"


@dataclass(frozen=True)
class Row:
    """One network in one variant."""

    network: str
    variant: str
    verdict: str
    agrees: bool | None
    """None if there is no file."""
    bytes: int = 0
    nnapi: int = 0
    host: int = 0
    largest: str = ""
    off: float = 0.0

    def __str__(self) -> str:
        if self.agrees is None:
            return f"{self.network:<18} {self.variant:<14} {self.verdict}"
        figures = f"{self.bytes:>10,} {self.nnapi:>6} {self.host:>5} {self.largest:>9} {self.off:>7.2%}"
        return f"{self.network:<18} {self.variant:<14} {figures}  {self.verdict}"


def checked(name: str, variant: str, path: Path, seeds: Sequence[int]) -> Row:
    """Convert a file with nnbridge and compare it with LiteRT."""
    size = path.stat().st_size
    real = path.with_suffix(".float.tflite")
    try:
        reference("litert", path).run(zero_inputs(path))
    except NnbridgeError as error:
        return Row(name, variant, f"LiteRT refuses: {error}", None)
    try:
        compilation = finished(load(path))
        result = _compared(compilation, real if real.exists() else path, seeds)
        own = _compared(compilation, path, seeds) if real.exists() else None
    except NnbridgeError as error:
        return Row(name, variant, f"FAIL: {error}", False, size)
    hybrid = f" (LiteRT's hybrid kernels: {largest_difference(own.outputs)})" if own is not None else ""
    counts = operations_by_place(compilation)
    return Row(
        name,
        variant,
        verdict(failures(result.outputs)) + hybrid,
        result.passed,
        size,
        counts.total() - counts["host"],
        counts["host"],
        largest_difference(result.outputs),
        share_unequal(result.outputs),
    )


def _compared(compilation: Compilation, path: Path, seeds: Sequence[int]) -> Comparison:
    return compare(compilation, "litert", seeded_samples(compilation.model, reference("litert", path), seeds))


def _write(name: str, variant: str, seed: int, path: Path) -> str:
    """Write a file, in a process of TensorFlow's own; the reason if its converter refuses, else nothing."""
    from networks import in_tensorflow

    try:
        in_tensorflow.write(name, variant, seed, path)
    except Exception as error:  # TensorFlow's converter raises what it likes.
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return next((line for line in lines if "error:" in line), lines[0] if lines else type(error).__name__)[:200]
    return ""


def rows(name: str, variants: Sequence[str], seed: int, seeds: Sequence[int], folder: Path) -> Iterator[Row]:
    """A network in each variant."""
    waiting = list(variants)
    while waiting:
        with ProcessPoolExecutor(1, get_context("spawn")) as worker:
            while waiting:
                variant = waiting.pop(0)
                path = folder / f"{name}_{variant.replace(' ', '_')}.tflite"
                try:
                    refused = worker.submit(_write, name, variant, seed, path).result()
                except BrokenProcessPool:
                    yield Row(name, variant, "TensorFlow's converter crashes", None)
                    break
                yield (
                    Row(name, variant, f"TensorFlow refuses: {refused}", None) if refused else checked(name, variant, path, seeds)
                )


def main() -> None:
    """Build, convert, compare; print a table."""
    parser = argument_parser()
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=NETWORKS, metavar="NAME", help=", ".join(NETWORKS))
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS, metavar="NAME", help=", ".join(VARIANTS))
    parser.add_argument("--seed", type=int, default=0, help="of weights and calibration")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of the compared inputs")
    parser.add_argument("--keep", type=Path, help="a folder to leave the files in")
    options = parser.parse_args()
    started = time.monotonic()
    found: list[Row] = []
    with folder_of_keep(options.keep) as folder:
        print(HEAD)
        for name in options.networks:
            for row in rows(name, options.variants, options.seed, options.seeds, folder):
                found.append(row)
                print(row, flush=True)
    agree, fail, none = (sum(row.agrees is answer for row in found) for answer in (True, False, None))
    print(f"{agree} agree, {fail} fail, {none} that TensorFlow or LiteRT refuses, {time.monotonic() - started:.0f} s")
    sys.exit(1 if fail or not agree else 0)


if __name__ == "__main__":
    with one_line_errors("tensorflow tf_keras '.[litert]'"):
        main()
