"""``nnbridge provider``: the ONNX Runtime provider."""

from __future__ import annotations

import click

from nnbridge.cli.output import build_command


@click.group(short_help="The ONNX Runtime provider libnnbridge_provider.so.")
def provider() -> None:
    """The execution provider libnnbridge_provider.so, with which stock ONNX Runtime (1.23 and later) uses nnbridge's devices.

    \b
    Example:
      nnbridge provider build build/provider
      python -c "import onnxruntime as ort; ort.register_execution_provider_library(
        'nnbridge', '$PWD/build/provider/libnnbridge_provider.so'); print(ort.get_ep_devices())"
    """


@build_command(provider, "Compile libnnbridge_provider.so and put it into a folder.")
def built(folder: str) -> dict[str, object]:
    """Compile libnnbridge_provider.so and put it into a folder.

    \b
    Example:
      nnbridge provider build build/provider
    """
    from nnbridge.provider import build
    from nnbridge.provider.options import READERS

    return {"library": build(folder), "options": list(READERS)}
