"""Saving what a reduction came to, in every form that shows it again; each file is tried after it was written."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from nnbridge import storage
from nnbridge.compare.arrays import Array, load_arrays, save_arrays
from nnbridge.compare.comparison import new_comparisons
from nnbridge.compare.samples import as_samples, named_inputs, named_outputs
from nnbridge.compare.tensors import DeviceReference
from nnbridge.conformance.cases import read_cases
from nnbridge.conformance.outcome import FAILED
from nnbridge.conformance.run import Setting, run_case
from nnbridge.converters import ConversionOptions, Importer, opened
from nnbridge.devices import CPU_NAME, cpu
from nnbridge.errors import RefusalError
from nnbridge.export.cases import case_data, example
from nnbridge.file import load
from nnbridge.model import Model
from nnbridge.records import dataclass
from nnbridge.reduction.parts import ReductionCandidate, Whole
from nnbridge.reduction.reducing import Reduction
from nnbridge.reduction.search import minimised
from nnbridge.reduction.source_part import loaded_part, source_part
from nnbridge.reduction.symptoms import DIFFERS, FAILS, FALLS_BACK, SLOW, Predicate, Search
from nnbridge.storage.atomic import atomic_write


@dataclass(frozen=True)
class Saved:
    """A file of a reduction."""

    path: Path
    kind: str
    """``model``, ``inputs``, ``case`` or ``source``."""
    written: bool = True
    shows: bool = False
    """True if the file, read again, shows the symptom."""
    note: str = ""
    """Why it was not written, or does not show it."""

    def __str__(self) -> str:
        state = "reproduces the fault" if self.shows else "does not reproduce it" if self.written else "not written"
        return f"{self.path}: {state}" + (f" ({self.note})" if self.note else "")

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"file": str(self.path), "kind": self.kind, "written": self.written, "shows": self.shows, "note": self.note}


@dataclass(frozen=True)
class Saver:
    """The folder and files of a reduction, and the command that its files are tried with."""

    stem: Path
    """The files' path without its suffix."""
    predicate: Predicate
    search: Search
    whole: Whole
    source: Path
    options: ConversionOptions
    """Of the conversion of the source."""
    expected: Mapping[str, Array] | None = None
    """An outside runtime's outputs of what is left; without them those of NNAPI's CPU are right."""

    def save(self, reduction: Reduction) -> tuple[Saved, ...]:
        """Write a saved model with its inputs, a conformance case, and the source file's part if it has one."""
        if reduction.symptom is None:
            return ()
        found = reduction.candidate
        model, inputs = self._path(".nnapi"), self._path(".npz")
        storage.save(found.model, model)
        save_sample(inputs, found, self.expected)
        shows = self._shows(load(model), inputs)
        saved = [Saved(model, "model", shows=shows), Saved(inputs, "inputs", shows=shows)]
        saved.append(self._tried(self._path(".json.gz"), "case", partial(self._case, reduction)))
        importer = opened(self.source)
        if type(importer).part is not Importer.part:
            saved += self._source(reduction, self._path(self.source.suffix.lower() or importer.suffixes[0]))
        return tuple(saved)

    def _path(self, suffix: str) -> Path:
        return self.stem.with_name(self.stem.name + suffix)

    def _tried(self, path: Path, kind: str, write: Callable[[Path], str]) -> Saved:
        """``write`` returns why the file does not show the symptom; an empty text if it does."""
        try:
            note = write(path)
            return Saved(path, kind, shows=not note, note=note)
        except RefusalError as error:
            return Saved(path, kind, written=False, note=str(error))

    def _shows(self, model: Any, inputs: Path) -> bool:
        arrays = load_arrays(inputs)
        return (
            self.predicate(ReductionCandidate(model, {name: arrays[f"input:{name}"][0] for name in named_inputs(model)}))
            is not None
        )

    def _case(self, reduction: Reduction, path: Path) -> str:
        found, symptom = reduction.candidate, reduction.symptom
        assert symptom is not None
        shown = example(found.model, _in_order(found))
        if self.expected is not None:
            shown = replace(shown, outputs=list(self.expected.values()))
        name = self.stem.name
        data = case_data(shown, name)
        if symptom.kind == DIFFERS:
            data["tolerances"] = [list(pair) for pair in self._tolerances(found, shown.outputs)]
        content = {"suite": os.path.basename(os.path.dirname(os.path.realpath(path))), "spec": name, "cases": [data]}
        with atomic_write(path) as file:
            file.write(gzip.compress(json.dumps(content).encode(), mtime=0))
        if symptom.kind not in (FAILS, FALLS_BACK, DIFFERS):
            return "vts measures no time" if symptom.kind == SLOW else "vts does not know the predicate"
        (case,) = read_cases(path)
        ends = {driver.name: run_case(case, Setting(driver)).status for driver in self.search.drivers or (cpu(),)}
        return "" if FAILED in ends.values() else ", ".join(f"vts on {name}: {status}" for name, status in ends.items())

    def _tolerances(self, found: ReductionCandidate, outputs: Sequence[Array]) -> list[tuple[float, float]]:
        """The absolute and relative tolerance of each output, as the search computed them."""
        names = named_outputs(found.model)
        known = self.search.tolerances
        mine = replace(known, by_name={name: own for name, own in known.by_name.items() if name in names})
        comparisons = new_comparisons(found.model, mine)
        for comparison, expected in zip(comparisons, outputs, strict=True):
            comparison.add(expected, expected)
        return [(comparison.atol, comparison.rtol) for comparison in comparisons]

    def _source(self, reduction: Reduction, path: Path) -> list[Saved]:
        """The source file's part, and the values of its inputs beside it."""
        inputs = path.with_name(path.name + ".npz")

        def part_of(path: Path, operations: Collection[int]) -> str:
            content = source_part(self.source, reduction.whole, operations)
            with atomic_write(path) as file:
                file.write(content)
            return self._write_inputs(path, inputs)

        own = set(reduction.operations)

        def shows(others: tuple[int, ...]) -> bool:
            try:
                return not part_of(path, own.union(others))
            except RefusalError:
                return False  # What cannot be cut out of the file by itself may be with more of its neighbours.

        def write(path: Path) -> str:
            if shows(()):
                return ""
            if self.expected is not None:
                return part_of(path, own)  # An outside runtime's outputs are those of these operators only.
            # What the converter adds between two operators is not there with only one of them. Another order of axes comes
            # from the operator that needs it, and those between hand it on, however many.
            others = next(filter(shows, _neighbourhoods(reduction.whole, own)), ())
            return part_of(path, own.union(minimised(others, shows)))

        saved = self._tried(path, "source", write)
        return [saved, *([Saved(inputs, "inputs", shows=saved.shows)] if inputs.is_file() and saved.written else [])]

    def _write_inputs(self, path: Path, inputs: Path) -> str:
        """The values that reach the part; why it does not show the symptom with them."""
        candidates = list(loaded_part(path, self.whole.candidate.model, self.whole.values, self.options))
        if not candidates:
            return "the run of the whole model shows no values for its inputs"
        found = next((candidate for candidate in candidates if self.predicate(candidate) is not None), None)
        save_sample(inputs, found or candidates[0], self.expected)
        return "" if found is not None else "its operators do not show it with these inputs"


