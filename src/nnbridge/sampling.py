"""The samples that a plan is compared on: drawn with seeds, read from files, or stored with a reference's outputs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nnbridge.compare.arrays import Array, array_names
from nnbridge.compare.samples import Reference, Sample, input_samples, seeded_samples, stored_samples
from nnbridge.converters.inspection import SignatureInfo
from nnbridge.errors import ConversionError
from nnbridge.inputs import Dataset, Preparation, read_ahead, read_labels
from nnbridge.model import Model
from nnbridge.plan import Planned
from nnbridge.records import dataclass
from nnbridge.report.agreement import Agreement, both_answers
from nnbridge.report.answers import Accuracy, label_names


@dataclass(frozen=True)
class Samples:
    """Samples with a reference's outputs, and how many they are."""

    draw: Callable[[], Iterable[Sample]]
    """All of them, again with each call."""
    total: int
    files: FileSamples | None
    """Those of ``--input``."""

    def ahead(self) -> Samples:
        """The same, the next ones read and run by the reference while one is compared.

        Not where the reference is asked for more than outputs.
        """
        return replace(self, draw=lambda: read_ahead(self.draw()))

    def counted(self, advance: Callable[[int], None]) -> Iterator[Sample]:
        """All of them; ``advance`` is called when each is done."""
        for sample in self.draw():
            yield sample
            advance(1)


def with_outputs(inputs: Sequence[str]) -> str | None:
    """The first file of ``--input`` that holds a reference's outputs too, as ``run --samples`` and ``reduce`` write them."""
    archives = (text for text in inputs if text.lower().endswith(".npz") and os.path.isfile(text))
    return next((text for text in archives if any(name.startswith("output:") for name in array_names(Path(text)))), None)


def samples_of(
    planned: Planned,
    reference: Reference | Path | None,
    inputs: tuple[str, ...],
    labels: Path | None,
    how: Preparation,
    seeds: Sequence[int],
    steps: int = 1,
) -> Samples:
    """Samples from files if there are any, else :func:`drawn_samples`; ``reference``: a runtime, or a file of stored samples."""
    if inputs:
        files = FileSamples(planned, inputs, labels, how, seeds[0])
        return Samples(lambda: files.samples(reference), len(files), files)
    return drawn_samples(planned.model, reference, seeds, steps)


def drawn_samples(model: Model, reference: Reference | Path | None, seeds: Sequence[int], steps: int = 1) -> Samples:
    """The samples of a stored reference, else drawn with seeds."""
    if isinstance(reference, Path):
        listed = stored_samples(model, reference)
        return Samples(lambda: listed, len(listed), None)
    return Samples(lambda: seeded_samples(model, reference, seeds, steps), len(seeds) * steps, None)


class FileSamples:
    """Inputs from files with a reference's outputs. Inputs without a file are drawn with a seed."""

    def __init__(self, planned: Planned, inputs: tuple[str, ...], labels: Path | None, how: Preparation, seed: int) -> None:
        self._model = model = planned.model
        notes: dict[str, None] = {}
        try:
            self._stated = planned.file.interface
        except ConversionError as error:
            self._stated = SignatureInfo("", (), ())
            notes[f"metadata is not used: {error}"] = None
        self._labels = read_labels(labels) if labels is not None else ()
        self.dataset = Dataset.of(model, inputs, seed=seed, how=how, stated=self._stated.inputs)
        drawn = [name for name in self.dataset.others if name not in self.dataset.entries]
        self.dataset.notes |= notes | {f"input {name} has no file and is drawn with seed {seed}": None for name in drawn}
        self._classes: dict[str, str] = {}
        """The label of each sample that was read."""
        self._ours, self._reference = Accuracy(), Accuracy()
        self.agreement = Agreement()

    def __len__(self) -> int:
        return len(self.dataset)

    def samples(self, reference: Reference | Path | None) -> Iterator[Sample]:
        """One for each file, or each file of a folder."""

        def named() -> Iterator[tuple[str, Mapping[str, Array]]]:
            for item in self.dataset:
                self._classes[item.name] = item.label
                yield item.name, item.inputs

        return input_samples(self._model, reference, named())

    def observe(self, sample: Sample, outputs: Mapping[str, Array]) -> None:
        """Count a sample in."""
        label = self._classes.get(sample.label, "")
        names = label_names(self._model, self._stated.outputs, self._labels, outputs)
        ours, theirs = both_answers(self._model, sample, outputs, names)
        self._ours.add(ours, label, names)
        self._reference.add(theirs, label, names)
        self.agreement.add(ours, theirs)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        counts = {**self._ours.as_dict(), "reference": self._reference.as_dict()}
        agreement = {"classified": self.agreement.classified, "top1_agreement": self.agreement.top1}
        return {"accuracy": {**counts, **agreement}, "notes": list(self.dataset.notes)}

    def lines(self) -> list[str]:
        """Accuracy where labels are known."""
        return [*self._ours.lines("accuracy"), *self._reference.lines("the reference's accuracy")]
