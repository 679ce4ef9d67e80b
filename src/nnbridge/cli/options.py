"""The options of commands that read a model file, and what follows from them: a conversion, a model, a compilation."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnbridge.cli.arguments import environment, parse_shapes
from nnbridge.cli.completion import by_metavar
from nnbridge.cli.output import Command, drivers_apart, echo, verbose, working
from nnbridge.engines import AUTO, HOSTS, OWN, host_for
from nnbridge.errors import ConversionError, InputError, NnapiError, Reason
from nnbridge.report import PREFERENCES
from nnbridge.types import ANDROID_LEVELS, RUNTIME_FEATURE_LEVEL

if TYPE_CHECKING:
    from nnbridge.converters import ConversionOptions
    from nnbridge.converters.inspection import Mapped, SignatureInfo
    from nnbridge.devices.device import Device
    from nnbridge.loading import Reader
    from nnbridge.model import Model
    from nnbridge.report.summary import Summary
    from nnbridge.runtime.compilation import Compilation


class Written(click.Path):
    """A file that a command writes: a path that ends as folders do is none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and value.endswith(("/", os.sep)):
            raise InputError(Reason("a file's name", f"the folder {value!r}", operand=param.opts[-1] if param else ""))
        return super().convert(value, param, ctx)


WRITTEN = Written(path_type=Path)
"""The type of options that name a file to write."""
PARTITIONING = ("no", "with-fallback", "without-fallback")
"""Partitioning modes, by number."""
_CONVERSION = ("shapes", "signature", "feature_level", "android", "layout", "float64", "mapping")
PREPARATION = ("--resize", "--mean", "--std", "--scale", "--image-layout", "--rate")
"""Options that mean something to inputs from files only."""
MODEL = click.argument("model", type=click.Path(path_type=Path))


def option(name: str, *names: str, **settings: Any) -> Callable[[Command], Command]:
    """An option whose default, if it has one, is shown in the help; ``values`` are the words to choose from."""
    if "values" in settings:
        settings["type"] = click.Choice(list(settings.pop("values")))
    if "type" not in settings and "metavar" in settings:
        settings.setdefault("shell_complete", by_metavar(settings["metavar"]))
    shown = "default" in settings and settings["default"] not in (None, "")
    return click.option(name, *names, show_default=shown, **settings)


def with_options(command: Command, *options: Callable[[Command], Command]) -> Command:
    """``--help`` lists them in this order."""
    for add in reversed(options):
        command = add(command)
    return command


def conversion_options(command: Command) -> Command:
    """Options of every command that reads a model file."""
    level = "Highest NNAPI feature level that the model may need. Default: 8."
    android = "The same by the version of the phone's Android: 8.1 is level 1, then one more for each; 13 to 15 are level 8."
    layout = "Order of images' axes for ONNX files: nhwc moves channels last, nchw sets NNAPI's flag; auto is nhwc."
    doubles = "float64 values of ONNX files are computed by the host, narrowed to float32, or the file is refused."
    return with_options(
        command,
        option("--shape", "shapes", multiple=True, metavar="NAME=1,224,224,3", help="Dimensions of an input; repeatable."),
        option("--signature", default="", metavar="KEY", help="The signature to run, of files that have several."),
        option("--feature-level", type=click.IntRange(1, 8), metavar="1-8", help=level),
        option("--android", values=ANDROID_LEVELS, help=android),
        option("--layout", values=("auto", "nhwc", "nchw"), default="auto", help=layout),
        option("--float64", values=("host", "narrow", "refuse"), default="host", help=doubles),
    )


def model_options(command: Command) -> Command:
    """Options of every command that converts a model file."""
    mapping = """What is handed to NNAPI. phone: what a phone does, which is delegate (Android's TFLite delegate) for TFLite files
        and provider (ONNX Runtime's) for ONNX files; wide: all that NNAPI can express."""
    values = ("phone", "wide", "delegate", "provider")
    return option("--mapping", values=values, default="phone", help=mapping)(conversion_options(command))


