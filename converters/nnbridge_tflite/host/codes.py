"""The name of TFLite's host extension, its codes, and the options that its operations have beside the operator's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from nnbridge.converters import draft
from nnbridge.converters.draft import Value
from nnbridge.extensions import TYPES
from nnbridge_tflite.read.graph import EXTENSION
from nnbridge_tflite.read.schema import builtin_codes

CHANNELS, PARAMETERS = "channel_quantisation", "quantisation"
"""Options with the parameters that an operand of an extension type cannot hold: for each channel, and for whole tensors."""

SCALARS = "scalars"
"""Option with the indexes of inputs that have no dimensions in TFLite."""

STATES = "states"
"""Option with the indexes of inputs that are states; what they become follows the operator's own outputs."""

TENSORS = "tensors"
"""Option of control flow with the file's tensors of its inputs, bodies apart, and outputs; -1 for variables of bodies."""

BODY = "body"
"""Option with the name of the only operator of the subgraph that an operator applies."""

VERSION = "custom_version"
"""Option with a custom operator's version, where that is not 1."""


def extension_code(number: int) -> int:
    """The operand or operation code of a number in the host extension."""
    return TYPES.code(EXTENSION, number)


def builtin_code(name: str) -> int:
    """The operation code of a builtin operator in the host extension."""
    return extension_code(builtin_codes()[name])


def options_value(options: Mapping[str, Any]) -> Value:
    """The operand that holds a host operation's options."""
    return draft.options_value(EXTENSION, json.dumps(options, separators=(",", ":"), default=str).encode())
