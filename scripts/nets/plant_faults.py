"""Plant a fault in a random operation of many networks, and count how often ``compare --layers`` names the operation.

python scripts/nets/plant_faults.py
python scripts/nets/plant_faults.py folder --networks 200 --shape silero:input=1,512 --shape silero:state=2,1,128
python scripts/nets/plant_faults.py folder --networks 200 --search

The networks are the files of models/ and of the folder, once each, and as many random ones as are missing: TFLite with floats,
TFLite with 8 bits, ONNX, in turn. A driver that computes like NNAPI's CPU has the fault in one operation: integers a step off,
floats through float16, a wrong zero point, a transposed filter, padding that is off by one (tests/compare/faults.py). The
reference is LiteRT or ONNX Runtime; where one computes an operation of the network otherwise by itself, it is NNAPI's reference
kernels. So it is for a fault in one of several operations of an operator that changes none of the runtime's tensors, as the next
one rounds it away. A fault that changes nothing beyond tolerance in its operation's result is drawn again. Exit status 0 only if
the operation is named each time.

With --search, ``bisect`` and ``reduce`` search for the fault instead, one that changes an output of the network on NNAPI's CPU
beyond tolerance: in log2(n) + 2 runs at most, n being the operations that the driver gets, down to a median of one operation, and
each file that is saved must show the fault when it is read again.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import MODELS, RUNTIMES, argument_parser, finished, one_line_errors, shapes_by_stem

from nnbridge import NnbridgeError, load
from nnbridge.compare import Sample, Tolerance, Tolerances, seeded_samples
from nnbridge.compare.layers import LayerComparison, compare_layers
from nnbridge.compare.references import reference
from nnbridge.compare.tensors import DeviceReference, tensors_of
from nnbridge.converters import ConversionOptions
from nnbridge.devices import CPU_NAME, Device
from nnbridge.model import Model, Operation
from nnbridge.reduction import ReductionCandidate, Search, Whole, bisect, reduce
from nnbridge.reduction.saving import Saved, Saver
from nnbridge.reduction.symptoms import DIFFERS, on_devices, symptom_of
from tests.compare.faults import FAULTS, FaultyDriver, applies, fingerprint, recognisable
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

    def driver(self, target: Operation, fault: str) -> FaultyDriver:
        """A driver with a fault in one operation."""
        return FaultyDriver(target.name, fault, like=fingerprint(self.model, target))

    def planted(self, rng: np.random.Generator) -> Outcome | None:
        """A fault that changes something and what is named; None if there is none."""
        candidates = [(o, fault) for o in recognisable(self.model) for fault in FAULTS if applies(fault, self.model, o)]
        for k in rng.permutation(len(candidates))[:TRIES]:
            target, fault = candidates[int(k)]
            found = self.layers(self.driver(target, fault))
            outcome = self._outcome(found, target, fault)
            if outcome is not None:
                return outcome
        return None

    def _outcome(self, found: LayerComparison, target: Operation, fault: str) -> Outcome | None:
        positions = {("", i) for i in target.outputs}
        mine = [layer for layer in found.layers if layer.position in positions]
        own, against = [layer.own for layer in mine if layer.own is not None], self.runtime.name
        if not own:
            beside = self._beside_kernels(target, fault)
            if not shows(beside):
                return None
            if not shows(found):
                found, against = beside, "reference"
        elif not any(o.beyond for o in own):
            return None
        origin = found.origin
        same = origin is not None and (origin.operator == mine[0].operator or origin.hidden == mine[0].place)
        named = same or (origin is not None and origin.position in positions)
        place = "nothing" if origin is None else origin.hidden or origin.place
        return Outcome(self.path.name, fault, mine[0].place, against, place, named)

    def _beside_kernels(self, target: Operation, fault: str) -> LayerComparison:
        """The comparison with NNAPI's reference kernels, which show what the runtime has no tensors of."""
        inner = DeviceReference(self.model, "reference")
        samples = seeded_samples(self.model, inner, [0])
        driver = finished(self.model, [self.driver(target, fault)])
        return compare_layers(driver, inner.name, samples, tensors_of(inner), EXACT, explained=False)


def shows(found: LayerComparison) -> bool:
    """True if a tensor has an own error or a drift beyond tolerance."""
    return any(side is not None and side.beyond > 0 for layer in found.layers for side in (layer.own, layer.drift))


@dataclass(frozen=True)
class Searched:
    """A fault that was searched for."""

    file: str
    fault: str
    target: str
    placed: int
    runs: int
    named: bool
    """True if bisect found this operation and no other."""
    left: int
    """Operations that reduce left."""
    saved: tuple[Saved, ...]

    @property
    def within_limit(self) -> bool:
        """True for log2(n) + 2 runs of bisect at most."""
        return self.runs <= math.log2(self.placed) + 2

    @property
    def problems(self) -> list[str]:
        """The differences from what should be."""
        found = [] if self.named else ["not found by bisect"]
        found += [] if self.within_limit else [f"{self.runs} runs for {self.placed} operations"]
        return found + [str(file) for file in self.saved if not file.shows]


