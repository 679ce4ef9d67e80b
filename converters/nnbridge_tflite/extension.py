"""The name of TFLite's host extension, and its codes."""

from __future__ import annotations

from nnbridge.converters import draft
from nnbridge.converters.draft import Value
from nnbridge.extensions import TYPES

EXTENSION = "org.tensorflow.lite"
"""The host extension of operators that NNAPI cannot express."""


def extension_code(number: int) -> int:
    """The operand or operation code of a number in the host extension."""
    return TYPES.code(EXTENSION, number)


def options_value(text: bytes) -> Value:
    """The operand that holds a host operation's options."""
    return draft.options_value(EXTENSION, text)
