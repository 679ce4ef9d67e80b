"""The options of commands that read a model file, and what follows from them: a conversion, a model, a compilation."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnbridge.cli.arguments import environment, parse_shapes
from nnbridge.cli.completion import by_metavar
from nnbridge.cli.output import Command, drivers_apart, echo, verbose, working
from nnbridge.cli.sections import COMPARISON, CONVERSION, DEVICES, INPUTS, OUTPUT, SectionOption
from nnbridge.engines import AUTO, HOSTS, OLD_HOSTS, OWN, REFERENCES
from nnbridge.errors import ConversionError, InputError, Reason
from nnbridge.releases import NEWEST, ORT, RUNTIMES, TFLITE
from nnbridge.target import PARTITIONING, PREFERENCES, Target
from nnbridge.types import ANDROID_LEVELS

if TYPE_CHECKING:
    from nnbridge.compare.references import ApartReference
    from nnbridge.converters import ConversionOptions
    from nnbridge.converters.inspection import SignatureInfo
    from nnbridge.devices.device import Device
    from nnbridge.file import ModelFile
    from nnbridge.model import Model
    from nnbridge.plan import Planned
    from nnbridge.runtime.compilation import Compilation


class Written(click.Path):
    """A file that a command writes: a path that ends as folders do is none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and value.endswith(("/", os.sep)):
            raise InputError(Reason("a file's name", f"the folder {value!r}", operand=param.opts[-1] if param else ""))
        return super().convert(value, param, ctx)


class _HostName(click.Choice):  # type: ignore[type-arg]
    """A host; names of earlier releases are in no help."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value in OLD_HOSTS else super().convert(value, param, ctx)


WRITTEN = Written(path_type=Path)
"""The type of options that name a file to write."""
_CONVERSION = ("signature", "layout", "float64", "mapping", "allow_dynamic_dimensions", *RUNTIMES)
PREPARATION = ("--resize", "--mean", "--std", "--scale", "--image-layout", "--rate")
"""Options that mean something to inputs from files only."""
MODEL = click.argument("model", type=click.Path(path_type=Path))


def option(name: str, *names: str, section: str = "", **settings: Any) -> Callable[[Command], Command]:
    """An option whose default, if it has one, is shown in the help; ``values`` are the words to choose from.

    ``section`` is where ``--help`` lists it; the most used options of a command have none and come first.
    """
    if "values" in settings:
        settings["type"] = click.Choice(list(settings.pop("values")))
    if "type" not in settings and "metavar" in settings:
        settings.setdefault("shell_complete", by_metavar(settings["metavar"]))
    shown = "default" in settings and settings["default"] not in (None, "")
    return click.option(name, *names, cls=SectionOption, section=section, show_default=shown, **settings)


def in_section(section: str) -> Callable[..., Callable[[Command], Command]]:
    """:func:`option` for a section."""
    return partial(option, section=section)


of_devices, of_conversion, of_inputs = in_section(DEVICES), in_section(CONVERSION), in_section(INPUTS)
of_comparison, of_output = in_section(COMPARISON), in_section(OUTPUT)
seeds_option = of_comparison(
    "--seeds",
    default="0,1,2",
    metavar="N[,N-N…]",
    help="Without --input, inputs are drawn at random: a sample for each seed; 0-99 is a hundred.",
)
of_reference = partial(
    option, "--reference", metavar="NAME|FILE.npz", shell_complete=by_metavar("|".join((*REFERENCES, "FILE.npz")))
)
KNOWN_REFERENCES = f"{', '.join(REFERENCES)}, or stored outputs"
ACCEPTANCE = ("--accept-iou", "--accept-score", "--score-threshold", "--accept-top1")


def with_options(command: Command, *options: Callable[[Command], Command]) -> Command:
    """``--help`` lists them in this order."""
    for add in reversed(options):
        command = add(command)
    return command


def conversion_options(command: Command) -> Command:
    """Options of every command that reads a model file."""
    level = "Highest NNAPI feature level that the model may need. Default: 8."
    android = "The phone's Android version, which sets the feature level: 8.1 is level 1, 12 level 5, 13 to 16 level 8."
    layout = "Order of images' axes for ONNX files: nhwc moves channels last, nchw sets NNAPI's flag; auto is nhwc."
    doubles = "float64 values of ONNX files are computed by the host, narrowed to float32, or the file is refused."
    return with_options(
        command,
        of_conversion("--shape", "shapes", multiple=True, metavar="NAME=1,224,224,3", help="Dimensions of an input; repeatable."),
        of_conversion("--signature", default="", metavar="KEY", help="The signature to run, for files with several."),
        of_conversion("--feature-level", type=click.IntRange(1, 8), metavar="1-8", help=level),
        option("--android", values=ANDROID_LEVELS, help=android),
        of_conversion("--layout", values=("auto", "nhwc", "nchw"), default="auto", help=layout),
        of_conversion("--float64", values=("host", "narrow", "refuse"), default="host", help=doubles),
    )


def release_options(command: Command) -> Command:
    """The releases of the runtimes that hand operators over."""
    tflite = f"""The release of the app's TFLite, such as 2.8 ({TFLITE.names[0]} to {TFLITE.names[-2]}): what its delegate maps,
        requires and sets by default (docs/releases.md)."""
    ort = f"""The same for ONNX files: the release of the app's ONNX Runtime ({ORT.names[0]} to {ORT.names[-2]})."""
    return with_options(
        command,
        of_conversion("--tflite", metavar="RELEASE", default=NEWEST, help=tflite),
        of_conversion("--ort", metavar="RELEASE", default=NEWEST, help=ort),
    )


