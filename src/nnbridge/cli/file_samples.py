"""The samples of ``compare --input``, and how often both sides find the classes that their labels state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nnbridge.cli.options import interface_of
from nnbridge.compare import Array, Reference, Sample, input_samples
from nnbridge.inputs import Dataset, Preparation, read_labels
from nnbridge.model import Model
from nnbridge.report.agreement import Agreement, both_answers
from nnbridge.report.answers import Accuracy, label_names


class FileSamples:
    """Inputs from files with a reference's outputs. Inputs without a file are drawn with a seed."""

    def __init__(
        self,
        model: Model,
        path: Path,
        inputs: tuple[str, ...],
        labels: Path | None,
        how: Preparation,
        options: Mapping[str, Any],
        seed: int,
    ) -> None:
        self._model, self._stated = model, interface_of(path, options)
        self._labels = read_labels(labels) if labels is not None else ()
        self.dataset = Dataset.of(model, inputs, seed=seed, how=how, stated=self._stated.inputs)
        drawn = [name for name in self.dataset.others if name not in self.dataset.entries]
        self.dataset.notes |= {f"input {name} has no file and is drawn with seed {seed}": None for name in drawn}
        self._label = ""
        self._ours, self._reference = Accuracy(), Accuracy()
        self.agreement = Agreement()

    def __len__(self) -> int:
        return len(self.dataset)

    def samples(self, reference: Reference | Path | None) -> Iterator[Sample]:
        """One for each file, or each file of a folder."""

        def named() -> Iterator[tuple[str, Mapping[str, Array]]]:
            for item in self.dataset:
                self._label = item.label
                yield item.name, item.inputs

        return input_samples(self._model, reference, named())

    def observe(self, sample: Sample, outputs: Mapping[str, Array]) -> None:
        """Count in the sample that was read last."""
        names = label_names(self._model, self._stated.outputs, self._labels, outputs)
        ours, theirs = both_answers(self._model, sample, outputs, names)
        self._ours.add(ours, self._label, names)
        self._reference.add(theirs, self._label, names)
        self.agreement.add(ours, theirs)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        counts = {**self._ours.as_dict(), "reference": self._reference.as_dict()}
        agreement = {"classified": self.agreement.classified, "top1_agreement": self.agreement.top1}
        return {"accuracy": {**counts, **agreement}, "notes": list(self.dataset.notes)}

    def lines(self) -> list[str]:
        """Accuracy where labels are known."""
        return [*self._ours.lines("accuracy"), *self._reference.lines("the reference's accuracy")]
