"""TFLite metadata: what the metadata flatbuffer and the archive after the file's end say of a model's inputs and outputs.

The schema is TensorFlow Lite Support's ``metadata_schema.fbs`` (identifier M001); the tables and fields that are of use are
written down here, others are passed over.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from nnbridge.budget import WorkBudget
from nnbridge.converters.inspection import TensorMetadata
from nnbridge.errors import ConversionError, Reason, cannot_read
from nnbridge.reading import open_archive
from nnbridge_tflite.read.flatbuffer import Decoder, Malformed, malformed
from nnbridge_tflite.read.reader import TfliteFile
from nnbridge_tflite.read.schema import Field, Kind

NAME, IDENTIFIER = "TFLITE_METADATA", b"M001"
MAX_LABELS_BYTES = 4 << 20
"""Of all labels of a file together, unpacked."""
MAX_ARCHIVE_BYTES = 64 << 20
MAX_VALUES, MAX_CHARACTERS = 100_000, 4 << 20
"""Values in metadata and the characters of their texts, where a table that is shared counts each time."""


def _strings(*names: str) -> list[Field]:
    return [Field(name, 4 + 2 * i, Kind.STRING) for i, name in enumerate(names) if name]


def _tables(slot: int, name: str, target: str) -> Field:
    return Field(name, 4 + 2 * slot, Kind.TABLES, target=target)


FIELDS: Mapping[str, tuple[Field, ...]] = {
    "ModelMetadata": (
        *_strings("name", "description", "version", "", "author", "license", "", "min_parser_version"),
        _tables(3, "subgraph_metadata", "SubGraphMetadata"),
        _tables(6, "associated_files", "AssociatedFile"),
    ),
    "SubGraphMetadata": (
        *_strings("name", "description"),
        _tables(2, "input_tensor_metadata", "TensorMetadata"),
        _tables(3, "output_tensor_metadata", "TensorMetadata"),
        _tables(4, "associated_files", "AssociatedFile"),
    ),
    "TensorMetadata": (
        *_strings("name", "description"),
        Field("content", 10, Kind.TABLE, target="Content"),
        _tables(4, "process_units", "ProcessUnit"),
        Field("stats", 14, Kind.TABLE, target="Stats"),
        _tables(6, "associated_files", "AssociatedFile"),
    ),
    "AssociatedFile": (*_strings("name", "description", "", "locale", "version"), Field("type", 8, Kind.SCALAR, "b", 1, 0)),
    "ProcessUnit": (
        Field("options_type", 4, Kind.SCALAR, "B", 1, 0),
        Field("options", 6, Kind.UNION, target="ProcessUnitOptions"),
    ),
    "Content": (
        Field("properties_type", 4, Kind.SCALAR, "B", 1, 0),
        Field("properties", 6, Kind.UNION, target="ContentProperties"),
    ),
    "AudioProperties": (Field("sample_rate", 4, Kind.SCALAR, "I", 4, 0), Field("channels", 6, Kind.SCALAR, "I", 4, 0)),
    "Stats": (Field("max", 4, Kind.SCALARS, "f", 4), Field("min", 6, Kind.SCALARS, "f", 4)),
    "NormalizationOptions": (Field("mean", 4, Kind.SCALARS, "f", 4), Field("std", 6, Kind.SCALARS, "f", 4)),
    "ScoreThresholdingOptions": (Field("global_score_threshold", 4, Kind.SCALAR, "f", 4, 0.0),),
}
_UNIONS = {
    "ProcessUnitOptions": {1: "NormalizationOptions", 3: "ScoreThresholdingOptions"},
    "ContentProperties": {4: "AudioProperties"},
}
_FILE_TYPES = ("unknown", "description", "labels of an axis", "labels of values", "score calibration", "vocabulary", "index")


def metadata(file: TfliteFile) -> dict[str, Any]:
    """The metadata of a file, empty where it has none. ConversionError for metadata that is damaged."""
    span = file.graph.metadata.get(NAME)
    found: dict[str, Any] = {}
    if span is not None and span.length >= 8:
        data = file.bytes_at(span)
        try:
            if bytes(data[4:8]) != IDENTIFIER:
                raise Malformed(f"the identifier {IDENTIFIER!r}", bytes(data[4:8]))
            found = _Plain().table(Decoder(data, FIELDS.__getitem__, _UNIONS.__getitem__).root("ModelMetadata"))
        except Malformed as error:
            place = f"metadata {error.place}"
            raise ConversionError(Reason(error.rule, error.found, operand=place, file=str(file.path))) from error
    if not zipfile.is_zipfile(file.path):
        return found
    with _opened(file.path) as archive:
        files = _sizes(archive)
        labels = _labels(archive, file.path, [name for name in dict.fromkeys(_label_files(found)) if name in files])
    return {**found, **({"files": files} if files else {}), **({"labels": labels} if labels else {})}


def tensor_metadata(table: Mapping[str, Any], labels: Mapping[str, list[str]]) -> TensorMetadata:
    """The metadata of one tensor; ``labels``: the labels in each file of the archive."""
    options = [unit.get("options", {}) for unit in table.get("process_units", ())]
    normalisation: Mapping[str, Any] = next((found for found in options if "std" in found), {})
    return TensorMetadata(
        tuple(normalisation.get("mean", ())),
        tuple(normalisation.get("std", ())),
        table.get("content", {}).get("properties", {}).get("sample_rate", 0),
        tuple(next((labels[name] for name in _labels_of(table) if name in labels), ())),
    )


def with_archive(content: bytes, path: Path) -> bytes:
    """A rewritten model with the files of the archive at the original's end. ConversionError for more than a rewrite copies."""
    return content + archive(path, len(content))


