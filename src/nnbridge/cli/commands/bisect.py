"""``nnbridge bisect``: which operations, placed on a device, bring an error."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from nnbridge.cli.arguments import parse_preparation
from nnbridge.cli.options import (
    KNOWN_REFERENCES,
    MODEL,
    input_options,
    model_options,
    of_comparison,
    of_devices,
    of_reference,
    option,
)
from nnbridge.cli.output import INTERRUPTED, json_option, print_blocks, print_json, progress
from nnbridge.cli.searching import of_search, required_devices, search_of, search_options, searched_samples
from nnbridge.cli.sections import COMPARISON, command
from nnbridge.errors import InputError, Reason

WHAT = "any"
KINDS = ("fails", "falls-back", "differs", "slow")


@command(short_help="Find the operations that cause an error on a device.")
@MODEL
@option("--predicate", values=(WHAT, *KINDS), default=WHAT, help="What to look for; any: everything but slow.")
@of_reference(section=COMPARISON, help=f"What to compare with: {KNOWN_REFERENCES}. Default: NNAPI's CPU.")
@of_comparison("--against", metavar="DEVICE", help="A device as reference; reference is NNAPI's reference kernels.")
@of_devices("--max-partitions", type=click.IntRange(min=0), metavar="N", help="As for plan.")
@of_search("--max-runs", type=click.IntRange(min=1), metavar="N", default=500, help="Runs after which the search ends.")
@input_options
@search_options
@model_options
@json_option
def bisect(
    model: Path,
    predicate: str,
    reference: str | None,
    against: str | None,
    max_runs: int,
    inputs: tuple[str, ...],
    labels: Path | None,
    seeds: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Find the operations that, placed on a device, cause a difference, a failure, a fallback or a delay.

    Operations that are not on the device run on NNAPI's CPU. Exit status 0 if operations at fault were found,
    1 if nothing is wrong or the device is not at fault, 130 after Ctrl-C.

    \b
    Examples:
      nnbridge bisect model.tflite --device my_module:MINE
      nnbridge bisect model.tflite --device my_module:MINE --reference litert --input photo.png
      nnbridge bisect model.onnx --device my_module:MINE --predicate falls-back --timeout 5
    """
    from nnbridge.compare.references import reference as reference_runtime
    from nnbridge.compare.tensors import DeviceReference
    from nnbridge.devices import CPU_NAME
    from nnbridge.devices.evidence import evidence_lines, evidences
    from nnbridge.reduction.bisection import bisect as search_placements
    from nnbridge.report.search import search_tables

    how, options = parse_preparation(**options)
    if reference is not None and against is not None:
        raise click.UsageError("--reference and --against exclude each other.")
    kinds = None if predicate == WHAT else (predicate,)
    with search_of(model, kinds, against or CPU_NAME, options) as (search, planned):
        required_devices(search.drivers)
        loaded, limit = planned.model, planned.compilation.max_partitions
        if not loaded.main.operations:
            raise InputError(Reason("a model with operations", "none", operand=str(model)))
        runtime = (
            DeviceReference(loaded, search.reference)
            if reference is None
            else Path(reference)
            if reference.endswith(".npz")
            else reference_runtime(reference, model, options["signature"])
        )
        samples = searched_samples(planned, runtime, inputs, labels, how, seeds)
        with progress("Runs", len(loaded.main.operations).bit_length() + 1, as_json) as advance:
            found = search_placements(loaded, search, samples, max_partitions=limit, max_runs=max_runs, progress=advance)
        known = evidences(search.drivers)
    if as_json:
        evidence = [each.as_dict() for each in known]
        print_json("bisect", {**found.as_dict(), "model": str(model), "evidence": evidence})
    else:
        print_blocks([*search_tables(found, "Operations that cause it"), *evidence_lines(known)])
    sys.exit(INTERRUPTED if found.interrupted else 0 if found.found else 1)
