"""The host extension ``ai.onnx``: its operation and operand types, and the options of its operations.

Saved models hold the numbers: those of operators are in their definitions, those of types are ONNX's own.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from nnbridge.converters import draft
from nnbridge.converters.draft import Value
from nnbridge.extensions import TYPES
from nnbridge_onnx.declaration import REGISTRY
from nnbridge_onnx.read.graph import Node

EXTENSION = "ai.onnx"
"""The host extension of what NNAPI cannot express."""

OTHER = 0
"""The number of operators without one of their own: those of other domains, and newer ones."""

HELD = "tensors, sequences or optionals, which are all that operands can hold"
"""What is required of every value."""

UNSUPPORTED = 1000
"""The operand type of maps, sparse tensors and unknown element types; what reads them is refused when run."""


def operation_code(name: str, domain: str = "") -> int:
    """The operation code of an operator."""
    found = REGISTRY.get(name) if domain in ("", EXTENSION) else None
    return TYPES.code(EXTENSION, OTHER if found is None else found.number)


def type_code(number: int) -> int:
    """The operand code of a ``TensorProto.DataType``."""
    return TYPES.code(EXTENSION, number)


def options_of(node: Node, types: Mapping[str, int]) -> dict[str, Any]:
    """The options that state a node in its operation; ``types`` are those of all values that it reads."""
    types = dict(types)
    return {"op": node.type, "domain": node.domain, "opset": node.version, "node": encoded(node.proto), "types": types}


def encoded(node: Any) -> str:
    """A ``NodeProto`` as text."""
    return base64.b64encode(node.SerializeToString(deterministic=True)).decode()


def options_value(options: Mapping[str, Any]) -> Value:
    """The operand that holds a host operation's options."""
    return draft.options_value(EXTENSION, json.dumps(options, separators=(",", ":")).encode())
