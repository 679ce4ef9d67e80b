"""Plant a fault in a random operation of many networks, and count how often ``compare --layers`` names the operation.

python scripts/plant_faults.py
python scripts/plant_faults.py folder --networks 200 --shape silero:input=1,512 --shape silero:state=2,1,128

The networks are the files of models/ and of the folder, once each, and as many random ones as are missing: TFLite with floats,
TFLite with 8 bits, ONNX, in turn. A driver that computes like NNAPI's CPU has the fault in one operation: integers a step off,
floats through float16, a wrong zero point, a transposed filter, padding that is off by one (tests/compare/faults.py). The
reference is LiteRT or ONNX Runtime; where one computes an operation of the network otherwise by itself, it is NNAPI's reference
kernels. A fault that changes nothing beyond tolerance in its operation's result is drawn again. Exit status 0 only if the
operation is named each time.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from script_support import MODELS, RUNTIMES, argument_parser, finished, one_line_errors, shapes_by_stem

from nnbridge import NnbridgeError, load
from nnbridge.compare import Sample, Tolerance, seeded_samples
from nnbridge.compare.layers import LayerComparison, compare_layers
from nnbridge.compare.references import reference
from nnbridge.compare.tensors import DeviceReference, tensors_of
from nnbridge.converters import ConversionOptions
from nnbridge.devices import Device
from nnbridge.model import Model, Operation
from tests.compare.faults import FAULTS, FaultyDriver, applies
from tests.compare.random_networks import onnx_network, tflite_network

EXACT = Tolerance(steps=0)
TRIES = 40
"""Faults that are drawn for a network before it is given up: each of them changed nothing."""


@dataclass(frozen=True)
class Outcome:
    """A planted fault."""

    file: str
    fault: str
    target: str
    against: str
    found: str
    named: bool


class Network:
    """A file with what it is compared with."""

    def __init__(self, path: Path, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.path = path
        self.model: Model = load(path, ConversionOptions(shapes=dict(shapes)))
        name = RUNTIMES[path.suffix]
        self.runtime = reference(name, path, preserve=True)
        clean = self.layers()
        if any(layer.own is not None and layer.own.beyond for layer in clean.layers):
            self.runtime = DeviceReference(self.model, "reference")

    def layers(self, *drivers: Device) -> LayerComparison:
        """The comparison by layers, on these drivers or NNAPI's CPU."""
        samples: Iterator[Sample] = seeded_samples(self.model, self.runtime, [0])
        compilation, tensors = finished(self.model, drivers), tensors_of(self.runtime)
        return compare_layers(compilation, self.runtime.name, samples, tensors, EXACT, explained=False)

    def planted(self, rng: np.random.Generator) -> Outcome | None:
        """A fault that changes something and what is named; None if there is none."""
        candidates = [(o, fault) for o in self.model.main.operations for fault in FAULTS if applies(fault, self.model, o)]
        for k in rng.permutation(len(candidates))[:TRIES]:
            target, fault = candidates[int(k)]
            found = self.layers(FaultyDriver(target.name, fault))
            outcome = self._outcome(found, target, fault)
            if outcome is not None:
                return outcome
        return None

    def _outcome(self, found: LayerComparison, target: Operation, fault: str) -> Outcome | None:
        positions = {("", i) for i in target.outputs}
        mine = [layer for layer in found.layers if layer.position in positions]
        own = [layer.own for layer in mine if layer.own is not None]
        effect = self._changes(target, fault) if not own else any(o.beyond for o in own)
        if not effect:
            return None
        origin = found.origin
        named = origin is not None and (origin.position in positions or origin.operator == mine[0].operator)
        place = "nothing" if origin is None else origin.place
        return Outcome(self.path.name, fault, mine[0].place, self.runtime.name, place, named)

    def _changes(self, target: Operation, fault: str) -> bool:
        """True if the fault changes its operation's result, for tensors that the reference does not show."""
        inner = DeviceReference(self.model, "reference")
        samples = seeded_samples(self.model, inner, [0])
        driver = finished(self.model, [FaultyDriver(target.name, fault)])
        found = compare_layers(driver, inner.name, samples, tensors_of(inner), EXACT, explained=False)
        return any(layer.own is not None and layer.own.beyond > 0 for layer in found.layers)


def networks(options: object, folder: Path) -> Iterator[Path]:
    """The files, then random networks."""
    given = [MODELS, *([options.folder] if options.folder else [])]  # type: ignore[attr-defined]
    yield from sorted(p for where in given for p in where.rglob("*") if p.suffix in RUNTIMES)
    for seed in range(10 * options.networks):  # type: ignore[attr-defined]
        if seed % 3 == 2:
            yield onnx_network(folder / f"random {seed}.onnx", seed)
        else:
            yield tflite_network(folder / f"random {seed}.tflite", seed, quantised=seed % 3 == 1)


def main() -> None:
    """Print each fault that is not named, and the counts; exit with 1 if there is one."""
    parser = argument_parser()
    parser.add_argument("folder", type=Path, nargs="?", help="more files, searched with everything below it")
    parser.add_argument("--networks", type=int, default=200)
    parser.add_argument("--shape", action="append", default=[], metavar="STEM:INPUT=1,2", help="dimensions of an input")
    options = parser.parse_args()
    shapes, started = shapes_by_stem(options.shape), time.monotonic()
    outcomes: list[Outcome] = []
    left: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for number, path in enumerate(networks(options, Path(folder))):
            if len(outcomes) == options.networks:
                break
            dimensions = next((v for stem, v in shapes.items() if path.name.startswith(stem)), {})
            try:
                outcome = Network(path, dimensions).planted(np.random.default_rng(number))
            except NnbridgeError as error:
                left[f"{path.name}: {str(error).splitlines()[0][:150]}"] += 1
                continue
            if outcome is None:
                left[f"{path.name}: no operation can have a fault that changes something"] += 1
                continue
            outcomes.append(outcome)
            if not outcome.named:
                where = f"{outcome.file}, {outcome.fault} in {outcome.target}, against {outcome.against}"
                print(f"NOT NAMED: {where}: {outcome.found}")
    for text in left:
        print(f"left out: {text}")
    for what in ("fault", "against"):
        counts = Counter(getattr(outcome, what) for outcome in outcomes)
        print(f"by {what}: {', '.join(f'{name} {count}' for name, count in counts.most_common())}")
    named = sum(outcome.named for outcome in outcomes)
    files = sum(not outcome.file.startswith("random ") for outcome in outcomes)
    print(f"{named} of {len(outcomes)} named, {files} of them files, {time.monotonic() - started:.0f} s")
    sys.exit(0 if named == len(outcomes) else 1)


if __name__ == "__main__":
    with one_line_errors():
        main()