def model_options(command: Command) -> Command:
    """Options of every command that converts a model file."""
    mapping = """What is handed to NNAPI. phone: what a phone does, which is delegate (Android's TFLite delegate) for TFLite files
        and provider (ONNX Runtime's) for ONNX files; wide: everything that NNAPI can express."""
    dynamic = """Hand over graphs with tensors of computed shape, too, as TFLite's delegate does with this option."""
    return with_options(
        release_options(conversion_options(command)),
        of_conversion("--mapping", values=("phone", "wide", "delegate", "provider"), default="phone", help=mapping),
        of_conversion("--allow-dynamic-dimensions", is_flag=True, help=dynamic),
    )


def device_options(command: Command, host: str = OWN) -> Command:
    """Options of every command that compiles; ``host`` computes operators that no device gets, by default."""
    devices = """Drivers to offer the model to, in order, before NNAPI's CPU; repeatable. Default: CPU only. module:NAME
        imports that module, also from the current folder, and runs its code."""
    fallback = """What runs operations that the devices refuse. app: the app's own runtime, TFLite's default from Android 10 on;
        cpu: NNAPI's CPU; none: the plan fails (createForDevices). Default: as on the phone."""
    preference = "What decides between devices: relative execution time, or power use for low-power."
    partitioning = """As Android's property debug.nn.partition: no offers nothing to drivers; without-fallback makes failures
        final. With --fallback none or app failures are final anyway."""
    partitions = """Groups of operations that may go to drivers, as in TFLite's NNAPI delegate: the N with the most operators go
        there, the others to the CPU. 0: no limit. Default: 3 under the delegate mapping, as in TFLite; else 0."""
    hosts = """What computes operators that stay with TFLite or ONNX Runtime. nnbridge: its own kernels, like TFLite's reference
        kernels; xnnpack (LiteRT's default, as on a phone), litert-plain, litert-reference, onnxruntime: that runtime; auto:
        xnnpack or onnxruntime, by the mapping, and nnbridge for what they do not run."""
    cache = "Folder for compiled models (for devices that cache, such as caching:NAME)."
    folder = click.Path(path_type=Path, file_okay=False)
    return with_options(
        command,
        option("--device", "devices", multiple=True, metavar="NAME[,NAME…]", help=devices),
        of_devices("--fallback", values=("app", "cpu", "none"), help=fallback),
        of_devices("--no-fallback", is_flag=True, hidden=True, help="--fallback none."),
        of_devices("--disallow-nnapi-cpu", is_flag=True, hidden=True, help="--fallback app."),
        of_devices("--preference", values=PREFERENCES, default="fast", help=preference),
        of_devices("--partitioning", values=PARTITIONING, default="with-fallback", help=partitioning),
        of_devices("--max-partitions", type=click.IntRange(min=0), metavar="N", help=partitions),
        of_devices("--host", type=_HostName(HOSTS), default=host, help=hosts),
        of_devices("--cache-dir", type=folder, metavar="DIR", help=cache),
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
    kernels = """Kernels of the CPU and of devices that compute on it: auto: compiled kernels where available. Default:
        NNBRIDGE_KERNELS, else auto."""
    settings: dict[str, Any] = {"expose_value": False, "callback": _set_kernels, "help": kernels}
    return of_devices("--kernels", values=("auto", "reference", "compiled"), **settings)(command)


def compute_options(command: Command) -> Command:
    """Options of every command that computes: kernels and threads."""
    threads = """Threads of each run on the CPU and on devices that compute on it. Default: 1; NumPy's BLAS uses its own number
        of threads unless one is stated."""
    return kernel_option(of_devices("--threads", type=click.IntRange(1, 256), metavar="N", help=threads)(command))


def input_options(command: Command) -> Command:
    """Options of every command that reads inputs from files and names classes."""
    labels = of_inputs("--labels", type=click.Path(path_type=Path), metavar="FILE", help="Names of classes, one per line.")
    return file_options(labels(command))


def file_options(command: Command) -> Command:
    """Options of every command that reads inputs from files."""
    file = """A file for the input NAME, or for the first input; repeatable. Arrays (.npy; .npz by the inputs' names),
        images, sound (.wav), raw elements (.bin), numbers such as tokens (.txt, .csv). A folder is a data set: its files by name,
        sub-folders are labels."""
    resize = "How images are resized to the input: stretched, fitted with black borders, or cropped around the centre."
    mean = "Images: real = (pixel * scale - mean) / std; one number or one per channel. Default: the model's metadata."
    layout = "Order of an image's axes in the input; auto: from its dimensions."
    return with_options(
        command,
        option("--input", "inputs", multiple=True, metavar="[NAME=]FILE", help=file),
        of_inputs("--resize", values=("stretch", "fit", "crop"), default="stretch", help=resize),
        of_inputs("--mean", default="", metavar="X[,X…]", help=mean),
        of_inputs("--std", default="", metavar="X[,X…]", help="See --mean."),
        of_inputs("--scale", default="", metavar="X", help="See --mean; may be a fraction such as 1/255."),
        of_inputs("--image-layout", values=("auto", "nhwc", "nchw"), default="auto", help=layout),
        of_inputs("--rate", type=click.IntRange(1, 10_000_000), metavar="HZ", help="Resample sound to this rate."),
    )


def acceptance_options(command: Command) -> Command:
    """Options of commands that compare outputs of known forms by what they show (:mod:`nnbridge.compare.acceptance`)."""
    iou = """Detections pass if each box has a counterpart on the other side, at any position: of its class, with an
        intersection over union of X or more."""
    return with_options(
        command,
        of_comparison("--accept-iou", type=float, metavar="X", help=iou),
        of_comparison("--accept-score", type=float, metavar="X", help="With --accept-iou: largest difference of their scores."),
        of_comparison("--score-threshold", type=float, metavar="X", help="With --accept-iou: ignore boxes of lower scores."),
        of_comparison(
            "--accept-top1", type=float, metavar="X", help="Classes pass if the first is the same for this share of samples."
        ),
    )


def conversion_of(options: Mapping[str, Any]) -> ConversionOptions:
    """The conversion options among all options of a command."""
    from nnbridge.converters import ConversionOptions

    known = {name: options[name] for name in _CONVERSION if name in options}
    return ConversionOptions(_level(options), **known, shapes=parse_shapes(options["shapes"]))


def _level(options: Mapping[str, Any]) -> int:
    """The feature level of ``--android`` or ``--feature-level``."""
    return Target(android=options["android"] or "", feature_level=options["feature_level"] or 0).level


def file_of(path: Path, options: Mapping[str, Any]) -> ModelFile:
    """The model file under the conversion options among all of a command."""
    from nnbridge.file import ModelFile

    return ModelFile(path, conversion_of(options))


def read_model(file: ModelFile) -> Model:
    """The file's model; a spinner shows that it is read."""
    with working(f"Reading {file.path.name}"):
        return file.model


def target_of(options: Mapping[str, Any]) -> Target:
    """The phone of a command's options; devices are opened, since names may import modules of the current folder."""
    aliases = {"none": options.get("no_fallback"), "app": options.get("disallow_nnapi_cpu")}
    asked = [word for word in (options.get("fallback"), *(word for word, typed in aliases.items() if typed)) if word]
    if len(set(asked)) > 1:
        raise click.UsageError(f"One --fallback is possible, found {' and '.join(dict.fromkeys(asked))}.")
    same = ("preference", "partitioning", "max_partitions", "host", "kernels", "threads", "cache_dir")
    known = {name: options[name] for name in same if name in options}
    level = {"android": options.get("android") or "", "feature_level": options.get("feature_level") or 0}
    return Target.of(named_devices(options.get("devices", ())), asked[0] if asked else None, **level, **known)


def begin_runtime(model: Path, reference: str | None = None) -> None:
    """Let the process of a reference, or of LiteRT for a file of its own, start before what else a command needs is imported."""
    asked = model.suffix.lower() == ".tflite" and find_spec("ai_edge_litert") is not None
    if asked or (reference is not None and not reference.endswith(".npz")):
        from nnbridge.apart import prepare

        prepare()


def planned(path: Path, options: Mapping[str, Any], begun: ApartReference | None = None) -> Planned:
    """The plan of a file under a command's options, ready to run; ``begun``: a reference that reads the same file."""
    return finished(file_of(path, options), target_of(options), begun)


def finished(file: ModelFile, target: Target, begun: ApartReference | None = None) -> Planned:
    """The plan of a file for a phone, ready to run; decisions and notes are printed on standard error.

    LiteRT or ONNX Runtime, if installed, is asked in parallel whether it loads the file; a line says so if it differs.
    """
    from nnbridge.plan import draft

    with working(f"Reading {file.path.name}"):
        found = draft(file, target, asks=True, begun=begun)
    try:
        with working("Compiling"):
            found.finish()
    finally:
        if verbose():
            from nnbridge.phone_log.printing import phone_lines

            for line in phone_lines(found):
                echo(str(line), err=True)
    for note in found.notes:
        echo(note, err=True)
    return found


def interface_of(file: ModelFile) -> SignatureInfo:
    """The description of inputs and outputs that the file states. Metadata that is damaged is reported, and the model runs
    without it."""
    from nnbridge.converters.inspection import SignatureInfo

    try:
        return file.interface
    except ConversionError as error:
        echo(f"metadata is not used: {error}", err=True)
        return SignatureInfo("", (), ())


def tell_host(compilation: Compilation, host: str) -> None:
    """Say on standard error who computed what no device got, where ``--host auto`` left that open."""
    from nnbridge.report.outputs import host_as_dict, host_lines

    for line in host_lines(host_as_dict(compilation)) if host == AUTO and compilation.is_ready else ():
        echo(line, err=True)


def named_devices(names: Sequence[str]) -> list[Device]:
    """The devices of ``--device``."""
    from nnbridge import devices as device_list

    with drivers_apart():
        return [device_list.device(name.strip()) for group in names for name in group.split(",")]
