"""The samples that commands compare on: drawn with seeds, read from files, or stored with a reference's outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nnbridge.cli.file_samples import FileSamples
    from nnbridge.compare import Reference, Sample
    from nnbridge.compare.references import ApartReference
    from nnbridge.compare.tensors import DeviceReference
    from nnbridge.inputs import Preparation
    from nnbridge.model import Model

    Runtime = ApartReference | DeviceReference


@dataclass(frozen=True)
class Samples:
    """Samples with a reference's outputs, and how many they are."""

    draw: Callable[[], Iterable[Sample]]
    """All of them, anew with each call."""
    total: int
    files: FileSamples | None
    """Those of ``--input``."""

    def counted(self, advance: Callable[[int], None]) -> Iterator[Sample]:
        """All of them; ``advance`` is called when each is done."""
        for sample in self.draw():
            yield sample
            advance(1)


def with_outputs(inputs: Sequence[str]) -> str | None:
    """The first file of ``--input`` that holds a reference's outputs too, as ``run --samples`` and ``reduce`` write them."""
    from nnbridge.compare.arrays import array_names

    archives = (text for text in inputs if text.lower().endswith(".npz") and Path(text).is_file())
    return next((text for text in archives if any(name.startswith("output:") for name in array_names(Path(text)))), None)


def samples_of(
    model: Model,
    path: Path,
    reference: Reference | Path | None,
    inputs: tuple[str, ...],
    labels: Path | None,
    how: Preparation,
    options: Mapping[str, Any],
    seeds: Sequence[int],
    steps: int = 1,
) -> Samples:
    """Samples from files if there are any, else :func:`drawn_samples`; ``reference``: a runtime, or a file of stored samples."""
    from nnbridge.cli.file_samples import FileSamples

    if inputs:
        files = FileSamples(model, path, inputs, labels, how, options, seeds[0])
        return Samples(lambda: files.samples(reference), len(files), files)
    return drawn_samples(model, reference, seeds, steps)


def drawn_samples(model: Model, reference: Reference | Path | None, seeds: Sequence[int], steps: int = 1) -> Samples:
    """The samples of a stored reference, else drawn with seeds."""
    from nnbridge import compare as comparing

    if isinstance(reference, Path):
        listed = comparing.stored_samples(model, reference)
        return Samples(lambda: listed, len(listed), None)
    return Samples(lambda: comparing.seeded_samples(model, reference, seeds, steps), len(seeds) * steps, None)
