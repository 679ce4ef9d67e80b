"""The commands. Each imports what it needs when it runs, so that ``--help`` and ``devices`` stay quick."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from nnbridge.cli.common import Command, console, json_option, print_json, print_tables
from nnbridge.cli.devices import devices
from nnbridge.errors import NnapiError, NnbridgeError

if TYPE_CHECKING:
    from nnbridge.converters import ConversionOptions
    from nnbridge.inspection import Mapped
    from nnbridge.model import Model
    from nnbridge.runtime.compilation import Compilation

PARTITIONING = ("no", "with-fallback", "without-fallback")
"""Partitioning modes, by number."""
PREFERENCES = {"low-power": 0, "fast": 1, "sustained": 2}
MODEL = click.argument("model", type=click.Path(path_type=Path))


class _Group(click.Group):
    """Turns nnbridge's errors into one message on standard error and exit status 2."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except NnapiError as error:
            _stop(f"{error.code.name}: {error}")
        except NnbridgeError as error:
            _stop(str(error))


def _stop(message: str) -> NoReturn:
    click.echo(f"nnbridge: {message}", err=True)
    sys.exit(2)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="nnbridge")
def cli() -> None:
    """Android's Neural Networks API on a workstation: convert models, see what devices take, run and compare.

    \b
    Examples:
      nnbridge plan model.tflite --device nnapi-sample_float_fast
      nnbridge compare model.tflite --device nnapi-sample_quant --reference litert --seeds 0,1,2
      nnbridge devices
    """


def _model_options(command: Command) -> Command:
    """Options of every command that converts a model file."""
    return _conversion_options(
        click.option(
            "--mapping",
            type=click.Choice(["wide", "delegate", "provider"]),
            default="wide",
            show_default=True,
            help="wide: all that NNAPI can express; delegate, provider: only what Android's delegate hands to NNAPI of a TFLite "
            "file, and ONNX Runtime's provider of an ONNX file.",
        )(command)
    )


