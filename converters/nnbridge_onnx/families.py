"""The lowering modules, loaded when the first file is converted."""

from __future__ import annotations

from importlib import import_module

FAMILIES = (
    "elementwise",
    "convolution",
    "products",
    "shapes",
    "reductions",
    "selection",
    "taking",
    "einsum",
    "normalisation",
    "quantised",
    "integers",
    "recurrent",
    "gru",
    "control",
    "attention",
)


def load() -> None:
    """Import every family, so that its lowerings are registered."""
    for family in FAMILIES:
        import_module(f"nnbridge_onnx.lower_{family}")