def searched(path: Path, shapes: Mapping[str, tuple[int, ...]], rng: np.random.Generator, folder: Path) -> Searched | None:
    """A fault that changes an output, and how the searches for it end; None if there is none."""
    asked = ConversionOptions(shapes=dict(shapes))
    model = load(path, asked)
    (sample,) = seeded_samples(model, DeviceReference(model, CPU_NAME), [0])
    whole = Whole.of(model, sample.inputs, CPU_NAME)
    candidates = [(o, fault) for o in recognisable(model) for fault in FAULTS if applies(fault, model, o)]
    for k in rng.permutation(len(candidates))[:TRIES]:
        target, fault = candidates[int(k)]
        driver = FaultyDriver(target.name, fault, like=fingerprint(model, target))
        search = Search((driver,), (DIFFERS,), Tolerances(EXACT))
        if symptom_of(search, ReductionCandidate(model, sample.inputs), sample.outputs, [driver]) is None:
            continue
        found = bisect(model, search, [sample])
        named = [model.main.operations[c.placed.index].outputs for c in found.culprits] == [target.outputs]
        predicate = on_devices(search)
        reduction = reduce(whole, predicate)
        saved = Saver(folder / path.name.split(".")[0], predicate, search, whole, path, asked).save(reduction)
        if all(model.main.operations[k].source is None for k in reduction.operations):
            # An input that is an output is copied here; the file has no operator for that.
            saved = tuple(file for file in saved if file.kind != "source")
        left = len(reduction.operations)
        return Searched(path.name, fault, target.name, found.placed, found.runs, found.found and named, left, saved)
    return None


def report_searches(found: Sequence[Searched]) -> bool:
    """Print what is not as it should be, and the counts; True if all is."""
    for one in found:
        for problem in one.problems:
            print(f"{one.file}, {one.fault} in {one.target}: {problem}")
    print(f"by fault: {', '.join(f'{name} {count}' for name, count in Counter(one.fault for one in found).most_common())}")
    files = [file for one in found for file in one.saved]
    for kind in dict.fromkeys(file.kind for file in files):
        of = [file for file in files if file.kind == kind]
        print(f"{kind}: {sum(file.shows for file in of)} of {len(of)} show it, {sum(file.written for file in of)} written")
    runs = [one.runs for one in found]
    print(f"bisect: {sum(one.named for one in found)} of {len(found)} found, {sum(one.within_limit for one in found)} within")
    print(f"log2(n) + 2 runs; {statistics.median(runs)} runs in the median, {max(runs)} at most,")
    print(f"for {min(one.placed for one in found)} to {max(one.placed for one in found)} operations")
    left = Counter(one.left for one in found)
    print(f"reduce: a median of {statistics.median(one.left for one in found)}; operations left: networks: {dict(left)}")
    return not any(one.problems for one in found) and statistics.median(one.left for one in found) == 1


def networks(options: argparse.Namespace, folder: Path) -> Iterator[Path]:
    """The files, then random networks."""
    given = [MODELS, *([options.folder] if options.folder else [])]
    yield from sorted(p for where in given for p in where.rglob("*") if p.suffix in RUNTIMES)
    first = 10 * options.networks * options.seed
    for seed in range(first, first + 10 * options.networks):
        if seed % 3 == 2:
            yield onnx_network(folder / f"random {seed}.onnx", seed)
        else:
            yield tflite_network(folder / f"random {seed}.tflite", seed, quantised=seed % 3 == 1)


def report_names(found: Sequence[Outcome]) -> bool:
    """Print each fault that is not named, and the counts; True if there is none."""
    for one in found:
        if not one.named:
            print(f"NOT NAMED: {one.file}, {one.fault} in {one.target}, against {one.against}: {one.found}")
    for what in ("fault", "against"):
        counts = Counter(getattr(one, what) for one in found)
        print(f"by {what}: {', '.join(f'{name} {count}' for name, count in counts.most_common())}")
    named = sum(one.named for one in found)
    print(f"{named} of {len(found)} named")
    return named == len(found)


def main() -> None:
    """Plant a fault in each network, print what is found and what is not; exit with 1 if something is not."""
    parser = argument_parser()
    parser.add_argument("folder", type=Path, nargs="?", help="more files, searched with everything below it")
    parser.add_argument("--networks", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="other faults, and other random networks")
    parser.add_argument("--search", action="store_true", help="search with bisect and reduce instead of compare --layers")
    parser.add_argument("--shape", action="append", default=[], metavar="STEM:INPUT=1,2", help="dimensions of an input")
    options = parser.parse_args()
    shapes, started = shapes_by_stem(options.shape), time.monotonic()
    outcomes: list[Any] = []
    left: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for number, path in enumerate(networks(options, Path(folder))):
            if len(outcomes) == options.networks:
                break
            dimensions = next((v for stem, v in shapes.items() if path.name.startswith(stem)), {})
            rng = np.random.default_rng([options.seed, number] if options.seed else number)
            try:
                if options.search:
                    saved = Path(folder) / str(number)
                    saved.mkdir()
                    outcome = searched(path, dimensions, rng, saved)
                else:
                    outcome = Network(path, dimensions).planted(rng)
            except NnbridgeError as error:
                left[f"{path.name}: {str(error).splitlines()[0][:150]}"] += 1
                continue
            if outcome is None:
                left[f"{path.name}: no operation can have a fault that changes something"] += 1
            else:
                outcomes.append(outcome)
    for text in left:
        print(f"left out: {text}")
    passed = (report_searches if options.search else report_names)(outcomes)
    files = sum(not outcome.file.startswith("random ") for outcome in outcomes)
    print(f"{len(outcomes)} networks, {files} of them files, {time.monotonic() - started:.0f} s")
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    with one_line_errors():
        main()
