"""Parts shared by ``bisect`` and ``reduce``: options, drivers in separate processes, the samples that are searched on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnbridge.cli.arguments import environment, parse_seeds, refuse_options, tolerances_of
from nnbridge.cli.options import (
    PREPARATION,
    file_of,
    in_section,
    kernel_option,
    of_comparison,
    of_devices,
    option,
    target_of,
    with_options,
)
from nnbridge.cli.output import Command, drivers_apart, echo, working
from nnbridge.cli.sections import SEARCH
from nnbridge.errors import InputError, Reason
from nnbridge.target import PREFERENCES, Fallback

if TYPE_CHECKING:
    from nnbridge.compare import Reference, Sample
    from nnbridge.devices.device import Device
    from nnbridge.inputs import Preparation
    from nnbridge.plan import Planned
    from nnbridge.reduction import Search

of_search = in_section(SEARCH)
_APART = ("process:", "socket:")


def search_options(command: Command) -> Command:
    """Options of every command that searches for a symptom."""
    devices = """Drivers to search on, in order, before NNAPI's CPU; repeatable. Code that is not part of nnbridge runs in a
        separate process, which is restarted when it dies."""
    same = "Run drivers in this process: faster, but one that dies or hangs ends the search."
    timeout = "Time that a call to a driver in a separate process may take, or a command of --predicate."
    return with_options(
        command,
        option("--device", "devices", multiple=True, metavar="NAME[,NAME…]", help=devices),
        of_devices("--same-process", is_flag=True, help=same),
        of_search("--timeout", type=click.FloatRange(min=0, min_open=True), default=20.0, metavar="SECONDS", help=timeout),
        of_search(
            "--slower-by",
            type=click.FloatRange(min=0),
            default=0.1,
            metavar="SECONDS",
            help="For slow: how much slower than the CPU.",
        ),
        of_devices("--preference", values=PREFERENCES, default="fast", help="What decides between devices, as for plan."),
        of_comparison(
            "--seeds",
            default="0",
            metavar="N[,N-N…]",
            help="Without --input: a random sample for each.",
        ),
        of_comparison("--atol", type=float, metavar="X", help="Absolute tolerance of floats, as for compare."),
        of_comparison("--rtol", type=float, metavar="X", help="Relative tolerance of floats, as for compare."),
        of_comparison(
            "--quant-steps",
            type=click.IntRange(min=0),
            metavar="N",
            default=1,
            help="Tolerance of 8- and 16-bit integers, in steps.",
        ),
        kernel_option,
    )


@contextmanager
def search_of(
    path: Path, kinds: tuple[str, ...] | None, reference: str, options: Mapping[str, Any], fallback: Fallback | None = None
) -> Iterator[tuple[Search, Planned]]:
    """The devices and the symptom to search for, and the plan of the whole file; calls to drivers have the time-out."""
    from nnbridge.devices.remote.session import TIMEOUT_VARIABLE
    from nnbridge.plan import draft
    from nnbridge.reduction import Search

    names = [name.strip() for group in options["devices"] for name in group.split(",")]
    listed = [name if options["same_process"] else apart(name) for name in names]
    target = target_of({**options, "devices": listed}).with_(fallback=fallback)
    with environment(TIMEOUT_VARIABLE, str(options["timeout"])):
        with working(f"Reading {path.name}"):
            planned = draft(file_of(path, options), target, asks=True)
        planned.require_loaded()
        for line in planned.of_other_androids:
            echo(line, err=True)
        with drivers_apart():
            search = Search(
                planned.drivers,
                **({} if kinds is None else {"kinds": kinds}),
                tolerances=tolerances_of(options["atol"], options["rtol"], options["quant_steps"]),
                slower_by=options["slower_by"],
                preference=PREFERENCES[options["preference"]],
                reference=reference,
            )
            yield search, planned


def apart(name: str) -> str:
    """The name of the same device in a separate process, unless it is there already or all of its code is nnbridge's."""
    from nnbridge.devices import CPU_NAME, shipped, shipped_at_source
    from nnbridge.devices.profile_file import SUFFIX
    from nnbridge.devices.samples import SAMPLE_DRIVERS

    own = {CPU_NAME, *(driver.name for driver in (*SAMPLE_DRIVERS, *shipped(), *shipped_at_source()))}
    base = re.sub(r"(@\d+)$", "", name.removeprefix("caching:"))
    return name if name.startswith(_APART) or base in own or SUFFIX in base else f"process:{name}"


def searched_samples(
    planned: Planned,
    runtime: Reference | Path | None,
    inputs: tuple[str, ...],
    labels: Path | None,
    how: Preparation,
    seeds: str,
) -> Sequence[Sample]:
    """The samples of ``--input`` or ``--seeds`` with a reference's outputs; a reference that is a file has its own inputs."""
    from nnbridge.sampling import samples_of

    if not inputs:
        refuse_options("--labels", *PREPARATION, why="no --input has a file")
        if isinstance(runtime, Path):
            refuse_options("--seeds", why="--reference FILE.npz has its own samples")
    return list(samples_of(planned, runtime, inputs, labels, how, parse_seeds(seeds)).draw())


def required_devices(drivers: Sequence[Device]) -> None:
    """InputError without a driver to search on."""
    if not any(driver.kind == "device" for driver in drivers):
        found = ", ".join(driver.name for driver in drivers) or "none"
        raise InputError(Reason("at least one driver", found, operand="--device"))
