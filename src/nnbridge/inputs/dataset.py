"""Files and folders for a model's inputs, as a sequence of samples that are read one at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path

from nnbridge.compare.arrays import Array, array_names, load_array, load_arrays
from nnbridge.compare.samples import named_inputs, seeded_inputs
from nnbridge.converters.inspection import TensorInfo, TensorMetadata
from nnbridge.errors import InputError, Reason, cannot_read, near
from nnbridge.extensions import TYPES, codec_of, operand_dtype
from nnbridge.inputs.preparation import InputTarget, Picture, Preparation, PreparedInput, fit, prepare
from nnbridge.model import Model, Operand
from nnbridge.reading import read_at_most
from nnbridge.records import dataclass


@dataclass(frozen=True)
class Item:
    """One set of inputs."""

    name: str
    """Of its file, below the folder that was named."""
    inputs: Mapping[str, Array]
    label: str = ""
    """The sub-folder of its file: what the model should answer."""
    picture: Picture | None = None
    """The first image among its files."""


@dataclass(frozen=True)
class _Entry:
    """One file for one input, or one array of a file."""

    name: str
    label: str
    read: Callable[[], PreparedInput]


@dataclass
class Dataset:
    """The samples for a model, in the order of their files' names: iterating or asking for one reads its files.

    An input with one file has it in every sample; inputs with folders of equally many files go together in their order.
    """

    inputs: tuple[str, ...]
    entries: Mapping[str, Sequence[_Entry]]
    others: Mapping[str, Array]
    """Inputs without files, drawn with a seed."""
    notes: dict[str, None] = field(default_factory=dict)
    """What should be known about the files that were read so far, each line once."""
    _singles: dict[str, PreparedInput] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        model: Model,
        texts: Sequence[str],
        *,
        seed: int | None = None,
        how: Preparation | None = None,
        stated: Sequence[TensorInfo] = (),
    ) -> Dataset:
        """The samples for ``FILE``, ``FOLDER``, ``NAME=FILE`` and ``NAME=FOLDER``; inputs without one are drawn with the seed.

        ``stated``: the model file's inputs with their metadata. InputError for an unknown or missing input.
        """
        operands = named_inputs(model)
        facts = metadata_by_name(tuple(operands), stated)
        files: dict[str, str] = {}
        entries: dict[str, Sequence[_Entry]] = {}

        def add(name: str, file: str, found: Sequence[_Entry]) -> None:
            if name in files:
                raise InputError(Reason("each input once", f"{files[name]} and {file}", operand=f"input {name}"))
            files[name], entries[name] = file, found

        for text in texts:
            name, file = _split(model, text)
            path = Path(file)
            if name is None and path.suffix.lower() == ".npz" and os.path.isfile(path):
                for inside, found in _archive(model, path).items():
                    add(inside, file, found)
                continue
            chosen = name if name is not None else next(iter(operands))
            target = InputTarget(chosen, operands[chosen], facts.get(chosen, TensorMetadata()))
            read = partial(prepare, target, how=how)
            several = _batches(target, path)
            add(
                chosen,
                file,
                several or [_Entry(n, label, partial(read, p)) for n, label, p in _files(path, target)],
            )
        others = {} if seed is None else seeded_inputs(model, seed, without=entries)
        missing = [name for name in operands if name not in entries and name not in others]
        if missing:
            raise InputError(Reason("--input for every input, or --seed", f"none for {', '.join(missing)}"))
        lengths = {name: len(found) for name, found in entries.items() if len(found) > 1}
        if len(set(lengths.values())) > 1:
            counts = ", ".join(f"{count} for {name}" for name, count in lengths.items())
            raise InputError(Reason("as many files for every input, or one", counts, operand="input"))
        return cls(tuple(operands), entries, others)

    def __len__(self) -> int:
        return max(map(len, self.entries.values()), default=1)

    def __iter__(self) -> Iterator[Item]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, k: int) -> Item:
        """The sample at a place from 0 on, whose files are read now; several threads may ask."""
        if not 0 <= k < len(self):
            raise IndexError(f"sample {k} of {len(self)}")
        read = {name: found[k].read() if len(found) > 1 else self._single(name) for name, found in self.entries.items()}
        several = [found[k] for found in self.entries.values() if len(found) > 1] or [found[0] for found in self.entries.values()]
        self.notes.update(dict.fromkeys(note for prepared in read.values() for note in prepared.notes))
        return Item(
            several[0].name if several else "",
            {name: read[name].array if name in read else self.others[name] for name in self.inputs},
            next((entry.label for entry in several if entry.label), ""),
            next((prepared.picture for prepared in read.values() if prepared.picture is not None), None),
        )

    def _single(self, name: str) -> PreparedInput:
        """The only file of an input, which is in every sample: read once."""
        if name not in self._singles:
            self._singles[name] = self.entries[name][0].read()
        return self._singles[name]


def metadata_by_name(names: Sequence[str], stated: Sequence[TensorInfo]) -> dict[str, TensorMetadata]:
    """The file's metadata of tensors: by their names, or by position where a conversion has named them otherwise."""
    by_name = {info.name: info.metadata for info in stated}
    if len(stated) == len(names) and not by_name.keys() & set(names):
        return {name: info.metadata for name, info in zip(names, stated, strict=True)}
    return {name: by_name[name] for name in names if name in by_name}


def _known(model: Model) -> str:
    described = (f"{n} ({_described(o)})" for n, o in named_inputs(model).items())
    return "this model's inputs are: " + ", ".join(described)


