"""``nnbridge ndk``: the C library and the environment of its clients."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from nnbridge.cli.output import build_command, echo, json_option, print_json


@click.group(short_help="The C library libneuralnetworks.so for NNAPI clients.")
def ndk() -> None:
    """The C library libneuralnetworks.so, for NNAPI clients that know nothing of nnbridge.

    \b
    Examples:
      nnbridge ndk build build/ndk
      eval "$(nnbridge ndk env build/ndk)" && ./client
    """


@build_command(ndk, "Compile libneuralnetworks.so and put it into a folder.")
def built(folder: str) -> dict[str, object]:
    """Compile libneuralnetworks.so and put it, with a header, into a folder.

    \b
    Example:
      nnbridge ndk build build/ndk
      gcc client.c -Ibuild/ndk -Lbuild/ndk -lneuralnetworks
    """
    from nnbridge import clib

    library = clib.build(folder)
    return {"library": library, "header": library.with_name(clib.HEADER)}


@ndk.command("env", short_help="Print a client's environment for the shell to read.")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=Path("."))
@json_option
def ndk_env(folder: Path, as_json: bool) -> None:
    """Print what a client's process needs in its environment, for the shell to read.

    \b
    Example:
      eval "$(nnbridge ndk env build/ndk)" && ./client
    """
    from nnbridge import clib

    found = clib.environment(folder)
    if as_json:
        print_json({"set": found, "variables": clib.VARIABLES})
        return
    for name, meaning in clib.VARIABLES.items():
        echo(f"# {name}: {meaning}")
    for name, value in found.items():
        click.echo(os.fsencode(f"export {name}={shlex.quote(value)}"))
