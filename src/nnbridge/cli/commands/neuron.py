"""``nnbridge neuron``: LiteRT's route to MediaTek, for emulated devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnbridge.cli.arguments import check_outputs
from nnbridge.cli.options import MODEL, Written, option
from nnbridge.cli.output import build_command, echo, json_option, print_blocks, print_json, working
from nnbridge.report.terminal import Table, counted

if TYPE_CHECKING:
    from nnbridge.neuron.compiling import CompiledFile


@click.group(short_help="LiteRT's MediaTek compiler and runtime on emulated devices.")
def neuron() -> None:
    """LiteRT's MediaTek compiler plug-in compiles for nnbridge's devices, and LiteRT's runtime runs the result on them.

    \b
    Examples:
      nnbridge neuron compile model.tflite --device nnapi-sample_all -o compiled.tflite
      nnbridge run compiled.tflite --device nnapi-sample_all --no-fallback --seed 0
      nnbridge neuron build build/neuron
    """


@build_command(neuron, "Compile libneuron_adapter.so and the dispatch library and put them into a folder.")
def built(folder: str) -> dict[str, object]:
    """Compile libneuron_adapter.so, for LiteRT's compiler, and libLiteRtDispatch_nnbridge.so, for its runtime, into a folder.

    \b
    Example:
      nnbridge neuron build build/neuron
      LD_LIBRARY_PATH=build/neuron NNBRIDGE_DEVICES=nnapi-sample_all python compile_ahead_of_time.py
    """
    from nnbridge import neuron as route

    return dict(zip(("adapter", "dispatch"), route.build(folder), strict=True))


@neuron.command("compile", short_help="Compile a TFLite file by LiteRT's MediaTek compiler for emulated devices.")
@MODEL
@option("--device", "devices", multiple=True, required=True, metavar="NAME[,NAME…]", help="Devices that stand for the NPU.")
@option("-o", "--output", type=Written(path_type=Path, dir_okay=False), required=True, help="The compiled TFLite file.")
@option("--soc", default="mt6989", metavar="mtNNNN", help="MediaTek's chip that the file names; the result is the same for all.")
@option("--flag", "flags", multiple=True, metavar="--NAME=VALUE", help="A flag of LiteRT's apply_plugin_main; repeatable.")
@json_option
def neuron_compile(model: Path, devices: tuple[str, ...], output: Path, soc: str, flags: tuple[str, ...], as_json: bool) -> None:
    """Compile a TFLite file by LiteRT's MediaTek compiler, and show what it says.

    Operators that the compiler does not pass on, or that no device accepts, stay as they are. nnbridge and LiteRT's
    CompiledModel run the file.

    \b
    Examples:
      nnbridge neuron compile model.tflite --device nnapi-sample_all -o compiled.tflite
      nnbridge neuron compile model.tflite --device npu.toml -o compiled.tflite --flag=--partition_strategy=weakly_connected
    """
    from nnbridge.neuron.compiling import compile_file

    check_outputs({"--output": output})
    names = [name.strip() for group in devices for name in group.split(",")]
    with working("Compiling"):
        compiled = compile_file(model, output, names, soc, flags)
    if as_json:
        print_json(_as_dict(compiled))
        return
    for message in compiled.messages:
        echo(message, err=True)
    print_blocks(_tables(compiled))


def _as_dict(compiled: CompiledFile) -> dict[str, Any]:
    subgraphs = [
        {"operators": len(answer.names), "refused": {str(number): str(reason) for number, reason in answer.refused.items()}}
        for answer in compiled.answers
    ]
    return {
        "output": str(compiled.path),
        "subgraphs": subgraphs,
        "partitions": [{"name": p.name, "operators": list(p.operators)} for p in compiled.partitions],
        "messages": list(compiled.messages),
    }


def _tables(compiled: CompiledFile) -> Iterator[Table | str]:
    granted = sum(len(answer.names) - len(answer.refused) for answer in compiled.answers)
    total = sum(len(answer.names) for answer in compiled.answers)
    yield f"{compiled.path}: {granted} of {counted(total, 'operator')} in {counted(len(compiled.partitions), 'partition')}"
    rows = [
        (p.name, ", ".join(f"{name}×{n}" if n > 1 else name for name, n in Counter(p.operators).items()))
        for p in compiled.partitions
    ]
    yield Table("Partitions", ("name", "operators"), rows)
    left = [
        (str(number), names[number], str(reason))
        for answer, names in zip(compiled.answers, compiled.operators, strict=False)
        for number, reason in sorted(answer.refused.items())
    ]
    if left:
        yield Table("Left to LiteRT", ("operator", "name", "why"), left)
