"""``nnbridge vts``: Android's conformance cases on a device."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from nnbridge.cli.arguments import check_outputs, refuse_options
from nnbridge.cli.options import WRITTEN, kernel_option, of_output, option
from nnbridge.cli.output import drivers_apart, json_option, print_blocks, print_json, progress
from nnbridge.cli.sections import command


@command(short_help="Run Android's conformance cases on a device.")
@click.argument("path", metavar="FOLDER|FILE", type=click.Path(path_type=Path))
@option("--device", metavar="DEVICE", default="nnapi-reference", help="The device to test.")
@option("--suite", "suites", multiple=True, metavar="NAME", help="Only this suite, or those of a pattern; repeatable.")
@option("--spec", "specs", multiple=True, metavar="NAME", help="Only this spec, or those of a pattern (conv_*); repeatable.")
@option(
    "--variant",
    values=("signed", "relaxed", "unknown-dimensions"),
    help="Run this variant of each case.",
)
@option("--split", type=click.IntRange(min=0), metavar="SEED", help="Spread each model over three devices at random.")
@of_output("--junit", type=WRITTEN, metavar="FILE", help="Write the results as JUnit XML as well.")
@option("--jobs", type=click.IntRange(min=1), metavar="N", help="Processes; default: one for each core.")
@kernel_option
@json_option
def vts(
    path: Path,
    device: str,
    suites: tuple[str, ...],
    specs: tuple[str, ...],
    variant: str | None,
    split: int | None,
    junit: Path | None,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Run Android's conformance cases from a folder, or one file of cases, on a device.

    Exit status 1 if one fails, or if the device accepts none.

    \b
    Examples:
      nnbridge vts cases/
      nnbridge vts cases/ --suite V1_3 --variant signed
      nnbridge vts cases/ --spec 'conv_*' --spec '*pool*'
      nnbridge vts cases/ --device my_package:MyDriver --spec conv_float_2
      nnbridge vts cases/ --device my-npu.toml --junit results.xml
      nnbridge vts reduced/part.json.gz --device my_package:MyDriver
      nnbridge vts cases/ --kernels reference
    """
    from nnbridge import devices as device_list
    from nnbridge.conformance.cases import spec_files
    from nnbridge.conformance.run import Setting, run_all
    from nnbridge.devices.evidence import evidences
    from nnbridge.errors import InputError, Reason
    from nnbridge.report.conformance import conformance_tables, write_junit

    if split is not None:
        refuse_options("--device", why="--split divides each model among its own three drivers")
    with drivers_apart():
        known = evidences([device_list.device(device)])
    files = spec_files(path, suites, specs)
    check_outputs({"--junit": junit}, {"the cases": files})
    with progress("Running specs", len(files), as_json) as advance:
        outcome = run_all(files, Setting(device, variant, split), jobs, advance)
    if outcome.total == 0:
        raise InputError(Reason("cases that are of this variant" if variant else "cases", "none", file=str(path)))
    if junit is not None:
        write_junit(outcome, device, junit)
    if as_json:
        print_json("vts", outcome.as_dict(known))
    else:
        how = (f", {variant}" if variant else "") + (", split" if split is not None else "")
        print_blocks(conformance_tables(outcome, device, how, known))
    sys.exit(0 if outcome.passed else 1)