def device_options(command: Command, host: str = OWN) -> Command:
    """Options of every command that compiles; ``host``: what computes operators that no device gets, unless stated."""
    devices = """Drivers to offer the model to, in order, before NNAPI's CPU; repeatable. Default: the CPU alone. module:NAME
        imports that module, found in the current folder too, and runs its code."""
    alone = "These devices only: no CPU, no fallback (createForDevices)."
    disallowed = """As TFLite's delegate by default: these devices only; operators that they refuse, or of partitions beyond the
        limit, stay with TFLite, which the host computes as TFLite's reference kernels do."""
    preference = "What decides between devices: relative execution time, or power use for low-power."
    partitioning = """As Android's property debug.nn.partition: no offers nothing to drivers; without-fallback makes failures
        final. With --no-fallback failures are final anyway."""
    partitions = """Groups of operations that may go to drivers, as in TFLite's NNAPI delegate: the N with the most operators go
        there, the others to the CPU. 0: no limit. Default: 3 under the delegate mapping, as TFLite's; else 0."""
    hosts = """What computes operators that stay with TFLite or ONNX Runtime. nnbridge: kernels of its own, as TFLite's reference
        kernels; the runtime itself, as on a phone: litert (with XNNPACK, TFLite's default), litert-plain, litert-reference,
        onnxruntime; auto: litert or onnxruntime under the delegate's or provider's mapping, and nnbridge for what they do not
        run. run has auto by default; commands that look at each operator have nnbridge."""
    cache = "Store compiled models here, under a checksum of the model (for devices that cache, such as caching:NAME)."
    folder = click.Path(path_type=Path, file_okay=False)
    return with_options(
        command,
        option("--device", "devices", multiple=True, metavar="NAME[,NAME…]", help=devices),
        option("--no-fallback", is_flag=True, help=alone),
        option("--disallow-nnapi-cpu", is_flag=True, help=disallowed),
        option("--preference", values=PREFERENCES, default="fast", help=preference),
        option("--partitioning", values=PARTITIONING, default="with-fallback", help=partitioning),
        option("--max-partitions", type=click.IntRange(min=0), metavar="N", help=partitions),
        option("--host", values=HOSTS, default=host, help=hosts),
        option("--cache-dir", type=folder, metavar="DIR", help=cache),
    )


def running_options(command: Command) -> Command:
    """:func:`device_options` of a command whose answers are a phone's."""
    return device_options(command, AUTO)