def _conversion_options(command: Command) -> Command:
    """Options of every command that reads a model file."""
    for option in (
        click.option(
            "--feature-level",
            type=click.IntRange(1, 8),
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
        click.option("--signature", default="", metavar="KEY", help="The signature to run, of files that have several."),
        click.option("--shape", "shapes", multiple=True, metavar="NAME=1,224,224,3", help="Dimensions of an input; repeatable."),
    ):
        command = option(command)
    return command


def _device_options(command: Command) -> Command:
    """Options of every command that compiles."""
    for option in (
        click.option(
            "--device",
            "devices",
            multiple=True,
            metavar="NAME[,NAME…]",
            help="Drivers to offer the model to, in order, before NNAPI's CPU; repeatable. Default: the CPU alone.",
        ),
        click.option(
            "--preference",
            type=click.Choice(list(PREFERENCES)),
            default="fast",
            show_default=True,
            help="Which figure chooses between devices: time, or power for low-power.",
        ),
        click.option(
            "--cache-dir",
            type=click.Path(path_type=Path, file_okay=False),
            metavar="DIR",
            help="Keep compiled models here, under a checksum of the model (for devices that cache, such as caching:NAME).",
        ),
        click.option(
            "--max-partitions",
            type=click.IntRange(min=0),
            metavar="N",
            help="Groups of operations that may go to drivers, as in TFLite's NNAPI delegate: the N with the most operators "
            "are kept, the others go to the CPU. 0: no limit. Default: 3 with --mapping delegate, as TFLite's; else 0.",
        ),
        click.option(
            "--partitioning",
            type=click.Choice(list(PARTITIONING)),
            default="with-fallback",
            show_default=True,
            help="As Android's property debug.nn.partition: no offers nothing to drivers; without-fallback makes failures final.",
        ),
        click.option("--no-fallback", is_flag=True, help="These devices only: no CPU, no fallback (createForDevices)."),
    ):
        command = option(command)
    return command


@cli.command()
@MODEL
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The .nnapi file to write.")
@_model_options
@json_option
def convert(model: Path, output: Path, as_json: bool, **options: Any) -> None:
    """Convert a TFLite or ONNX file into a saved NNAPI model.

    \b
    Example:
      nnbridge convert model.tflite -o model.nnapi
    """
    from nnbridge import storage
    from nnbridge.runtime.partition import required_level

    loaded = _load(model, **options)
    storage.save(loaded, output)
    level = int(required_level(loaded))
    summary = {
        "model": str(model),
        "output": str(output),
        "bytes": output.stat().st_size,
        "operations": len(loaded.main.operations),
        "operands": len(loaded.main.operands),
        "feature_level": level,
    }
    if as_json:
        print_json(summary)
    else:
        click.echo(
            f"{output}: {summary['operations']} operations, {summary['operands']} operands, "
            f"{summary['bytes']:,} bytes, feature level {level}"
        )


@cli.command()
@MODEL
@_device_options
@_model_options
@click.option("--full", is_flag=True, help="One row for each operation instead of groups.")
@json_option
def plan(model: Path, full: bool, as_json: bool, **options: Any) -> None:
    """Show which device takes each operation, and why not the others.

    \b
    Examples:
      nnbridge plan model.tflite --device nnapi-sample_float_fast
      nnbridge plan model.tflite --device nnapi-sample_float_fast,nnapi-sample_minimal --preference low-power
    """
    from nnbridge import report
    from nnbridge.inspection import mapped_as_dict
    from nnbridge.report_inspection import host_reasons

    mapping = options["mapping"]
    compilation, mapped = _compile_with_report(model, **options)
    if as_json:
        print_json(report.plan_as_dict(compilation) | {"conversion": {mapping: mapped_as_dict(mapped)}})
    else:
        print_tables([*report.plan_tables(compilation, full), *host_reasons(mapping, mapped)])


@cli.command()
@MODEL
@_device_options
@_model_options
@click.option("--input", "inputs", multiple=True, metavar="NAME=FILE.npy", help="An input; repeatable.")
@click.option("--seed", type=int, help="Draw the inputs that are not given with this seed.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the outputs to this .npz file.")
@click.option("--repeat", type=click.IntRange(min=1), default=1, show_default=True, help="Runs in a row; states go on.")
@json_option
def run(
    model: Path, inputs: tuple[str, ...], seed: int | None, output: Path | None, repeat: int, as_json: bool, **options: Any
) -> None:
    """Run a model and write or describe its outputs, those of the last run if it is repeated.

    \b
    Examples:
      nnbridge run model.tflite --seed 0 -o outputs.npz
      nnbridge run model.tflite --input image=cat.npy --device nnapi-sample_quant -o outputs.npz
    """
    import numpy as np

    from nnbridge.files import atomic_write
    from nnbridge.runtime.execution import Execution
    from nnbridge.runtime.states import States

    compilation = _compile(model, **options)
    given = _read_inputs(compilation.model, inputs, seed)
    states = States(compilation.model)
    for _ in range(repeat):
        execution = Execution(compilation, states)
        execution.measure_steps()
        outputs = execution.run(given)
    if output is not None:
        with atomic_write(output) as file:
            np.savez(file, **outputs)  # type: ignore[arg-type]
    described: list[dict[str, Any]] = [
        {"name": name, "type": str(array.dtype), "shape": list(array.shape), **_range(array)} for name, array in outputs.items()
    ]
    steps: list[dict[str, Any]] = [
        {
            "device": s.device,
            "milliseconds": s.nanoseconds / 1e6,
            "on_device_milliseconds": s.on_device and s.on_device / 1e6,
            "in_driver_milliseconds": s.in_driver and s.in_driver / 1e6,
            "runs": s.runs,
            "fallback": s.fallback and str(s.fallback),
        }
        for s in execution.report.steps
    ]
    if as_json:
        whole = execution.report.fallback
        print_json({"model": str(model), "outputs": described, "steps": steps, "fallback": whole and str(whole)})
        return
    for item in described:
        shown = ", ".join(f"{key} {item[key]:.6g}" for key in ("min", "max", "mean") if key in item)
        click.echo(f"{item['name']}: {item['type']}{item['shape']} {shown}")
    for step in steps:
        why = f" (fell back: {step['fallback']})" if step["fallback"] else ""
        often = f" in {step['runs']} runs" if step["runs"] > 1 else ""
        click.echo(f"{step['device']}: {step['milliseconds']:.2f} ms{often}{why}", err=True)
    if execution.report.fallback is not None:
        click.echo(f"The whole model was repeated on the CPU: {execution.report.fallback}", err=True)


@cli.command()
@MODEL
@_device_options
@_model_options
@click.option("--reference", required=True, metavar="litert|onnxruntime|FILE.npz", help="What to compare with.")
@click.option("--seeds", default="0,1,2", show_default=True, help="Seeds of the inputs, comma-separated.")
@click.option("--steps", type=click.IntRange(min=1), default=1, show_default=True, help="Calls per seed; states go on.")
@click.option("--plan", "show_plan", is_flag=True, help="Print the plan before the comparison.")
@json_option
def compare(model: Path, reference: str, seeds: str, steps: int, show_plan: bool, as_json: bool, **options: Any) -> None:
    """Run a model and compare every output with a reference; exit status 1 if one is outside tolerance.

    \b
    Examples:
      nnbridge compare model.tflite --reference litert --seeds 0,1,2
      nnbridge compare model.onnx --device nnapi-sample_float_fast --reference onnxruntime
      nnbridge compare model.tflite --reference outputs.npz --plan
    """
    from nnbridge import compare as comparing
    from nnbridge import report
    from nnbridge.references import reference as find_reference

    numbers = _seeds(seeds)
    compilation = _compile(model, **options)
    if reference.endswith(".npz"):
        samples = comparing.stored_samples(compilation.model, Path(reference))
    else:
        found = find_reference(reference, model, options["signature"])
        samples = comparing.seeded_samples(compilation.model, found, numbers, steps)
    if show_plan and not as_json:
        print_tables(report.plan_tables(compilation))
    with _progress(as_json) as advance:
        comparison = comparing.compare(compilation, reference, advance(samples))
    if as_json:
        data = comparison.as_dict()
        if show_plan:
            data["plan"] = report.plan_as_dict(compilation)
        print_json(data)
    else:
        print_tables([report.comparison_table(comparison), *(f"Fell back: {line}" for line in comparison.fallbacks)])
    sys.exit(0 if comparison.passed else 1)


@cli.command()
@MODEL
@_conversion_options
@json_option
def inspect(model: Path, as_json: bool, **options: Any) -> None:
    """Show what a model file holds and what of it maps to NNAPI under each mapping, without running anything.

    \b
    Examples:
      nnbridge inspect model.tflite
      nnbridge inspect model.onnx --json
    """
    from nnbridge.loading import inspect as look_into
    from nnbridge.report_inspection import inspection_tables

    found = look_into(model, _conversion(**options))
    if as_json:
        print_json(found.as_dict())
    else:
        print_tables(list(inspection_tables(found)))


cli.add_command(devices)


@cli.group()
def ndk() -> None:
    """The C library libneuralnetworks.so, for NNAPI clients that know nothing of nnbridge."""


@ndk.command("build")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@json_option
def ndk_build(folder: Path, as_json: bool) -> None:
    """Compile libneuralnetworks.so and put it, with a header, into a folder.

    \b
    Example:
      nnbridge ndk build build/ndk
      gcc client.c -Ibuild/ndk -Lbuild/ndk -lneuralnetworks
    """
    from nnbridge import clib

    made = clib.build(folder)
    if as_json:
        print_json({"library": str(made), "header": str(folder / clib.HEADER)})
    else:
        click.echo(f"{made}\n{folder / clib.HEADER}")


@ndk.command("env")
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
        click.echo(f"# {name}: {meaning}")
    for name, value in found.items():
        click.echo(f"export {name}={shlex.quote(value)}")


@cli.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--device", default="nnapi-reference", show_default=True, help="The device to judge.")
@click.option("--suite", "suites", multiple=True, help="Only this suite; repeatable.")
@click.option("--spec", "specs", multiple=True, help="Only this spec; repeatable.")
@click.option(
    "--variant",
    type=click.Choice(["signed", "relaxed", "unknown-dimensions"]),
    help="Turn each case: 8-bit data signed, the model relaxed, or every dimension unknown.",
)
@click.option("--split", type=int, metavar="SEED", help="Spread each model over three devices at random.")
@click.option("--jobs", type=click.IntRange(min=1), help="Processes; default: one for each core.")
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

    device_list.device(device)
    files = spec_files(path, suites, specs)
    with Progress(console=console(err=True), transient=True, disable=as_json) as progress:
        task = progress.add_task("specs", total=len(files))
        outcome = run_all(files, Setting(device, variant, split), jobs, lambda done: progress.advance(task, done))
    if as_json:
        print_json(outcome.as_dict())
    else:
        for failure in outcome.failures:
            click.echo(f"{failure.suite}/{failure.spec} {failure.case}: {failure.message}")
        title = f"Conformance on {device}" + (f", {variant}" if variant else "") + (", split" if split is not None else "")
        print_tables([report.conformance_table(outcome, title)])
    sys.exit(0 if outcome.passed else 1)


# -- shared by the commands -------------------------------------------------------------------------------------------


def _load(path: Path, **options: Any) -> Model:
    from nnbridge.loading import load

    return load(path, _conversion(**options))


def _conversion(*, shapes: Sequence[str], **options: Any) -> ConversionOptions:
    from nnbridge.converters import ConversionOptions

    return ConversionOptions(**options, shapes=dict(_shape(text) for text in shapes))


def _compile(path: Path, **options: Any) -> Compilation:
    return _compile_with_report(path, **options)[0]


def _compile_with_report(
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
    from nnbridge import devices as device_list
    from nnbridge.loading import load_with_report
    from nnbridge.runtime.compilation import Compilation, PartitioningMode
    from nnbridge.runtime.delegation import TFLITE_DEFAULT
    from nnbridge.storage import checksum

    names = [name.strip() for group in devices for name in group.split(",") if name.strip()]
    chosen = [device_list.device(name) for name in names]
    model, mapped = load_with_report(path, _conversion(**options))
    mode = PartitioningMode(PARTITIONING.index(partitioning))
    compilation = Compilation.create_for_devices(model, chosen) if no_fallback else Compilation.create(model, chosen, mode)
    compilation.set_preference(PREFERENCES[preference])
    if cache_dir is not None:
        compilation.set_caching(_made(cache_dir), checksum(model))
    if max_partitions is None:
        max_partitions = TFLITE_DEFAULT if options["mapping"] == "delegate" and not no_fallback else 0
    compilation.set_max_partitions(max_partitions)
    compilation.finish()
    return compilation, mapped


def _made(folder: Path) -> Path:
    from nnbridge.errors import InputError, Reason

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(Reason("a folder that can be made", str(error), operand="--cache-dir")) from error
    return folder


def _read_inputs(model: Model, given: Sequence[str], seed: int | None) -> dict[str, Any]:
    import numpy as np

    from nnbridge.compare import seeded_inputs
    from nnbridge.errors import InputError, Reason
    from nnbridge.runtime.arguments import input_name

    names = [input_name(model.main.operands[i], k) for k, i in enumerate(model.own_inputs)]
    values: dict[str, Any] = {} if seed is None else seeded_inputs(model, seed)
    for text in given:
        name, separator, file = text.partition("=")
        if not separator or name not in names:
            raise InputError(Reason(f"NAME=FILE.npy with a name of {', '.join(names)}", text, operand="--input"))
        try:
            values[name] = np.load(file, allow_pickle=False)
        except Exception as error:
            raise InputError(Reason("a .npy file", f"{file}: {error}", operand=f"--input {name}")) from error
        if not isinstance(values[name], np.ndarray):
            raise InputError(Reason("a .npy file with one array", file, operand=f"--input {name}"))
    missing = [name for name in names if name not in values]
    if missing:
        raise InputError(Reason("--input for every input, or --seed", f"none for {', '.join(missing)}"))
    return {name: values[name] for name in names}


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    from nnbridge.errors import InputError, Reason

    name, separator, dims = text.rpartition("=")
    try:
        shape = tuple(int(d) for d in dims.split(","))
    except ValueError:
        shape = ()
    if not separator or not shape or any(d < 1 for d in shape):
        raise InputError(Reason("NAME=1,224,224,3", text, operand="--shape"))
    return name, shape


def _seeds(text: str) -> list[int]:
    from nnbridge.errors import InputError, Reason

    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError:
        seeds = []
    if not seeds or min(seeds) < 0:
        raise InputError(Reason("whole numbers such as 0,1,2", text, operand="--seeds"))
    return seeds


def _range(array: Any) -> dict[str, float]:
    if array.size == 0 or array.dtype.kind not in "fiu":
        return {}
    return {"min": float(array.min()), "max": float(array.max()), "mean": float(array.mean())}


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[Any], Any]]:
    """A spinner that counts samples while they are compared."""
    from rich.progress import Progress, SpinnerColumn, TextColumn

    columns = (SpinnerColumn(), TextColumn("{task.completed} samples compared"))
    with Progress(*columns, console=console(err=True), transient=True, disable=quiet) as progress:
        task = progress.add_task("samples", total=None)

        def advance(samples: Any) -> Iterator[Any]:
            for sample in samples:
                yield sample
                progress.advance(task)

        yield advance
