"""``nnbridge build``: the shared libraries with which other programs use nnbridge's devices."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from nnbridge.cli.neuron_file import neuron_file
from nnbridge.cli.output import build_command, echo, json_option, print_json
from nnbridge.cli.sections import group


@group(short_help="Compile libraries for other programs: NNAPI clients, TFLite, ONNX Runtime.")
def build() -> None:
    """Compile the libraries through which other programs use nnbridge's devices, and write them to a folder.

    \b
    Examples:
      nnbridge build ndk build/ndk
      nnbridge build delegate build/delegate
      nnbridge build provider build/provider
      nnbridge build neuron build/neuron
    """


@build_command(build, "ndk", "The C library libneuralnetworks.so, for NNAPI clients.")
def ndk(folder: str) -> dict[str, object]:
    """Compile the C library libneuralnetworks.so, for unmodified NNAPI clients, and write it, with a header, to a folder.

    \b
    Example:
      nnbridge build ndk build/ndk
      gcc client.c -Ibuild/ndk -Lbuild/ndk -lneuralnetworks
      eval "$(nnbridge build ndk-env build/ndk)" && ./client
    """
    from nnbridge import clib

    library = clib.build(folder)
    return {"library": library, "header": library.with_name(clib.HEADER)}


@build.command("ndk-env", short_help="Print the environment of an NNAPI client for the shell to read.")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=Path("."))
@json_option
def ndk_env(folder: Path, as_json: bool) -> None:
    """Print the environment variables that an NNAPI client needs, for the shell to read.

    \b
    Example:
      eval "$(nnbridge build ndk-env build/ndk)" && ./client
    """
    from nnbridge import clib

    found = clib.environment(folder)
    if as_json:
        print_json("build-ndk-env", {"set": found, "variables": clib.VARIABLES})
        return
    for name, meaning in clib.VARIABLES.items():
        echo(f"# {name}: {meaning}")
    for name, value in found.items():
        click.echo(os.fsencode(f"export {name}={shlex.quote(value)}"))


@build_command(build, "delegate", "The TFLite delegate libnnbridge_delegate.so.")
def delegate(folder: str) -> dict[str, object]:
    """Compile the TFLite external delegate libnnbridge_delegate.so, through which TFLite's own interpreters use nnbridge's
    devices.

    \b
    Example:
      nnbridge build delegate build/delegate
      benchmark_model --graph=model.tflite --external_delegate_path=build/delegate/libnnbridge_delegate.so \\
        --external_delegate_options="accelerator_name:nnapi-sample_float_fast"
    """
    from nnbridge.delegate import build
    from nnbridge.delegate.options import READERS

    return {"library": build(folder), "options": list(READERS)}


@build_command(build, "provider", "The ONNX Runtime provider libnnbridge_provider.so.")
def provider(folder: str) -> dict[str, object]:
    """Compile the execution provider libnnbridge_provider.so, through which stock ONNX Runtime (1.23 and later) uses
    nnbridge's devices.

    \b
    Example:
      nnbridge build provider build/provider
      python -c "import onnxruntime as ort; ort.register_execution_provider_library(
        'nnbridge', '$PWD/build/provider/libnnbridge_provider.so'); print(ort.get_ep_devices())"
    """
    from nnbridge.provider import build
    from nnbridge.provider.options import READERS

    return {"library": build(folder), "options": list(READERS)}


@build_command(build, "neuron", "LiteRT's MediaTek route: the libraries of its compiler and its runtime.")
def neuron(folder: str) -> dict[str, object]:
    """Compile libneuron_adapter.so, for LiteRT's MediaTek compiler, and libLiteRtDispatch_nnbridge.so, for LiteRT's runtime.

    \b
    Example:
      nnbridge build neuron build/neuron
      LD_LIBRARY_PATH=build/neuron NNBRIDGE_DEVICES=nnapi-sample_all python compile_ahead_of_time.py
    """
    from nnbridge import neuron as route

    return dict(zip(("adapter", "dispatch"), route.build(folder), strict=True))


build.add_command(neuron_file)
