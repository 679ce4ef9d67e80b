"""``nnbridge doctor``: what there is on this machine to compute with."""

from __future__ import annotations

import click

from nnbridge.cli.options import kernel_option
from nnbridge.cli.output import json_option, print_blocks, print_json


@click.command(short_help="Show the kernels in use, and the versions of extras.")
@kernel_option
@json_option
def doctor(as_json: bool) -> None:
    """Show which kernels the CPU computes with and why not with others, their cache, and the versions of extras.

    \b
    Examples:
      nnbridge doctor
      nnbridge doctor --json
      NNBRIDGE_INSTRUCTIONS=avx2 nnbridge doctor
    """
    from nnbridge.report.doctor import doctor_as_dict, doctor_tables

    found = doctor_as_dict()
    if as_json:
        print_json(found)
    else:
        print_blocks(doctor_tables(found))
