"""``nnbridge vts``: Android's conformance cases on a device."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from nnbridge.cli.arguments import refuse_given
from nnbridge.cli.common import console, drivers_apart, json_option, print_json, print_tables
from nnbridge.report.wording import counted

_MAX_FAILURES = 20


@click.command(short_help="Run Android's conformance cases on a device.")
@click.argument("path", metavar="FOLDER", type=click.Path(path_type=Path))
@click.option("--device", metavar="NAME", default="nnapi-reference", show_default=True, help="The device to judge.")
@click.option("--suite", "suites", multiple=True, metavar="NAME", help="Only this suite; repeatable.")
@click.option("--spec", "specs", multiple=True, metavar="NAME", help="Only this spec; repeatable.")
@click.option(
    "--variant",
    type=click.Choice(["signed", "relaxed", "unknown-dimensions"]),
    help="Turn each case: 8-bit data signed, the model relaxed, or every dimension unknown.",
)
@click.option("--split", type=click.IntRange(min=0), metavar="SEED", help="Spread each model over three devices at random.")
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Processes; default: one for each core.")
@json_option
def vts(
    path: Path,
    device: str,
    suites: tuple[str, ...],
    specs: tuple[str, ...],
    variant: str | None,
    split: int | None,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Run Android's conformance cases from a folder on a device; exit status 1 if one fails.

    \b
    Examples:
      nnbridge vts cases/
      nnbridge vts cases/ --suite V1_3 --variant signed
      nnbridge vts cases/ --device my_package:MyDriver --spec conv_float
    """
    from rich.progress import Progress

    from nnbridge import devices as device_list
    from nnbridge import report
    from nnbridge.conformance.cases import spec_files
    from nnbridge.conformance.run import Setting, run_all
    from nnbridge.errors import InputError, Reason

    if split is not None:
        refuse_given("--device", why="--split deals each model to three drivers of its own")
    with drivers_apart():
        device_list.device(device)
    files = spec_files(path, suites, specs)
    shown = console(err=True)
    bar = Progress(console=shown, transient=True, disable=as_json or not shown.is_terminal)
    with drivers_apart(), bar as progress:
        task = progress.add_task("specs", total=len(files))
        outcome = run_all(files, Setting(device, variant, split), jobs, lambda done: progress.advance(task, done))
    if outcome.total == 0:
        raise InputError(Reason("cases that are of this variant" if variant else "cases", "none", operand=str(path)))
    if as_json:
        print_json(outcome.as_dict())
    else:
        for failure in outcome.failures[:_MAX_FAILURES]:
            click.echo(f"{failure.suite}/{failure.spec} {failure.case}: {failure.message}")
        if len(outcome.failures) > _MAX_FAILURES:
            click.echo(f"{counted(len(outcome.failures) - _MAX_FAILURES, 'more failure')}: see --json")
        title = f"Conformance on {device}" + (f", {variant}" if variant else "") + (", split" if split is not None else "")
        print_tables([report.conformance_table(outcome, title)])
        if outcome.nothing_ran:
            click.echo(f"No case ran: {device} takes none of them whole.")
    sys.exit(0 if outcome.passed else 1)
