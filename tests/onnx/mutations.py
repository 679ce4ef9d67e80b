"""ONNX files with a changed structure: parsed, altered in one to three fields, and written again."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from typing import Any

import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor as F
from google.protobuf.message import Message

from tests import hostile
from tests.hostile import number, real, rearranged

LARGE = 256
"""Bytes; the inside of larger constants is left alone, because damage there changes nothing."""
_BOUNDS = {
    F.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    F.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    F.CPPTYPE_UINT32: (0, 2**32 - 1),
    F.CPPTYPE_UINT64: (0, 2**64 - 1),
    F.CPPTYPE_BOOL: (0, 1),
}
_LOCATIONS = ("weights.bin", "../weights.bin", "/etc/passwd", "", "a\0b", "x" * 5000, ".", "/dev/zero")
_POWERS = [sign * 2**k + d for k in (0, 3, 10, 20, 31, 32) for sign in (-1, 1) for d in (-1, 0, 1)]
_ENDS = np.array([*_POWERS, 2**63 - 1, -(2**63)], np.int64)
Place = tuple[Message, Any]


class Source(hostile.Source):
    """An ONNX file to be altered."""

    @cached_property
    def places(self) -> np.ndarray:
        """Positions of bytes that are not inside a large constant."""
        kept = np.ones(len(self.content), bool)
        for message in _messages(onnx.ModelProto.FromString(self.content)):
            if isinstance(message, onnx.TensorProto) and len(message.raw_data) > LARGE:
                at = self.content.find(message.raw_data)
                kept[at : at + len(message.raw_data)] = False
        return np.flatnonzero(kept)

    def altered(self, rng: np.random.Generator) -> bytes:
        """The file with a few fields changed."""
        model = onnx.ModelProto.FromString(self.content)
        for _ in range(rng.integers(1, 4)):
            by_type: dict[str, list[Message]] = {}
            for message in _messages(model):
                by_type.setdefault(message.DESCRIPTOR.name, []).append(message)
            found = by_type[str(rng.choice(sorted(by_type)))]
            message = found[int(rng.integers(len(found)))]
            if isinstance(message, onnx.TensorProto) and rng.integers(4) == 0:
                _move_out(message, rng)
            else:
                fields = message.DESCRIPTOR.fields
                _change(message, fields[int(rng.integers(len(fields)))], model, rng)
        return bytes(model.SerializeToString())

    @property
    def ways(self) -> tuple[Callable[[np.random.Generator], bytes], ...]:
        """Those of all files, and other numbers in nodes' attributes."""
        return (*super().ways, self.stretched)

    def stretched(self, rng: np.random.Generator) -> bytes:
        """The file with half of the numbers of its nodes' attributes at ends of ranges, or around 0."""
        model = onnx.ModelProto.FromString(self.content)
        for message in _messages(model):
            if isinstance(message, onnx.AttributeProto) and rng.integers(2):
                message.i = int(rng.choice(_ENDS))
                message.ints[:] = [int(rng.choice(_ENDS)) if rng.integers(2) else i for i in message.ints]
        return bytes(model.SerializeToString())


@cache
def operators() -> list[bytes]:
    """The models of ONNX's own tests of operators, functions written out among them."""
    from onnx.backend.test import loader

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [case.model.SerializeToString() for case in loader.load_model_tests(kind="node") if case.model is not None]


def _messages(message: Message) -> Iterator[Message]:
    yield message
    for field, value in message.ListFields():
        if field.cpp_type == F.CPPTYPE_MESSAGE:
            for item in value if _repeated(field) else [value]:
                yield from _messages(item)


def _repeated(field: Any) -> bool:
    return bool(field.is_repeated) if hasattr(field, "is_repeated") else field.label == F.LABEL_REPEATED


def _change(message: Message, field: Any, model: Any, rng: np.random.Generator) -> None:
    if field.cpp_type == F.CPPTYPE_MESSAGE:
        _change_messages(message, field, rng)
        return
    old = getattr(message, field.name)
    if not _repeated(field):
        setattr(message, field.name, _scalar(field, old, model, rng))
        return
    items = list(old)
    if len(items) > 4096:
        items = items[: int(rng.integers(0, len(items)))]
    else:
        items = rearranged(items, lambda item: _scalar(field, item, model, rng), rng) or [_scalar(field, 0, model, rng)]
    message.ClearField(field.name)
    getattr(message, field.name).extend(items)


def _change_messages(message: Message, field: Any, rng: np.random.Generator) -> None:
    if not _repeated(field):
        if message.HasField(field.name):
            message.ClearField(field.name)
        else:
            getattr(message, field.name).SetInParent()
        return
    items = getattr(message, field.name)
    kind, count = rng.integers(4), len(items)
    if kind == 0 or count == 0:
        items.add()
        return
    at = int(rng.integers(count))
    if kind == 1:
        del items[at]
    elif kind == 2:
        items.add().CopyFrom(items[at])
    else:
        moved = type(items[at])()
        moved.CopyFrom(items[at])
        del items[at]
        items.insert(int(rng.integers(count)), moved)


def _scalar(field: Any, old: Any, model: Any, rng: np.random.Generator) -> Any:
    if field.cpp_type == F.CPPTYPE_ENUM:
        return int(rng.choice([value.number for value in field.enum_type.values]))
    if field.cpp_type in (F.CPPTYPE_FLOAT, F.CPPTYPE_DOUBLE):
        return real(rng)
    if field.cpp_type in _BOUNDS:
        return number(*_BOUNDS[field.cpp_type], old, rng)
    if field.type == F.TYPE_BYTES:
        value = old or b""
        return [b"", value[: len(value) // 2], value * 2, b"\xff" * 8][int(rng.integers(4))]
    names = [name for node in model.graph.node for name in (*node.input, *node.output, node.op_type)]
    return str(rng.choice([*rng.choice(names or ["x"], 4), "", "\0", "x" * 5000, *_LOCATIONS]))


def _move_out(tensor: Any, rng: np.random.Generator) -> None:
    """Say that a tensor's data lie in a file."""
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key in ("location", "offset", "length"):
        if rng.integers(4):
            value = str(rng.choice(_LOCATIONS)) if key == "location" else str(number(-(2**63), 2**64, 0, rng))
            tensor.external_data.add(key=key, value=value)
    if rng.integers(2):
        tensor.ClearField("raw_data")