def _set_kernels(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """In the environment, from which this command's other processes have it too."""
    if value is not None:
        from nnbridge.cpu.settings import ENVIRONMENT

        context.with_resource(environment(ENVIRONMENT, value))


def kernel_option(command: Command) -> Command:
    """``--kernels``."""
    kernels = """Kernels of the CPU and of devices that compute on it: auto is compiled ones where they can be had. Default:
        NNBRIDGE_KERNELS, else auto."""
    settings: dict[str, Any] = {"expose_value": False, "callback": _set_kernels, "help": kernels}
    return option("--kernels", values=("auto", "reference", "compiled"), **settings)(command)


def compute_options(command: Command) -> Command:
    """Options of every command that computes: kernels and threads."""
    threads = """Threads of each run on the CPU and on devices that compute on it. Default: 1; what NumPy's BLAS computes, as many
        as that has."""
    return kernel_option(option("--threads", type=click.IntRange(1, 256), metavar="N", help=threads)(command))


def input_options(command: Command) -> Command:
    """Options of every command that reads inputs from files."""
    file = """A file for an input, of the model's first one without NAME; repeatable. Arrays (.npy; .npz by the inputs' names),
        images, sound (.wav), raw elements (.bin), numbers such as tokens (.txt, .csv). A folder is a data set: its files by name,
        sub-folders are labels."""
    resize = "Images become as large as the input: stretched, fitted in with black borders, or cropped around their centre."
    mean = "Images: real = (pixel * scale - mean) / std; one number or one per channel. Default: the model's metadata."
    layout = "Order of an image's axes in the input; auto: from its dimensions."
    return with_options(
        command,
        option("--input", "inputs", multiple=True, metavar="[NAME=]FILE", help=file),
        option("--resize", values=("stretch", "fit", "crop"), default="stretch", help=resize),
        option("--mean", default="", metavar="X[,X…]", help=mean),
        option("--std", default="", metavar="X[,X…]", help="See --mean."),
        option("--scale", default="", metavar="X", help="See --mean; fractions such as 1/255 are understood."),
        option("--image-layout", values=("auto", "nhwc", "nchw"), default="auto", help=layout),
        option("--rate", type=click.IntRange(1, 10_000_000), metavar="HZ", help="Resample sound to this rate."),
        option("--labels", type=click.Path(path_type=Path), metavar="FILE", help="Names of classes, one in each line."),
    )


def conversion(
    *, shapes: Sequence[str], feature_level: int | None = None, android: str | None = None, **options: Any
) -> ConversionOptions:
    """The conversion options as a converter receives them."""
    from nnbridge.converters import ConversionOptions

    known = ANDROID_LEVELS.get(android or "", feature_level)
    if feature_level not in (None, known):
        raise InputError(Reason(f"Android {android}'s feature level {known}", str(feature_level), operand="--feature-level"))
    return ConversionOptions(int(known or RUNTIME_FEATURE_LEVEL), **options, shapes=parse_shapes(shapes))


def conversion_of(options: Mapping[str, Any]) -> ConversionOptions:
    """The conversion options among all options of a command."""
    return conversion(**{name: options[name] for name in _CONVERSION})


def read_model(path: Path, options: Mapping[str, Any]) -> Model:
    """A file's model, under the conversion options among all of a command."""
    from nnbridge.loading import load

    with working(f"Reading {path.name}"):
        return load(path, conversion_of(options))


def summary_of(compilation: Compilation, mapped: Sequence[Mapped], path: Path, options: Mapping[str, Any]) -> Summary:
    """What the plan of a file comes to, under the conversion options among all of a command."""
    from nnbridge.devices.source_profiles import BoundDevice
    from nnbridge.loading import mapping_of
    from nnbridge.report.summary import summarise, summarise_claims
    from nnbridge.types import android_name

    asked = conversion_of(options)
    android = f"Android {options['android']}" if options["android"] else android_name(asked.feature_level)
    drivers = [device for device in compilation.plan.devices if device.kind == "device"]
    bound = [device for device in drivers if isinstance(device, BoundDevice)]
    if bound and len(bound) == len(drivers):
        return summarise_claims(compilation, {d.name: [claim.accepted for claim in d.claims] for d in bound}, android)
    return summarise(compilation, mapped, mapping_of(path, asked), asked.feature_level, android)


def interface_of(path: Path, options: Mapping[str, Any]) -> SignatureInfo:
    """What the model's file states of its inputs and outputs; ``options``: the conversion's among others.

    Metadata that is damaged is reported, and the model runs without it.
    """
    from nnbridge.converters import ConversionOptions
    from nnbridge.converters.inspection import SignatureInfo
    from nnbridge.loading import interface

    try:
        return interface(path, ConversionOptions(signature=options["signature"]))
    except ConversionError as error:
        echo(f"metadata is not used: {error}", err=True)
        return SignatureInfo("", (), ())


def compiled(path: Path, **options: Any) -> tuple[Compilation, tuple[Mapped, ...]]:
    """The model of a file, compiled for the requested devices, with the outcome of each operator of the file."""
    compilation, mapped = compilation_of(path, **options)
    finish(compilation, path)
    return compilation, mapped


def finish(compilation: Compilation, path: Path, *, prepare: bool = True) -> None:
    """Finish the compilation of a file's model."""
    try:
        with working("Compiling"), _of(path):
            compilation.finish(prepare=prepare)
    finally:
        if verbose():
            from nnbridge.report.log import decision_lines

            for line in decision_lines(compilation):
                echo(line, err=True)


def compilation_of(
    path: Path,
    *,
    devices: Sequence[str] = (),
    chosen: Sequence[Device] | None = None,
    limit: int | None = None,
    reader: Reader | None = None,
    preference: str,
    cache_dir: Path | None,
    max_partitions: int | None,
    partitioning: str,
    no_fallback: bool,
    disallow_nnapi_cpu: bool = False,
    host: str = OWN,
    kernels: str | None = None,
    threads: int | None = None,
    **options: Any,
) -> tuple[Compilation, tuple[Mapped, ...]]:
    """The compilation before it is finished, and the outcome of each operator of the file.

    ``chosen`` and ``limit``: the devices, bound to the file already, and their limit on partitions (:func:`bound_to`).
    ``reader``: one that has read the file before.
    """
    from nnbridge.devices.device import cache_files_needed
    from nnbridge.loading import Reader, load_without_cpu
    from nnbridge.runtime.compilation import Compilation, PartitioningMode
    from nnbridge.storage import checksum

    if chosen is None:
        chosen, limit = bound_to(path, named_devices(devices), options)
    alone = no_fallback or disallow_nnapi_cpu
    if alone and not chosen:
        name = "--no-fallback" if no_fallback else "--disallow-nnapi-cpu"
        raise InputError(Reason("at least one --device", "none", operand=name))
    asked = conversion(**options)
    max_partitions = partition_limit(path, asked, max_partitions, limit, 0 if no_fallback and not disallow_nnapi_cpu else None)
    with working(f"Reading {path.name}"), _of(path):
        if disallow_nnapi_cpu:
            model, mapped = load_without_cpu(path, asked, chosen, max_partitions)
            max_partitions = 0
        else:
            model, mapped = (reader or Reader()).load_with_report(path, asked)
    chosen = [*chosen, *host_for(host, path, asked)]
    mode = PartitioningMode(PARTITIONING.index(partitioning))
    with _of(path):
        compilation = (
            Compilation.create_for_devices(model, chosen, kernels=kernels, threads=threads)
            if alone
            else Compilation.create(model, chosen, mode, kernels=kernels, threads=threads)
        )
        compilation.set_preference(PREFERENCES[preference])
        if cache_dir is not None:
            if any(cache_files_needed(device) != (0, 0) for device in chosen if device.kind == "device"):
                try:
                    cache_dir.mkdir(parents=True, exist_ok=True)
                except OSError as error:
                    raise InputError(Reason("a folder that can be created", str(error), operand="--cache-dir")) from error
            compilation.set_caching(cache_dir, checksum(model))
        compilation.set_max_partitions(max_partitions)
    return compilation, mapped


def tell_host(compilation: Compilation, host: str) -> None:
    """Say on standard error who computed what no device got, where ``--host auto`` left that open."""
    from nnbridge.report.hosts import host_as_dict, host_lines

    for line in host_lines(host_as_dict(compilation)) if host == AUTO and compilation.is_ready else ():
        echo(line, err=True)


def partition_limit(path: Path, asked: ConversionOptions, *stated: int | None) -> int:
    """The first limit on partitions that is stated, else the one of the file's mapping."""
    from nnbridge.loading import mapping_of
    from nnbridge.runtime.partition_limits import TFLITE_DEFAULT

    known = [limit for limit in stated if limit is not None]
    return known[0] if known else TFLITE_DEFAULT if mapping_of(path, asked) == "delegate" else 0


def bound_to(
    path: Path, chosen: Sequence[Device], options: Mapping[str, Any], reader: Reader | None = None
) -> tuple[list[Device], int | None]:
    """:func:`nnbridge.loading.bound_to` with a command's options."""
    from nnbridge.converters import ConversionOptions
    from nnbridge.loading import bound_to

    asked = ConversionOptions(signature=options["signature"], shapes=parse_shapes(options["shapes"]))
    return bound_to(path, chosen, asked, reader)


def named_devices(names: Sequence[str]) -> list[Device]:
    """The devices of ``--device``."""
    from nnbridge import devices as device_list

    with drivers_apart():
        return [device_list.device(name.strip()) for group in names for name in group.split(",")]


@contextmanager
def _of(path: Path) -> Iterator[None]:
    """NNAPI's errors, with the model's file in front."""
    try:
        yield
    except NnapiError as error:
        reason = error.reason
        raise type(error)(replace(reason, operation=f"{path} {reason.operation}".rstrip())) from error
