"""TFLite files with a changed structure: decoded by the schema, altered in one to three places, and packed again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import flatbuffers
import numpy as np

from nnbridge_tflite.read.flatbuffer import Decoder, Malformed, Span
from nnbridge_tflite.read.reader import read
from nnbridge_tflite.read.schema import Field, Kind, enum_names, fields
from nnbridge_tflite.write import pack
from tests import hostile
from tests.hostile import number, real, rearranged

LARGE = 256
"""Bytes; the inside of larger constants is left alone, because damage there changes nothing."""
_BOUNDS = {"?": (0, 1), "b": (-128, 127), "B": (0, 255), "h": (-(2**15), 2**15 - 1), "H": (0, 2**16 - 1)}
_BOUNDS |= {"i": (-(2**31), 2**31 - 1), "I": (0, 2**32 - 1), "q": (-(2**63), 2**63 - 1), "Q": (0, 2**64 - 1)}

Tree = dict[str, Any]
Place = tuple[Tree, Field]


class Source(hostile.Source):
    """A TFLite file to be altered."""

    @cached_property
    def places(self) -> np.ndarray:
        """Positions of bytes that are not inside a large constant."""
        kept = np.ones(len(self.content), bool)
        for subgraph in read(self.path).graph.subgraphs:
            for tensor in subgraph.tensors:
                if tensor.data is not None and tensor.data.length > LARGE:
                    kept[tensor.data.offset : tensor.data.offset + tensor.data.length] = False
        return np.flatnonzero(kept)

    @cached_property
    def _tree(self) -> Tree:
        return Decoder(memoryview(self.content)).root("Model")

    def altered(self, rng: np.random.Generator) -> bytes:
        """The file with a few fields changed."""
        tree = self._copy(self._tree)
        for _ in range(rng.integers(1, 4)):
            # A kind of table first: there are many more tensors than quantisations or options.
            by_table: dict[str, list[Place]] = {}
            for table, place in _places("Model", tree):
                by_table.setdefault(table, []).append(place)
            found = by_table[str(rng.choice(sorted(by_table)))]
            values, field = found[int(rng.integers(len(found)))]
            _change(values, field, rng)
        builder = flatbuffers.Builder(len(self.content) + 4096)
        builder.Finish(pack(builder, "Model", tree), b"TFL3")
        return bytes(builder.Output())

    def shared(self, rng: np.random.Generator) -> bytes:
        """The file, or one with a few fields changed, where offsets lead to what others lead to: tables in many places."""
        content = self.altered(rng) if rng.integers(2) else self.content
        try:
            return redirected(content, rng)
        except Malformed:  # what was altered is no file any more
            return redirected(self.content, rng)

    @property
    def ways(self) -> tuple[Callable[[np.random.Generator], bytes], ...]:
        """The kinds of damage."""
        return *super().ways, self.shared

    def _copy(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._copy(item) for name, item in value.items()}
        if isinstance(value, Span):
            return np.frombuffer(self.content, np.uint8, value.length, value.offset)
        return [self._copy(item) for item in value] if isinstance(value, tuple) else value


class _Targets(Decoder):
    """Remembers what offsets lead to: position -> the kind of table, vector or string."""

    def table(self, name: str, at: int) -> Tree:
        self.__dict__.setdefault("found", {})[at] = name
        return super().table(name, at)

    def _elsewhere(self, field: Field, target: int, values: Tree) -> Any:
        self.__dict__.setdefault("found", {})[target] = field.target or field.format or field.kind.value
        return super()._elsewhere(field, target, values)


def redirected(content: bytes, rng: np.random.Generator) -> bytes:
    """A copy in which one to three offsets, or all of a run of neighbours, lead to the target of another."""
    decoder = _Targets(memoryview(content))
    decoder.root("Model")
    kinds: dict[int, str] = decoder.__dict__["found"]
    words = np.frombuffer(content, "<u4", len(content) // 4).astype(np.int64)
    offsets = np.flatnonzero(np.isin(np.arange(words.size) * 4 + words, list(kinds)) & (words > 0))
    changed = words.astype("<u4")
    for _ in range(rng.integers(1, 4)):
        at = int(rng.choice(offsets))
        # FlatBuffers point forward only; three of four times to something of the same kind.
        kind = kinds[int(at * 4 + words[at])]
        ahead = [t for t, found in kinds.items() if t > at * 4 and (found == kind or rng.integers(4) == 0)]
        run = (offsets[offsets >= at] if rng.integers(2) else offsets[offsets == at]).tolist()
        target = int(rng.choice(ahead))
        for i, index in enumerate(run):
            if index != at + i or index * 4 >= target:
                break
            changed[index] = target - index * 4
    return changed.tobytes() + content[changed.nbytes :]


def _places(table: str, values: Tree) -> Iterator[tuple[str, Place]]:
    for field in fields(table):
        value = values.get(field.name)
        yield table, (values, field)
        if value is None:
            continue
        if field.kind is Kind.TABLE:
            yield from _places(field.target, value)
        elif field.kind is Kind.UNION:
            yield from _places(enum_names(field.target)[values[f"{field.name}_type"]], value)
        elif field.kind is Kind.TABLES:
            for item in value:
                yield from _places(field.target, item)


def _change(values: Tree, field: Field, rng: np.random.Generator) -> None:
    old = values.get(field.name)
    if field.kind is Kind.SCALAR:
        values[field.name] = _scalar(field.format, old, rng)
        union = field.name.removesuffix("_type")
        if union != field.name and union in values:
            # Another table's type over these fields would not pack; without them its defaults hold.
            _retype(values, field.name, union, rng)
    elif old is None:
        return
    elif field.kind is Kind.STRING:
        values[field.name] = str(rng.choice(["", "/", "\0", "x" * 5000, old + old]))
    elif field.kind is Kind.SCALARS:
        values[field.name] = _numbers(field, np.asarray(old), rng)
    elif field.kind in (Kind.TABLES, Kind.STRINGS):
        values[field.name] = rearranged(old, lambda item: {} if isinstance(item, dict) else item * 2, rng)
    else:
        values[field.name] = None


def _retype(values: Tree, kind: str, union: str, rng: np.random.Generator) -> None:
    enum = {"builtin_options": "BuiltinOptions", "builtin_options2": "BuiltinOptions2"}.get(union)
    known = [code for code, name in enum_names(enum).items() if code] if enum else []
    values[kind] = int(rng.choice(known)) if known else 0
    values[union] = {} if known else None


def _scalar(format: str, old: Any, rng: np.random.Generator) -> Any:
    if format in "fd":
        return real(rng)
    low, high = _BOUNDS[format]
    made = number(low, high, old, rng)
    return bool(made) if format == "?" else made


def _numbers(field: Field, array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Another vector; the bytes of a small constant as the 32-bit words that they may be."""
    words = field.format == "B" and 0 < array.size <= LARGE and array.size % 4 == 0 and rng.integers(3) > 0
    seen, format = (array.view("<i4"), "i") if words else (array, field.format)
    if seen.size > 4096:
        return array[: int(rng.integers(0, array.size))]
    if rng.integers(8) == 0:
        return np.full(int(rng.choice([1, 4, 5, 40, 5000])), _scalar(format, 0, rng), seen.dtype).view(array.dtype)
    made = rearranged(seen.tolist(), lambda value: _scalar(format, value, rng), rng)
    return np.array(made, seen.dtype).view(array.dtype)
