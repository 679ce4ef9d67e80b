"""``nnbridge build neuron-file``: a TFLite file, compiled by LiteRT's MediaTek compiler for emulated devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnbridge.cli.arguments import check_outputs
from nnbridge.cli.options import MODEL, Written, option
from nnbridge.cli.output import echo, json_option, print_blocks, print_json, working
from nnbridge.cli.sections import command
from nnbridge.report.terminal import Table, counted

if TYPE_CHECKING:
    from nnbridge.neuron.compiling import CompiledFile


@command(name="neuron-file", short_help="A TFLite file, compiled by LiteRT's MediaTek compiler.")
@MODEL
@option("--device", "devices", multiple=True, required=True, metavar="NAME[,NAME…]", help="Devices that represent the NPU.")
@option("-o", "--output", type=Written(path_type=Path, dir_okay=False), required=True, help="The compiled TFLite file.")
@option("--soc", default="mt6989", metavar="mtNNNN", help="The MediaTek chip named in the file; it changes nothing else.")
@option("--flag", "flags", multiple=True, metavar="--NAME=VALUE", help="A flag of LiteRT's apply_plugin_main; repeatable.")
@json_option
def neuron_file(model: Path, devices: tuple[str, ...], output: Path, soc: str, flags: tuple[str, ...], as_json: bool) -> None:
    """Compile a TFLite file with LiteRT's MediaTek compiler, and show its messages.

    Operators that the compiler does not pass on, or that no device accepts, stay as they are. nnbridge and LiteRT's
    CompiledModel run the file: nnbridge run compiled.tflite --device nnapi-sample_all --fallback none.

    \b
    Examples:
      nnbridge build neuron-file model.tflite --device nnapi-sample_all -o compiled.tflite
      nnbridge build neuron-file model.tflite --device npu.toml -o compiled.tflite --flag=--partition_strategy=weakly_connected
    """
    from nnbridge.neuron.compiling import compile_file

    check_outputs({"--output": output})
    names = [name.strip() for group in devices for name in group.split(",")]
    with working("Compiling"):
        compiled = compile_file(model, output, names, soc, flags)
    if as_json:
        print_json("build-neuron-file", _as_dict(compiled))
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
