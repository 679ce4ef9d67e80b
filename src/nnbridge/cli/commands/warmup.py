"""``nnbridge warmup``: compile kernels ahead of their first use."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from nnbridge.cli.output import echo, json_option, print_json, progress


@click.command(short_help="Compile kernels ahead of their first use.")
@click.argument("models", nargs=-1, type=click.Path(path_type=Path))
@json_option
def warmup(models: tuple[Path, ...], as_json: bool) -> None:
    """Compile the kernels that model files need, without files those of common networks, and store them in the cache.

    Kernels are compiled by families, not by models: other models mostly find what they need.

    \b
    Examples:
      nnbridge warmup
      nnbridge warmup models/*.tflite
    """
    from nnbridge.cpu import compiled
    from nnbridge.errors import InputError, Reason
    from nnbridge.file import load
    from nnbridge.runtime.warmup import typical_models, warm

    reason = compiled.unavailable()
    if reason is not None:
        raise InputError(Reason("compiled kernels", reason, operand="warmup"))
    count = len(models) or sum(1 for _ in typical_models())
    with progress("Compiling", count, as_json) as advance:
        for model in map(load, models) if models else typical_models():
            warm(model)
            advance(1)
    from nnbridge.cpu.compiled.instructions import chosen
    from nnbridge.cpu.compiled.objects import library

    made, found = library(chosen()).statistics, compiled.status()
    if as_json:
        print_json({**asdict(made), "cache": found.cache, "cache_fault": found.cache_fault})
        return
    echo(f"{made.compiled} kernels compiled, {made.loaded} found in the cache ({made.seconds:.2f} s): {found.cache or 'memory'}")
    if found.cache_fault:
        echo(f"nothing is stored: {found.cache_fault}", err=True)
