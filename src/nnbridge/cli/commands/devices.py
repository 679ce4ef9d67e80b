"""``nnbridge devices``: what there is, checking profiles, and serving a driver to other processes."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnbridge.cli import completion
from nnbridge.cli.arguments import check_outputs
from nnbridge.cli.options import Written, option
from nnbridge.cli.output import drivers_apart, echo, json_option, print_blocks, print_json, print_json_line
from nnbridge.cli.sections import SectionGroup
from nnbridge.errors import near
from nnbridge.report.terminal import counted
from nnbridge.types import ANDROID_LEVELS, OperationCode

if TYPE_CHECKING:
    from nnbridge.devices.device import Device


_LISTED = (
    "a listed chip, board, phone or vendor (else try the chip's name, which `adb shell getprop ro.soc.model` prints, one of the "
    "families that `nnbridge devices` lists, or `nnbridge devices learn`, which makes a profile of the phone's logs)"
)


class _Families(SectionGroup):
    """The group of commands on devices; a word that is no command is that of a family, which ``family`` opens."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """The command, its name and its arguments."""
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            meant = "" if args[0] in _family_names() else near(args[0], self.commands)
            if meant:
                raise click.UsageError(f"No such command '{args[0]}'.{meant}", ctx)
            args = ["family", *args]
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Families, invoke_without_command=True, short_help="List devices by family, find them by chip or phone, check profiles."
)
@click.option("--all", "every", is_flag=True, help="List every device in a separate row, with its declared performance.")
@click.option("--profiles", is_flag=True, help="List the shipped profiles only, each in a separate row.")
@json_option
@click.pass_context
def devices(context: click.Context, every: bool, profiles: bool, as_json: bool) -> None:
    """List the devices that models can be offered to: shipped profiles by family, sample drivers, installed devices.

    With --json each device is listed, with its family.

    \b
    Examples:
      nnbridge devices
      nnbridge devices arm-nn
      nnbridge devices --all
      nnbridge devices find "i.MX 8M Plus"
      nnbridge devices check my-npu.toml
      nnbridge devices ask arm-nn-21.11 models.jsonl.gz --json
      nnbridge devices explain arm-nn-21.11 CONV_2D
      nnbridge devices learn logcat.txt --models models/ -o my-npu.toml
      nnbridge devices serve my_module:MINE --socket mine.socket
    """
    if context.invoked_subcommand is not None:
        option = next((name for name, on in (("--json", as_json), ("--all", every), ("--profiles", profiles)) if on), "")
        if option:
            raise click.UsageError(f"{option} belongs to the list of devices; {context.invoked_subcommand} has its own options.")
        return
    from nnbridge import devices as device_list
    from nnbridge.report.families import families_tables
    from nnbridge.report.plan import devices_as_dict, devices_table, devices_with_extensions

    shipped = (*device_list.shipped(), *device_list.shipped_at_source())
    with drivers_apart():
        offered = shipped if profiles else (*shipped, *device_list.all_devices())
        listed = devices_with_extensions(offered) if as_json else devices_as_dict(offered)
    if as_json:
        print_json("devices", {"devices": listed})
    else:
        print_blocks([devices_table(listed)] if every or profiles else families_tables(listed))


@devices.command("family", short_help="Compare the releases, sizes or variants of a family.")
@click.argument("name", nargs=-1, required=True, shell_complete=completion.words(lambda: _family_names()))
@json_option
def devices_family(name: tuple[str, ...], as_json: bool) -> None:
    """Compare the releases, sizes or variants of a family: date, level, evidence and changes. The word family may be left out.

    \b
    Example:
      nnbridge devices arm-nn
    """
    from nnbridge.devices.families import family_named, family_of
    from nnbridge.devices.hardware import find
    from nnbridge.errors import InputError, Reason
    from nnbridge.report.families import family_as_dict, family_blocks

    typed = " ".join(name)
    found = family_named(typed) or family_of(typed)
    if found is None:
        meant = find(typed)
        known = (
            f"{meant[0].sentence}; `nnbridge devices find` says more"
            if meant
            else "`nnbridge devices find` knows phones and chips"
        )
        rule = f"a family ({', '.join(_family_names())}) or a command of devices; {known}"
        raise InputError(Reason(rule, typed, operand="NAME"))
    if as_json:
        print_json("devices-family", family_as_dict(found))
    else:
        print_blocks(family_blocks(found))


def _family_names() -> list[str]:
    from nnbridge.devices.families import families

    return [family.name for family in families()]


@devices.command("find", short_help="Find devices by chip, board, phone or vendor.")
@click.argument("name", nargs=-1, required=True)
@option("--android", values=ANDROID_LEVELS, help="List the releases of drivers of this Android version first.")
@json_option
def devices_find(name: tuple[str, ...], android: str | None, as_json: bool) -> None:
    """Find the devices that emulate a chip, board or phone, or what is known about it. Exit status 2 if it is not listed.

    \b
    Examples:
      nnbridge devices find "i.MX 8M Plus"
      nnbridge devices find "i.MX 8M Plus" --android 12
      nnbridge devices find Pixel 8 Pro
      nnbridge devices find qualcomm --json
    """
    from nnbridge.devices.hardware import find
    from nnbridge.errors import InputError, Reason
    from nnbridge.report.hardware import hardware_as_dict, hardware_blocks

    typed = " ".join(name)
    found = find(typed, android or "")
    if not found:
        raise InputError(Reason(_LISTED, typed, operand="NAME", hint="nnbridge devices"))
    if as_json:
        print_json("devices-find", {"hardware": [hardware_as_dict(entry) for entry in found]})
    else:
        print_blocks(hardware_blocks(found))


@devices.command("check")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@json_option
def devices_check(file: Path, as_json: bool) -> None:
    """Check a device profile; its mistakes are reported with their lines.

    \b
    Example:
      nnbridge devices check my-npu.toml
    """
    from nnbridge.devices.profile_levels import load_any
    from nnbridge.devices.profiles import ProfileDevice
    from nnbridge.devices.source_profiles import SourceProfile
    from nnbridge.report.plan import devices_with_extensions

    found = load_any(file)
    listed: list[dict[str, Any]] = []
    texts: list[str] = []
    rules: Sized
    profile: ProfileDevice | SourceProfile
    for profile, described in zip(found, devices_with_extensions(found), strict=True):
        if isinstance(profile, SourceProfile):
            rules, unit, others = profile.rules.operators, f"{profile.format} operator", False
        else:
            rules, unit, others = profile.rules, "operation", bool(profile.others)
        texts.append(counted(len(rules), unit) + (" and for all others" if others else ""))
        del described["family"]  # That of shipped profiles, whatever this one is named.
        listed.append({**described, "operations": len(rules), "others": others, "source": profile.source})
    if as_json:
        print_json("devices-check", {"profiles": listed})
    else:
        for item, text in zip(listed, texts, strict=True):
            echo(f"{item['name']}: feature level {item['feature_level']}, rules for {text}")


@devices.command("ask", short_help="Ask a device which operations of models it supports.")
@click.argument("device", shell_complete=completion.devices)
@click.argument("models", type=click.Path(path_type=Path, dir_okay=False))
@json_option
def devices_ask(device: str, models: Path, as_json: bool) -> None:
    """Ask a device which operations of the models in a file it supports, without running anything.

    MODELS is a .jsonl or .jsonl.gz file: a line for each model, {"model": …}, in the form of the conformance cases; other keys
    are ignored. With --json, a line for each model: {"supported": [true, …], "reasons": [null, …]}, with "uncertain" where a
    profile's source leaves the reply open.

    \b
    Examples:
      nnbridge devices ask vsi-imx-1.3.0 models.jsonl.gz --json
      nnbridge devices ask my_module:MINE models.jsonl
    """
    from nnbridge.conformance.questions import read_questions
    from nnbridge.runtime.placement import answers_of

    asked = _device(device)
    for question in read_questions(models):
        with drivers_apart():
            answers = answers_of(asked, question.model)
        if as_json:
            print_json_line("devices-ask", answers.as_dict())
            continue
        for index, operation in enumerate(question.model.main.operations):
            answer = str(answers.reasons[index] or "supported")
            doubt = f" (uncertain: {answers.uncertain[index]})" if answers.uncertain[index] else ""
            echo(f"line {question.line}, operation {index} {question.model.operation_name(operation)}: {answer}{doubt}")


@devices.command("explain", short_help="Print the rules of a device's profile as sentences.")
@click.argument("name", shell_complete=completion.devices)
@click.argument("operation", required=False, default="", shell_complete=completion.words(lambda: OperationCode.__members__))
@json_option
def devices_explain(name: str, operation: str, as_json: bool) -> None:
    """Print the rules of a device's profile as sentences, of all its operations or of one.

    Each rule has the driver's own message, where it is known, and its place in the source.

    \b
    Examples:
      nnbridge devices explain vsi-imx-1.3.0 CONV_2D
      nnbridge devices explain my-npu.toml --json
    """
    from nnbridge.devices.profiles import ProfileDevice
    from nnbridge.devices.source_profiles import SourceProfile
    from nnbridge.errors import InputError, Reason
    from nnbridge.report.profiles import profile_as_dict, profile_tables, source_profile_as_dict

    profile = _device(name)
    if isinstance(profile, SourceProfile):
        data = source_profile_as_dict(profile, operation)
    elif isinstance(profile, ProfileDevice):
        data = profile_as_dict(profile, operation)
    else:
        raise InputError(Reason("a device that a profile describes; other drivers have no rules to print", name, operand="NAME"))
    if as_json:
        print_json("devices-explain", data)
    else:
        print_blocks(profile_tables(data))


@devices.command("learn", short_help="Make a profile of what logs say of a device.")
@click.argument("logs", nargs=-1, required=True, type=click.Path(path_type=Path, dir_okay=False))
@option("--models", type=click.Path(path_type=Path, file_okay=False, exists=True), metavar="DIR", help="The models that ran.")
@option("-o", "--output", required=True, type=Written(path_type=Path, dir_okay=False), metavar="PROFILE.toml", help="Write it.")
@option("--device", metavar="NAME", help="Only this device of the logs.")
@option(
    "--questions",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Write models to run on the phone: their replies decide what is open.",
)
@json_option
def devices_learn(
    logs: tuple[Path, ...], models: Path | None, output: Path, device: str | None, questions: Path | None, as_json: bool
) -> None:
    """Make the simplest profile that explains the replies in LOGS; what they leave open is marked as uncertain.

    LOGS are logcat's lines of ExecutionPlan (setprop debug.nn.vlog compilation), lines of TFLite's delegates, benchmark_model and
    LiteRT's compilers, `nnbridge plan --json`, NNBRIDGE_TRACE, and .jsonl files of models with answers. A log names types of
    operations; --models has their operands.

    \b
    Examples:
      nnbridge devices learn logcat.txt --models models/ -o my-npu.toml
      nnbridge devices learn plan1.json plan2.json --models models/ -o my-npu.toml --questions next/
    """
    from nnbridge.learning.command import learn_from
    from nnbridge.learning.matching import files_of

    check_outputs({"--output": output}, {"a model": [file.path for file in files_of(models)]})
    found = learn_from(logs, models, output, device or "", questions)
    if as_json:
        print_json("devices-learn", found)
        return
    for item in found["devices"]:
        counts = f"{item['supported']} supported, {item['refused']} refused; {counted(item['rules'], 'rule')}"
        echo(
            f"{item['name']}: {counts} on {counted(item['operations'], item['level'] + ' operation')}, {item['open']} partly open"
        )
    for why in found["without_models"]:
        echo(f"{why}; only their types were used", err=True)
    for path in found["questions"]:
        echo(f"question: {path}")
    if questions is not None and not found["questions"]:
        echo("no questions: nothing that the logs leave open can be asked with other models")


def _device(name: str) -> Device:
    """The device that the argument DEVICE names."""
    from nnbridge import devices as device_list
    from nnbridge.errors import InputError

    try:
        with drivers_apart():
            return device_list.device(name)
    except InputError as error:
        named = "DEVICE" if error.reason.operand == "--device" else error.reason.operand
        raise InputError(replace(error.reason, operand=named)) from error


@devices.command(short_help="Serve a device to other processes, until stopped.")
@click.argument("device", shell_complete=completion.devices)
@option("--socket", "path", required=True, metavar="PATH", help="The socket's file; @NAME for an abstract address without one.")
@json_option
def serve(device: str, path: str, as_json: bool) -> None:
    """Serve a device to other processes, until this one is stopped; a driver that dies is started again.

    Each start is reported on standard error, with --json in one line on standard output. module:NAME imports that module and
    runs its code.

    \b
    Example:
      nnbridge devices serve my_module:MINE --socket mine.socket &
      nnbridge plan model.tflite --device socket:mine.socket
    """
    _device(device)
    from nnbridge.devices.remote.supervisor import supervise

    def started(pid: int) -> None:
        if as_json:
            print_json_line("devices-serve", {"device": device, "socket": path, "pid": pid})
        else:
            echo(f"{device} is served at socket:{path} by process {pid}", err=True)

    supervise(device, path, started)
