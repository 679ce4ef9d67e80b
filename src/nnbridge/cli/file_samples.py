"""The samples of ``compare --input``, and how often both sides find the classes that their labels state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nnbridge.cli.options import interface_of
from nnbridge.compare import Array, Reference, Sample, in_model, input_samples, named_outputs
from nnbridge.inputs import Dataset, Preparation, read_labels
from nnbridge.model import Model
from nnbridge.report.answers import Accuracy, Classification, answers, label_names


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
        self._classified = self._agree = 0

    def __len__(self) -> int:
        return len(self.dataset)

    def samples(self, reference: Reference | Path) -> Iterator[Sample]:
        """One for each file, or each file of a folder."""

        def named() -> Iterator[tuple[str, Mapping[str, Array]]]:
            for item in self.dataset:
                self._label = item.label
                yield item.name, item.inputs

        return input_samples(self._model, reference, named())

    def observe(self, sample: Sample, outputs: Mapping[str, Array]) -> None:
        """Count in the sample that was read last."""
        operands = named_outputs(self._model)
        expected = sample.outputs if isinstance(sample.outputs, Mapping) else dict(zip(operands, sample.outputs, strict=True))
        references = {name: in_model(operand, expected[name]) for name, operand in operands.items()}
        names = label_names(self._model, self._stated.outputs, self._labels, outputs)
        ours, theirs = (answers(self._model, arrays, names) for arrays in (outputs, references))
        self._ours.add(ours, self._label, names)
        self._reference.add(theirs, self._label, names)
        firsts = [[a.top[0].index for a in found if isinstance(a, Classification)] for found in (ours, theirs)]
        if firsts[0]:
            self._classified += 1
            self._agree += firsts[0] == firsts[1]

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        counts = {**self._ours.as_dict(), "reference": self._reference.as_dict()}
        agreement = {"classified": self._classified, "top1_agreement": self._agree}
        return {"accuracy": {**counts, **agreement}, "notes": list(self.dataset.notes)}

    def lines(self) -> list[str]:
        """Agreement, and accuracy where labels are known."""
        same = [f"top-1 agreement: {self._agree} of {self._classified} samples"] if self._classified else []
        return [*same, *self._ours.lines("accuracy"), *self._reference.lines("the reference's accuracy")]