def _neighbourhoods(model: Model, operations: Collection[int]) -> Iterator[tuple[int, ...]]:
    """The others at most 1, 2, 4, ... operations away, before or after, until all that are connected are there."""
    own, grown, distance = set(operations), set(operations), 0
    while True:
        before, steps = grown, max(distance, 1)
        for _ in range(steps):
            grown = _with_neighbours(model, grown)
        if grown == before:
            return
        yield tuple(sorted(grown - own))
        distance += steps


def _with_neighbours(model: Model, operations: Collection[int]) -> set[int]:
    """The operations with those that they read from and those that read from them."""
    main, grown = model.main, set(operations)
    for k in operations:
        grown.update(main.producers[i] for i in main.operations[k].inputs if i in main.producers)
        grown.update(reader for i in main.operations[k].outputs for reader in main.consumers.get(i, ()))
    return grown


def save_sample(path: Path, candidate: ReductionCandidate, expected: Mapping[str, Array] | None = None) -> None:
    """The inputs with right outputs, by default the CPU's, as ``nnbridge compare --reference`` reads them."""
    outputs = DeviceReference(candidate.model, CPU_NAME).run(candidate.inputs) if expected is None else expected
    save_arrays(path, as_samples(candidate.inputs, outputs))


def _in_order(candidate: ReductionCandidate) -> list[Array | None]:
    return [candidate.inputs[name] for name in named_inputs(candidate.model)]
