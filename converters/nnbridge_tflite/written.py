"""Edited tables as files: in memory where they are small, in pieces with the weights of the mapped original where not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nnbridge.converters.edits import Chunk, Content, is_large
from nnbridge_tflite.read.metadata import archive, with_archive
from nnbridge_tflite.tables import Table
from nnbridge_tflite.write import encode, in_pieces


def written(model: Table, path: Path | None = None) -> Content:
    """A file of these tables, with the archive at the end of the file from which they were read."""
    if not is_large(sum(len(buffer["data"]) for buffer in model["buffers"] if buffer.get("data") is not None)):
        content = encode(model)
        return Content.of(content if path is None else with_archive(content, path))
    pieces = [*in_pieces(model), b"" if path is None else archive(path)]

    def files(name: str, weights: bool) -> Mapping[str, list[Chunk]]:
        return {name: pieces}

    return Content(files)
