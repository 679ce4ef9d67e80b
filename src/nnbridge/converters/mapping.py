"""The words for how an operator of a file is mapped."""

from __future__ import annotations

from enum import Enum


class MappingKind(str, Enum):
    """The outcome of an operator's mapping; the first three are also the mappings that a user may ask for."""

    DELEGATE = "delegate"
    """As Android's TFLite NNAPI delegate does."""
    PROVIDER = "provider"
    """As ONNX Runtime's NNAPI execution provider does."""
    WIDE = "wide"
    """By all that NNAPI can express."""
    HOST = "host"
    """By an operation of a host extension, which no NNAPI device supports."""
    FOLDED = "folded"
    """Computed at conversion: its outputs are constants."""
    DEAD = "dead"
    """Removed: no output depends on it."""
    STATE = "state"
    """A value that is carried from one execution to the next."""
    INLINED = "inlined"
    """A call whose subgraph was written out."""

    def __str__(self) -> str:
        return self.value

    def __format__(self, format_spec: str) -> str:
        return format(self.value, format_spec)
