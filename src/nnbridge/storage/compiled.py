"""Compiled partitions in files that LiteRT's MediaTek compiler writes: nnbridge's own content, and the container around it.

A partition is a saved model with the names of the devices that it was compiled for. The compiler puts all partitions of a file
into one FlatBuffer after the TFLite file's own; each DISPATCH_OP names its partition.
"""

from __future__ import annotations

import io

from nnbridge import __version__
from nnbridge.errors import ConversionError, Reason
from nnbridge.model import Model
from nnbridge.records import dataclass
from nnbridge.storage.flatbuffer import parse_schema, read, write
from nnbridge.storage.saved_model import model_in, write_model

IDENTIFIER = b"NNBC"
FORMAT_VERSION = 1

_PARTITION = parse_schema("""
    table Partition { version:uint; nnbridge:string; devices:[string]; model:[ubyte]; }
    root_type Partition; file_identifier "NNBC";
""")
_CONTAINER = parse_schema("""
    table Index { value:int; }
    table Subgraph { entry_point:string; type:byte; compiled_index_type:ubyte; compiled_index:Index; }
    table Buffer { identifier:string; data:[ubyte]; }
    table Graphs { version:short; subgraphs:[Subgraph]; data:[Buffer]; }
    root_type Graphs;
""")
"""What is read of the container; its other fields come after these. A subgraph's index is always of the union's first type."""
_BY_INDEX = 1


@dataclass(frozen=True)
class CompiledPartition:
    """A partition as it is stored: inputs and outputs of the model are the operator's, in order."""

    model: Model
    devices: tuple[str, ...]
    """The devices that it was compiled for, as ``NNBRIDGE_DEVICES`` named them."""
    nnbridge: str = __version__
    """The version of nnbridge that compiled it."""

    def stored(self) -> bytes:
        """The stored part of a file."""
        saved = io.BytesIO()
        write_model(self.model, saved)
        values = {
            "version": FORMAT_VERSION,
            "nnbridge": self.nnbridge,
            "devices": list(self.devices),
            "model": saved.getvalue(),
        }
        return bytes(write(_PARTITION, values))


def read_partition(data: memoryview, source: str) -> CompiledPartition:
    """A stored partition. ConversionError for anything that is not nnbridge's or does not hold together."""
    if bytes(data[4:8]) != IDENTIFIER:
        rule = "a partition that nnbridge compiled (nnbridge build neuron-file)"
        raise ConversionError(Reason(rule, f"another compiler's, beginning with {bytes(data[:8])!r}", file=source))
    values = read(_PARTITION, data, source, FORMAT_VERSION)
    content = values["model"]
    return CompiledPartition(model_in(memoryview(content), content, source), tuple(values["devices"]), values["nnbridge"])


def partition_in(container: memoryview, name: str, source: str) -> CompiledPartition:
    """The partition of a name in a container. ConversionError names the source and what is wrong."""
    values = read(_CONTAINER, container, source)
    names = [subgraph["entry_point"] for subgraph in values["subgraphs"]]
    found = next((subgraph for subgraph in values["subgraphs"] if subgraph["entry_point"] == name), None)
    if found is None:
        raise ConversionError(Reason(f"a partition of the container ({', '.join(names) or 'none'})", name, file=source))
    index = found["compiled_index"]["value"] if found["compiled_index"] is not None else -1
    if found["compiled_index_type"] != _BY_INDEX or not 0 <= index < len(values["data"]):
        raise ConversionError(Reason(f"an index below {len(values['data'])}", str(index), operand=name, file=source))
    return read_partition(memoryview(values["data"][index]["data"]), f"{source} {name}")
