"""Parts of a source file beside an outside runtime: what nnbridge computes differently from LiteRT or ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import TypeAlias

from nnbridge.compare.arrays import Array
from nnbridge.compare.samples import Reference, answered, outputs_in_model
from nnbridge.converters import ConversionOptions
from nnbridge.errors import RefusalError
from nnbridge.model import Model
from nnbridge.records import dataclass
from nnbridge.reduction.parts import ReductionCandidate, Whole
from nnbridge.reduction.source_part import loaded_part, source_part
from nnbridge.reduction.symptoms import DIFFERS, Predicate, Search, Symptom, symptom_of
from nnbridge.storage.temporary import TemporaryFolder

Runtime: TypeAlias = "Callable[[Path], Reference]"
"""An outside runtime for a file."""


@dataclass(frozen=True)
class FileCandidate(ReductionCandidate):
    """A model with values for its inputs, and the file that it was read from."""

    file: Path


@dataclass(frozen=True)
class WholeFile(Whole):
    """A file and every value of one run of its model; its parts are files of whole operators."""

    options: ConversionOptions = field(default_factory=ConversionOptions)
    file: Path = Path()
    folder: TemporaryFolder = field(default_factory=TemporaryFolder)
    """Where parts are written."""

    @classmethod
    def read(cls, file: Path, options: ConversionOptions, model: Model, inputs: Mapping[str, Array], device: str) -> WholeFile:
        """``model``: the file's under these options; ``device`` computes the values that reach the parts."""
        values = Whole.of(model, inputs, device).values
        return cls(FileCandidate(model, inputs, file), values, device, options, file)

    def part(self, operations: Iterable[int]) -> ReductionCandidate | None:
        """The part; None where it cannot be cut out of the file, or where a value that reaches it is not known."""
        folder = Path(self.folder.name)
        # Never the same name: constants of earlier parts stay mapped.
        path = folder / f"{len(list(folder.iterdir()))}{self.file.suffix}"
        try:
            path.write_bytes(source_part(self.file, self.candidate.model, operations))
            found = next(loaded_part(path, self.candidate.model, self.values, self.options), None)
        except RefusalError:
            return None
        return None if found is None else FileCandidate(found.model, found.inputs, path)


def beside(runtime: Runtime, search: Search) -> Predicate:
    """True for a :class:`FileCandidate` whose answers differ from a runtime's."""
    search = replace(search, kinds=(DIFFERS,))

    def predicate(candidate: ReductionCandidate) -> Symptom | None:
        try:
            expected = answers(runtime, candidate)
        except RefusalError:
            return None  # A part that the runtime does not run.
        return symptom_of(search, candidate, expected, search.drivers)

    return predicate


def answers(runtime: Runtime, candidate: ReductionCandidate) -> dict[str, Array]:
    """A runtime's outputs for a candidate with a file, by name and in the model's types."""
    assert isinstance(candidate, FileCandidate), "a part of a file"
    reference = runtime(candidate.file)
    reference.reset()
    fitted = outputs_in_model(candidate.model, answered(candidate.model, reference, candidate.inputs))
    return {name: array if array.shape else array.reshape(1) for name, array in fitted.items()}
