"""``nnbridge doctor``: what there is on this machine to compute with, and having it ready."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from nnbridge.cli.options import kernel_option, option
from nnbridge.cli.output import echo, json_option, print_blocks, print_json, progress
from nnbridge.cli.sections import command

WARM = """Compile kernels for these model files, or for common networks if none is given, and store them in the cache. Kernels are
compiled by family, so most other models find theirs, too."""


@command(short_help="Show kernels and extras; compile kernels ahead of their first use.")
@option("--warm", is_flag=True, help=WARM)
@click.argument("models", nargs=-1, type=click.Path(path_type=Path))
@kernel_option
@json_option
def doctor(warm: bool, models: tuple[Path, ...], as_json: bool) -> None:
    """Show the CPU's kernels, why others are not used, the kernels' cache, and the versions of extras.

    \b
    Examples:
      nnbridge doctor
      nnbridge doctor --json
      nnbridge doctor --warm models/*.tflite
      NNBRIDGE_INSTRUCTIONS=avx2 nnbridge doctor
    """
    from nnbridge.report.doctor import doctor_as_dict, doctor_tables

    if warm:
        _warm(models, as_json)
        return
    if models:
        raise click.UsageError("Model files need --warm, which compiles their kernels.")
    found = doctor_as_dict()
    if as_json:
        print_json("doctor", found)
    else:
        print_blocks(doctor_tables(found))


def _warm(models: tuple[Path, ...], as_json: bool) -> None:
    from nnbridge.cpu import compiled
    from nnbridge.errors import InputError, Reason
    from nnbridge.file import load
    from nnbridge.runtime.warmup import typical_models, warm

    reason = compiled.unavailable()
    if reason is not None:
        raise InputError(Reason("compiled kernels", reason, operand="--warm"))
    count = len(models) or sum(1 for _ in typical_models())
    with progress("Compiling", count, as_json) as advance:
        for model in map(load, models) if models else typical_models():
            warm(model)
            advance(1)
    from nnbridge.cpu.compiled.instructions import chosen
    from nnbridge.cpu.compiled.objects import library

    made, found = library(chosen()).statistics, compiled.status()
    if as_json:
        print_json("doctor", {**asdict(made), "cache": found.cache, "cache_fault": found.cache_fault})
    else:
        where = found.cache or "memory"
        echo(f"{made.compiled} kernels compiled, {made.loaded} found in the cache ({made.seconds:.2f} s): {where}")
    if found.cache_fault:
        raise InputError(
            Reason("a cache of kernels that can be written", f"nothing is stored: {found.cache_fault}", operand="--warm")
        )
