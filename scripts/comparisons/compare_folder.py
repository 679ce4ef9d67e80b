"""Compare every TFLite and ONNX file of a folder with its own runtime, on NNAPI's CPU and on each driver.

python scripts/comparisons/compare_folder.py models
python scripts/comparisons/compare_folder.py models --devices nnapi-sample_minimal nnapi-sample_full --seeds 0 1 2 3 4
python scripts/comparisons/compare_folder.py folder --shape vad:input=1,512 --shape vad:state=2,1,128

One row for each file and device: operations on the driver, NNAPI's CPU and the host, steps, the largest difference (as a
share of the reference's range, or in steps of integers), and the share of elements that are not equal to the reference's.
Drivers are offered the model first; NNAPI's CPU and the host run the rest. ``--favoured`` sets the relative execution times of
AOSP's sample drivers below the CPU's, so that they run all that they claim. ``alike`` states whether the answers are bit for bit
those of NNAPI's CPU and the host alone. A file that nnbridge refuses passes if its own runtime refuses it or its inputs too.
Exit status 0 only if every row passes: of models/, digits_dynamic.tflite and digits_qdq.onnx do not, and should not
(docs/comparisons.md).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import (
    RUNTIMES,
    Array,
    failures,
    files_with_shapes,
    finished,
    folder_and_shapes_parser,
    largest_difference,
    one_line_errors,
    operations_by_place,
    share_unequal,
    verdict,
    zero_inputs,
)

from nnbridge import Execution, NnbridgeError, load
from nnbridge.compare import Sample, add_sample, fallbacks_of, new_comparisons, seeded_inputs, seeded_samples
from nnbridge.compare.references import reference
from nnbridge.converters import ConversionOptions
from nnbridge.devices import Device, cpu, device
from nnbridge.devices.device import Performance, uniform_capabilities
from nnbridge.devices.samples import SampleDriver
from nnbridge.errors import InputError
from nnbridge.model import Model

DRIVERS = [f"nnapi-sample_{name}" for name in ("float_fast", "float_slow", "minimal", "quant", "full")]
HEAD = f"{'file':<42} {'devices':<28} {'ops':<14} {'steps':>5} {'max diff':>14} {'off':>7}  alike  verdict"


@dataclass(frozen=True)
class Row:
    """A file on one list of devices."""

    file: str
    devices: str
    verdict: str
    passed: bool
    places: str = ""
    """Operations on the driver, NNAPI's CPU and the host."""
    steps: int = 0
    largest: str = ""
    """As :func:`script_support.largest_difference` writes it."""
    off: float = 0.0
    """Share of elements that are not equal to the reference's."""
    alike: bool | None = None

    def __str__(self) -> str:
        alike = "" if self.alike is None else "yes" if self.alike else "no"
        figures = f"{self.places:<14} {self.steps or '':>5} {self.largest:>14} {self.off:>7.2%}" if self.places else " " * 43
        return f"{self.file:<42} {self.devices:<28} {figures}  {alike:<5}  {self.verdict}"


def rows(path: Path, drivers: Sequence[Device], seeds: Sequence[int], shapes: Mapping[str, tuple[int, ...]]) -> Iterator[Row]:
    """NNAPI's CPU with the host, then each driver in front of them."""
    try:
        model = load(path, ConversionOptions(shapes=dict(shapes)))
    except NnbridgeError as error:
        yield _refused(path, error)
        return
    try:
        samples = list(seeded_samples(model, reference(RUNTIMES[path.suffix], path), seeds))
    except NnbridgeError as error:
        yield _refused_by_runtime(path, model, seeds[0], error)
        return
    expected = None
    for chosen in ([], *([d] for d in drivers)):
        try:
            row, answers = _row(path, model, chosen, samples, expected)
        except NnbridgeError as error:
            row, answers = Row(path.name, _names(chosen), f"FAIL: {_first_line(error)}", False), expected
        expected = expected or answers
        yield row


def _row(
    path: Path, model: Model, drivers: Sequence[Device], samples: Sequence[Sample], expected: list[dict[str, Array]] | None
) -> tuple[Row, list[dict[str, Array]]]:
    compilation = finished(model, drivers)
    outputs, answers, fallbacks = new_comparisons(model), [], []
    for sample in samples:
        execution = Execution(compilation)
        answers.append(dict(execution.run(sample.inputs)))
        add_sample(model, outputs, answers[-1], sample.outputs)
        fallbacks += fallbacks_of(execution)
    alike = None if expected is None else all(map(_equal, answers, expected))
    problems = failures(outputs) + fallbacks + ["another answer than NNAPI's CPU and the host alone"] * (alike is False)
    counts = operations_by_place(compilation)
    row = Row(
        path.name,
        _names(drivers),
        verdict(problems),
        not problems,
        "/".join(str(counts[kind]) for kind in ("device", "cpu", "host")),
        len(compilation.plan.steps),
        largest_difference(outputs),
        share_unequal(outputs),
        alike,
    )
    return row, answers


def _names(drivers: Sequence[Device]) -> str:
    return ", ".join(d.name for d in drivers) or cpu().name


def _favoured(driver: Device) -> Device:
    faster = uniform_capabilities(Performance(0.5, 0.5))
    return replace(driver, figures=faster) if isinstance(driver, SampleDriver) else driver


def _equal(a: Mapping[str, Array], b: Mapping[str, Array]) -> bool:
    return all(np.array_equal(a[name], b[name], equal_nan=a[name].dtype.kind == "f") for name in b)


def _refused(path: Path, error: NnbridgeError) -> Row:
    try:
        reference(RUNTIMES[path.suffix], path).run(zero_inputs(path))
    except InputError as other:
        return Row(path.name, "", f"pass: refused, as by its runtime: {error}; {_first_line(other)}", True)
    return Row(path.name, "", f"FAIL: refused: {_first_line(error)}", False)


def _refused_by_runtime(path: Path, model: Model, seed: int, error: NnbridgeError) -> Row:
    """Numbers of inputs that are sizes may fit nothing: then the same inputs are refused here, too."""
    try:
        Execution(finished(model, [])).run(seeded_inputs(model, seed))
    except NnbridgeError as own:
        return Row(path.name, "", f"pass: inputs refused, as by its runtime: {_first_line(own)}; {_first_line(error)}", True)
    return Row(path.name, "", f"FAIL: converted, but its runtime refuses it: {_first_line(error)}", False)


def _first_line(error: NnbridgeError) -> str:
    return str(error).splitlines()[0][:200]


def main() -> None:
    """Print a row for each file and device; exit with 1 if one fails, 2 if there is no file."""
    parser = folder_and_shapes_parser()
    parser.add_argument("--devices", nargs="*", default=DRIVERS, help="default: AOSP's sample drivers")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--favoured", action="store_true", help="sample drivers faster than the CPU")
    options = parser.parse_args()
    files = files_with_shapes(options)
    drivers = [_favoured(device(name)) if options.favoured else device(name) for name in options.devices]
    started, failed, count = time.monotonic(), 0, 0
    print(HEAD)
    for path, dimensions in files:
        for row in rows(path, drivers, options.seeds, dimensions):
            print(row, flush=True)
            count, failed = count + 1, failed + (not row.passed)
    print(f"{len(files)} files, {count} rows, {failed} failed, {time.monotonic() - started:.0f} s")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    with one_line_errors():
        main()
