"""``nnbridge provider``: the ONNX Runtime provider."""

from __future__ import annotations

import os

import click

from nnbridge.cli.output import json_option, print_json


@click.group(short_help="The ONNX Runtime provider libnnbridge_provider.so.")
def provider() -> None:
    """The execution provider libnnbridge_provider.so, with which stock ONNX Runtime (1.23 and later) uses nnbridge's devices.

    \b
    Example:
      nnbridge provider build build/provider
      python -c "import onnxruntime as ort; ort.register_execution_provider_library(
        'nnbridge', '$PWD/build/provider/libnnbridge_provider.so'); print(ort.get_ep_devices())"
    """


@provider.command("build", short_help="Compile libnnbridge_provider.so and put it into a folder.")
@click.argument("folder", type=click.Path(file_okay=False))
@json_option
def provider_build(folder: str, as_json: bool) -> None:
    """Compile libnnbridge_provider.so and put it into a folder.

    \b
    Example:
      nnbridge provider build build/provider
    """
    from nnbridge import provider as providers

    library = providers.build(folder)
    if as_json:
        print_json({"library": str(library), "options": list(providers.option_names())})
    else:
        click.echo(os.fsencode(library))