def archive(path: Path, before: int = 0) -> bytes:
    """The archive at a file's end as that of another one, of which ``before`` bytes are in front of it; empty without one.

    Places in archives count from the beginning of their file or of the archive: programs find out which.
    """
    if not zipfile.is_zipfile(path):
        return b""
    made = io.BytesIO(bytes(before))
    made.seek(0, io.SEEK_END)
    with _opened(path) as source, zipfile.ZipFile(made, "a") as target:
        entries = source.infolist()
        size = sum(entry.file_size for entry in entries)
        packed = next((entry.compress_type for entry in entries if entry.compress_type not in _METHODS), None)
        if packed is not None:
            raise ConversionError(Reason("associated files that are stored or deflated", f"method {packed}", file=str(path)))
        if size > MAX_ARCHIVE_BYTES:
            raise ConversionError(Reason(f"associated files of {MAX_ARCHIVE_BYTES} bytes at most", str(size), file=str(path)))
        for entry in entries:
            target.writestr(entry, source.read(entry))
    return made.getvalue()[before:]


def _sizes(archive: zipfile.ZipFile) -> dict[str, int]:
    """Files in an archive: name → bytes."""
    return {entry.filename: entry.file_size for entry in archive.infolist()}


def _labels(archive: zipfile.ZipFile, path: Path, names: Sequence[str]) -> dict[str, list[str]]:
    """The labels in each of these files. ConversionError for more than MAX_LABELS_BYTES in all."""

    def refuse(rule: str, found: str, name: str) -> ConversionError:
        return ConversionError(Reason(rule, found, operand=f"archive {name}", file=str(path)))

    found, left = {}, WorkBudget(MAX_LABELS_BYTES, "bytes of labels", refuse)
    for name in names:
        method = archive.getinfo(name).compress_type
        if method not in _METHODS:
            raise refuse("a file that is stored or deflated", f"method {method}", name)
        try:
            with archive.open(name) as lines:
                content = lines.read(left.left + 1)
        except _UNREADABLE as error:
            raise refuse("an archive that can be read", str(error), name) from error
        left.spend(len(content), name)
        found[name] = content.decode("utf-8", "replace").splitlines()
    return found


_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""How files may be packed. What LZMA needs to unpack a file, 4 GB at most, is in the user's hands."""

# What reading an archive raises: RuntimeError if it is encrypted or, as NotImplementedError, of a version or compression that
# Python does not know; the last two if a file in it is damaged.
_UNREADABLE = (zipfile.BadZipFile, RuntimeError, OSError, ValueError, EOFError, zlib.error)


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """The archive at a model's end; ConversionError for what cannot be read of it."""
    try:
        with open_archive(path) as archive:
            yield archive
    except _UNREADABLE as error:
        raise ConversionError(
            Reason("an archive that can be read", cannot_read(error), operand="archive", file=str(path))
        ) from error


def _label_files(found: Mapping[str, Any]) -> list[str]:
    """Names of all associated files that hold labels."""
    names = []
    for subgraph in found.get("subgraph_metadata", ()):
        for tensor in (*subgraph.get("input_tensor_metadata", ()), *subgraph.get("output_tensor_metadata", ())):
            names += _labels_of(tensor)
    return names


def _labels_of(tensor: Mapping[str, Any]) -> list[str]:
    return [f.get("name", "") for f in tensor.get("associated_files", ()) if f.get("type", "").startswith("labels")]


class _Plain:
    """Decoded tables as plain values, without what the file does not state."""

    def __init__(self) -> None:
        self._values = WorkBudget(MAX_VALUES, "values", malformed)
        self._characters = WorkBudget(MAX_CHARACTERS, "characters of texts", malformed)

    def table(self, table: Mapping[str, Any]) -> dict[str, Any]:
        plain = {}
        for name, value in table.items():
            if (
                name in ("options_type", "properties_type")
                or value is None
                or (isinstance(value, (str, Sequence)) and not len(value))
            ):
                continue
            if name == "content" and not self._value(value):
                continue  # Images and features: nothing of their content is read.
            plain[name] = _FILE_TYPES[value] if name == "type" and 0 <= value < len(_FILE_TYPES) else self._value(value)
        return plain

    def _value(self, value: Any) -> Any:
        self._values.spend(1 + (len(value) if isinstance(value, np.ndarray) else 0))
        self._characters.spend(len(value) if isinstance(value, str) else 0)
        if isinstance(value, Mapping):
            return self.table(value)
        if isinstance(value, np.ndarray):
            return [float(v) for v in value]
        return [self._value(v) for v in value] if isinstance(value, tuple) else value
