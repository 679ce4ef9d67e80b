"""``nnbridge delegate``: the TFLite delegate."""

from __future__ import annotations

import os

import click

from nnbridge.cli.output import json_option, print_json


@click.group(short_help="The TFLite delegate libnnbridge_delegate.so.")
def delegate() -> None:
    """The TFLite external delegate libnnbridge_delegate.so, with which TFLite's own interpreters use nnbridge's devices.

    \b
    Example:
      nnbridge delegate build build/delegate
      benchmark_model --graph=model.tflite --external_delegate_path=build/delegate/libnnbridge_delegate.so \\
        --external_delegate_options="accelerator_name:nnapi-sample_float_fast"
    """


@delegate.command("build", short_help="Compile libnnbridge_delegate.so and put it into a folder.")
@click.argument("folder", type=click.Path(file_okay=False))
@json_option
def delegate_build(folder: str, as_json: bool) -> None:
    """Compile libnnbridge_delegate.so and put it into a folder.

    \b
    Example:
      nnbridge delegate build build/delegate
    """
    from nnbridge import delegate as delegates

    library = delegates.build(folder)
    if as_json:
        print_json({"library": str(library), "options": list(delegates.option_names())})
    else:
        click.echo(os.fsencode(library))