def _described(operand: Operand) -> str:
    if codec_of(operand) is not None:
        return TYPES.readable(operand.type)
    return f"{operand_dtype(operand)} {[d or '?' for d in operand.dims]}"


def _split(model: Model, text: str) -> tuple[str | None, str]:
    """Input and file of ``NAME=FILE``; no input for ``FILE``. Names and files may hold equals signs."""
    name = max((name for name in named_inputs(model) if text.startswith(f"{name}=")), key=len, default=None)
    if name is not None:
        return name, text[len(name) + 1 :]
    if not text or not named_inputs(model):
        raise InputError(Reason(f"FILE or NAME=FILE; {_known(model)}", repr(text), operand="input"))
    typed, separator, _ = text.partition("=")
    if not separator or os.path.exists(text):
        return None, text
    raise InputError(Reason(f'no input named "{typed}"{near(typed, named_inputs(model))}; {_known(model)}', operand="input"))


def _files(path: Path, target: InputTarget) -> list[tuple[str, str, Path]]:
    """Name, label and path of a file, or of all files in a folder and its sub-folders, whose names are labels."""
    if not os.path.isdir(path):
        return [(path.name, "", path)]
    try:
        inside = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
        found = [(entry.name, "", entry) for entry in inside if entry.is_file()]
        for folder in inside:
            if folder.is_dir():
                found += [
                    (f"{folder.name}/{file.name}", folder.name, file) for file in sorted(folder.iterdir()) if file.is_file()
                ]
    except OSError as error:
        raise target.refuse("a folder that can be read", cannot_read(error), path) from error
    usable = [item for item in found if item[2].suffix.lower() in target.suffixes and not item[2].name.startswith(".")]
    if not usable:
        rule = f"a folder of files for this input ({', '.join(target.suffixes)})"
        raise target.refuse(rule, f"{len(found)} files, none of these" if found else "an empty one", path)
    return usable


def _batches(target: InputTarget, path: Path) -> list[_Entry]:
    """The samples of an array that holds several of the model's batches along its first axis; none of another file."""
    dims = target.operand.dims
    if path.suffix.lower() != ".npy" or not os.path.isfile(path) or not dims or not dims[0]:
        return []
    array = load_array(path, target.place)
    if array.ndim != len(dims) or array.shape[1:] != dims[1:] or array.shape[0] <= dims[0] or array.shape[0] % dims[0]:
        return []

    def entry(k: int) -> _Entry:
        part = array[k * dims[0] : (k + 1) * dims[0]]
        return _Entry(f"{path.name} {k}", "", lambda: PreparedInput(fit(target, part, path)))

    return [entry(k) for k in range(array.shape[0] // dims[0])]


def _require_no_constants(model: Model, path: Path) -> None:
    """Refuse arrays for constants of the model, such as the default that an ONNX file has for an input."""
    constants = {operand.name.partition(" ")[0] for operand in model.main.operands if operand.is_constant and operand.name}
    for name in array_names(path):
        if name in constants and name not in named_inputs(model):
            raise InputError(
                Reason(f"arrays of inputs; {_known(model)}", f"{name!r}, a constant of it", "--input", str(path), file=str(path))
            )


def _archive(model: Model, path: Path) -> dict[str, list[_Entry]]:
    """The inputs in an ``.npz``: arrays of their names, or stacks ``input:NAME`` as ``run --samples`` writes them."""
    operands = named_inputs(model)
    arrays = load_arrays(path, {name for n in operands for name in (n, f"input:{n}")})
    _require_no_constants(model, path)
    entries: dict[str, list[_Entry]] = {}

    def entry(name: str, array: Array, label: str) -> _Entry:
        return _Entry(label, "", lambda: PreparedInput(fit(InputTarget(name, operands[name]), array, path)))

    for name in operands:
        if name in arrays:
            entries[name] = [entry(name, arrays[name], path.name)]
        elif f"input:{name}" in arrays and arrays[f"input:{name}"].ndim:
            entries[name] = [entry(name, array, f"{path.name} {k}") for k, array in enumerate(arrays[f"input:{name}"])]
        if name in entries and not entries[name]:
            raise InputError(Reason("at least one sample in every array", "an array without any", file=str(path)))
    first = next(iter(operands))
    if not entries and codec_of(operands[first]) is not None:
        return {first: [_Entry(path.name, "", partial(prepare, InputTarget(first, operands[first]), path))]}
    if not entries:
        raise InputError(Reason(f"an array named after an input; {_known(model)}", "none", "input", str(path), file=str(path)))
    return entries


MAX_LABELS_BYTES = 1 << 24


def read_labels(path: Path) -> tuple[str, ...]:
    """The names of classes, one in each line."""
    try:
        content = read_at_most(path, MAX_LABELS_BYTES)
        if len(content) > MAX_LABELS_BYTES:
            raise ValueError(f"more than {MAX_LABELS_BYTES:,} bytes")
        lines = content.decode("utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        found = cannot_read(error)
        raise InputError(Reason("a text file with a label in each line", found, "labels", str(path), file=str(path))) from error
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise InputError(Reason("a text file with a label in each line", "an empty file", "labels", str(path), file=str(path)))
    return tuple(line.strip() for line in lines)


def class_index(label: str, labels: Sequence[str]) -> int | None:
    """The class that a sub-folder stands for: by its label, or by its number where no label says so; None if by neither."""
    if label in labels:
        return labels.index(label)
    return int(label) if label.isascii() and label.isdigit() and len(label) < 10 else None
