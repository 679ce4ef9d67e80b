"""Saved models (``.nnapi`` files) and what writes and reads them: FlatBuffers by a checked schema, atomic writing."""

from nnbridge.storage.saved_model import (
    FORMAT_VERSION,
    MAGIC,
    SUFFIX,
    checksum,
    load,
    model_in,
    read_model,
    save,
    schema,
    write_model,
)

__all__ = ["FORMAT_VERSION", "MAGIC", "SUFFIX", "checksum", "load", "model_in", "read_model", "save", "schema", "write_model"]
