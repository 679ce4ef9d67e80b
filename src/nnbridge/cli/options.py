"""The options of commands that take a model file, and what they make: a conversion, a model, a compilation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnbridge.cli.arguments import parse_shape
from nnbridge.cli.common import Command, drivers_apart, working

if TYPE_CHECKING:
    from nnbridge.converters import ConversionOptions
    from nnbridge.converters.inspection import Mapped
    from nnbridge.devices.device import Device
    from nnbridge.model import Model
    from nnbridge.runtime.compilation import Compilation

PARTITIONING = ("no", "with-fallback", "without-fallback")
"""Partitioning modes, by number."""
PREFERENCES = {"low-power": 0, "fast": 1, "sustained": 2}
MODEL = click.argument("model", type=click.Path(path_type=Path))


def _with_options(command: Command, *options: Callable[[Command], Command]) -> Command:
    """``--help`` lists them in this order."""
    for option in reversed(options):
        command = option(command)
    return command


def model_options(command: Command) -> Command:
    """Options of every command that converts a model file."""
    mapping = click.option(
        "--mapping",
        type=click.Choice(["wide", "delegate", "provider"]),
        default="wide",
        show_default=True,
        help="wide: all that NNAPI can express; delegate, provider: only what Android's delegate hands to NNAPI of a TFLite "
        "file, and ONNX Runtime's provider of an ONNX file.",
    )
    return mapping(conversion_options(command))


def conversion_options(command: Command) -> Command:
    """Options of every command that reads a model file."""
    return _with_options(
        command,
        click.option("--shape", "shapes", multiple=True, metavar="NAME=1,224,224,3", help="Dimensions of an input; repeatable."),
        click.option("--signature", default="", metavar="KEY", help="The signature to run, of files that have several."),
        click.option(
            "--feature-level",
            type=click.IntRange(1, 8),
            metavar="1-8",
            default=8,
            show_default=True,
            help="Highest NNAPI feature level that the model may need.",
        ),
        click.option(
            "--layout",
            type=click.Choice(["auto", "nhwc", "nchw"]),
            default="auto",
            show_default=True,
            help="Order of images' axes for ONNX files: nhwc moves channels last, nchw sets NNAPI's flag; auto is nhwc.",
        ),
        click.option(
            "--float64",
            type=click.Choice(["host", "narrow", "refuse"]),
            default="host",
            show_default=True,
            help="What becomes of float64 values of ONNX files: computed by the host, made float32, or the file is refused.",
        ),
    )


def device_options(command: Command) -> Command:
    """Options of every command that compiles."""
    return _with_options(
        command,
        click.option(
            "--device",
            "devices",
            multiple=True,
            metavar="NAME[,NAME…]",
            help="Drivers to offer the model to, in order, before NNAPI's CPU; repeatable. Default: the CPU alone. "
            "module:NAME imports that module, found in the current folder too, and runs its code.",
        ),
        click.option("--no-fallback", is_flag=True, help="These devices only: no CPU, no fallback (createForDevices)."),
        click.option(
            "--preference",
            type=click.Choice(list(PREFERENCES)),
            default="fast",
            show_default=True,
            help="Which figure chooses between devices: time, or power for low-power.",
        ),
        click.option(
            "--partitioning",
            type=click.Choice(list(PARTITIONING)),
            default="with-fallback",
            show_default=True,
            help="As Android's property debug.nn.partition: no offers nothing to drivers; without-fallback makes failures final. "
            "With --no-fallback failures are final anyway.",
        ),
        click.option(
            "--max-partitions",
            type=click.IntRange(min=0),
            metavar="N",
            help="Groups of operations that may go to drivers, as in TFLite's NNAPI delegate: the N with the most operators "
            "are kept, the others go to the CPU. 0: no limit. Default: 3 with --mapping delegate, as TFLite's; else 0.",
        ),
        click.option(
            "--cache-dir",
            type=click.Path(path_type=Path, file_okay=False),
            metavar="DIR",
            help="Keep compiled models here, under a checksum of the model (for devices that cache, such as caching:NAME).",
        ),
    )


def conversion(*, shapes: Sequence[str], **options: Any) -> ConversionOptions:
    """What the conversion options ask of a converter."""
    from nnbridge.converters import ConversionOptions

    return ConversionOptions(**options, shapes=dict(parse_shape(text) for text in shapes))


def load_model(path: Path, **options: Any) -> Model:
    """The model of a file."""
    from nnbridge.loading import load

    with working(f"Reading {path.name}"):
        return load(path, conversion(**options))


def compiled(path: Path, **options: Any) -> Compilation:
    """The model of a file, compiled for the devices asked for."""
    return compiled_with_report(path, **options)[0]


def compiled_with_report(
    path: Path,
    *,
    devices: Sequence[str],
    preference: str,
    cache_dir: Path | None,
    max_partitions: int | None,
    partitioning: str,
    no_fallback: bool,
    **options: Any,
) -> tuple[Compilation, tuple[Mapped, ...]]:
    """The same, with what became of each operator of the file."""
    from nnbridge.errors import InputError, Reason
    from nnbridge.loading import load_with_report
    from nnbridge.runtime.compilation import Compilation, PartitioningMode
    from nnbridge.runtime.partition_limits import TFLITE_DEFAULT
    from nnbridge.storage import checksum

    chosen = named_devices(devices)
    if no_fallback and not chosen:
        raise InputError(Reason("at least one --device", "none", operand="--no-fallback"))
    with working(f"Reading {path.name}"):
        model, mapped = load_with_report(path, conversion(**options))
    mode = PartitioningMode(PARTITIONING.index(partitioning))
    if max_partitions is None:
        max_partitions = TFLITE_DEFAULT if options["mapping"] == "delegate" and not no_fallback else 0
    with working("Compiling"), _of(path):
        compilation = Compilation.create_for_devices(model, chosen) if no_fallback else Compilation.create(model, chosen, mode)
        compilation.set_preference(PREFERENCES[preference])
        if cache_dir is not None:
            if _cache(chosen):
                _make(cache_dir)
            compilation.set_caching(cache_dir, checksum(model))
        compilation.set_max_partitions(max_partitions)
        compilation.finish()
    return compilation, mapped


def named_devices(given: Sequence[str]) -> list[Device]:
    """The devices of ``--device``."""
    from nnbridge import devices as device_list

    with drivers_apart():
        return [device_list.device(name.strip()) for group in given for name in group.split(",")]


@contextmanager
def _of(path: Path) -> Iterator[None]:
    """NNAPI's errors with the model's file."""
    from nnbridge.errors import NnapiError

    try:
        yield
    except NnapiError as error:
        reason = error.reason
        raise type(error)(replace(reason, operation=f"{path} {reason.operation}".rstrip())) from error


def _cache(devices: Sequence[Device]) -> bool:
    """True if one of the devices keeps what it compiles."""
    from nnbridge.devices.device import cache_files_needed

    return any(cache_files_needed(device) != (0, 0) for device in devices if device.kind == "device")


def _make(folder: Path) -> None:
    """The folder, where there is none."""
    from nnbridge.errors import InputError, Reason

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(Reason("a folder that can be made", str(error), operand="--cache-dir")) from error
