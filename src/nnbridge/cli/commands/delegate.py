"""``nnbridge delegate``: the TFLite delegate."""

from __future__ import annotations

import click

from nnbridge.cli.output import build_command


@click.group(short_help="The TFLite delegate libnnbridge_delegate.so.")
def delegate() -> None:
    """The TFLite external delegate libnnbridge_delegate.so, with which TFLite's own interpreters use nnbridge's devices.

    \b
    Example:
      nnbridge delegate build build/delegate
      benchmark_model --graph=model.tflite --external_delegate_path=build/delegate/libnnbridge_delegate.so \\
        --external_delegate_options="accelerator_name:nnapi-sample_float_fast"
    """


@build_command(delegate, "Compile libnnbridge_delegate.so and put it into a folder.")
def built(folder: str) -> dict[str, object]:
    """Compile libnnbridge_delegate.so and put it into a folder.

    \b
    Example:
      nnbridge delegate build build/delegate
    """
    from nnbridge.delegate import build
    from nnbridge.delegate.options import READERS

    return {"library": build(folder), "options": list(READERS)}
