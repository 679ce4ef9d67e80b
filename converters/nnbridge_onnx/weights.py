"""Weights of an ONNX file that is edited: inside its messages, or beside them where they are large, as views of their file."""

from __future__ import annotations

import mmap
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nnbridge.converters.edits import Chunk, Content, is_large
from nnbridge.errors import ConversionError, Reason, cannot_read
from nnbridge.model import Array
from nnbridge.reading import open_file
from nnbridge.records import dataclass
from nnbridge_onnx.read.graph import dtype_of

_SMALL = 4096
"""Bytes up to which a constant is inside the messages."""
_MOST = (1 << 31) - (1 << 20)
"""Bytes of a model with all constants inside, which protobuf reads."""
_ALIGNED = 4096
"""Places in a file of weights are multiples of it, as the onnx package writes them: programs map them so."""
_EXTERNAL = 1
"""TensorProto.EXTERNAL."""
INSIDE = "inside"
"""A key of constants that are beside a file only while it is planned: to read them out of it would take the time of a run."""
_GRAPH, _INITIALIZER, _RAW_DATA = (bytes([number << 3 | 2]) for number in (7, 5, 9))
"""What is before ModelProto.graph, GraphProto.initializer and TensorProto.raw_data in a file: their numbers, 2 for a length."""


@dataclass(frozen=True)
class StoredWeights:
    """Constants that are not inside a model's messages: these have the number of one here in place of a file's name."""

    views: tuple[memoryview, ...] = ()
    were_beside: bool = False
    """The original has constants in another file."""

    def array(self, tensor: Any) -> Array:
        """A constant's value."""
        from onnx import numpy_helper

        if tensor.data_location != _EXTERNAL:
            return np.asarray(numpy_helper.to_array(tensor))
        dtype = dtype_of(int(tensor.data_type))
        if dtype is None:
            raise ConversionError(Reason("weights beside the file of a number type", str(tensor.data_type), tensor.name))
        return np.frombuffer(self._view(tensor), dtype).reshape(tuple(tensor.dims))

    def content(self, model: Any) -> Content:
        """The file of a model; where protobuf reads none that large, its weights are in one beside it that is named after it."""
        if not self.views:
            return Content.of(model.SerializeToString())
        return Content(partial(self._files, model))

    def _view(self, tensor: Any) -> memoryview:
        return self.views[int(tensor.external_data[0].value)]

    def _files(self, model: Any, name: str, weights: bool) -> Mapping[str, list[Chunk]]:
        made = type(model)()
        made.CopyFrom(model)
        large: list[tuple[Any, Chunk]] = []
        for tensor in made.graph.initializer:
            piece = self._view(tensor) if tensor.data_location == _EXTERNAL else tensor.raw_data
            if len(piece) > _SMALL or tensor.data_location == _EXTERNAL:
                large.append((tensor, piece))
                _set_place(tensor, {})
        fits = made.ByteSize() + sum(len(piece) for _, piece in large) <= _MOST
        return {name: _inside(made, large)} if fits and weights else _beside(made, large, name, {INSIDE: "1"} if fits else {})


def _inside(model: Any, large: Sequence[tuple[Any, Chunk]]) -> list[Chunk]:
    """A model's bytes: what comes twice of its graph is read as one, so that these constants follow the rest of it."""
    rest = type(model)()
    rest.CopyFrom(model)
    names = {tensor.name for tensor, _ in large}
    del rest.graph.initializer[:]
    rest.graph.initializer.extend(tensor for tensor in model.graph.initializer if tensor.name not in names)
    pieces: list[Chunk] = [rest.SerializeToString()]
    for tensor, piece in large:
        front = tensor.SerializeToString() + _RAW_DATA + _length(len(piece))
        constant = _INITIALIZER + _length(len(front) + len(piece)) + front
        pieces += [_GRAPH + _length(len(constant) + len(piece)) + constant, piece]
    return pieces


def _length(number: int) -> bytes:
    """A number as protobuf writes it: seven bits in each byte, the lowest first."""
    found = []
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def _beside(model: Any, large: Sequence[tuple[Any, Chunk]], name: str, mark: Mapping[str, str]) -> Mapping[str, list[Chunk]]:
    """A model's bytes, and those of a file of constants; ``mark``: more that is said of the place of each."""
    beside, pieces, end = f"{name}.data", list[Chunk](), 0
    for tensor, piece in large:
        _set_place(tensor, {"location": beside, "offset": str(end), "length": str(len(piece)), **mark})
        pieces += [piece, bytes(-len(piece) % _ALIGNED)]
        end += sum(map(len, pieces[-2:]))
    return {name: [model.SerializeToString()], beside: pieces}


def with_weights(onnx: Any, path: Path) -> tuple[Any, StoredWeights]:
    """A file's model; constants of a large file that are large themselves are views of where they are."""
    model = onnx.load(str(path), load_external_data=False)
    external = {tensor.name: entries for tensor in model.graph.initializer if (entries := _place(tensor))}
    if not is_large(path.stat().st_size + sum(int(entries.get("length", 0)) for entries in external.values())):
        onnx.load_external_data_for_model(model, str(path.parent))
        return model, StoredWeights(were_beside=bool(external))
    files, views, seen = dict[str, memoryview](), list[memoryview](), []
    for tensor in model.graph.initializer:
        view = _mapped(tensor, path.parent, files) if tensor.name in external else memoryview(tensor.raw_data)
        if len(view) > _SMALL:
            seen.append((tensor, len(views)))
            views.append(view)
            _set_place(tensor, {})
    onnx.load_external_data_for_model(model, str(path.parent))  # the small ones, and those of bodies
    for tensor, number in seen:
        _set_place(tensor, {"location": str(number)})
    return model, StoredWeights(tuple(views), bool(external))


def _mapped(tensor: Any, folder: Path, files: dict[str, memoryview]) -> memoryview:
    """A constant's bytes in a file of its model's folder."""
    entries = _place(tensor)
    name = entries.get("location", "")
    target = (folder / name).resolve()
    if folder.resolve() not in target.parents:
        raise ConversionError(Reason("external data in a file of the model's folder", name, tensor.name))
    if name not in files:
        try:
            opened = open_file(target)
        except OSError as error:
            raise ConversionError(Reason("external data that can be read", cannot_read(error), tensor.name, file=name)) from error
        with opened as file:
            files[name] = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    first = int(entries.get("offset", 0))
    last = first + int(entries["length"]) if "length" in entries else len(files[name])
    if last > len(files[name]):
        raise ConversionError(Reason(f"weights within the {len(files[name])} bytes of {name}", str(last), tensor.name))
    return files[name][first:last]


def _place(tensor: Any) -> dict[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data} if tensor.data_location == _EXTERNAL else {}


def _set_place(tensor: Any, place: Mapping[str, str]) -> None:
    tensor.ClearField("raw_data")
    del tensor.external_data[:]
    tensor.data_location = _EXTERNAL if place else 0
    for key, value in place.items():
        tensor.external_data.add(key=key, value=value)
