"""Check what plan --advice advises: every rewritten file is planned anew, and runs beside the original.

python scripts/check_advice.py models
python scripts/check_advice.py models --inputs 1000 --devices arm-nn-21.11 intel-nn-hal-gpu --android 10 13
python scripts/check_advice.py models --every-rewrite --inputs 1000

For each TFLite and ONNX file of a folder, the smallest first, each shipped profile and each Android version. An advice passes if
``nnbridge plan`` of the written file, or under the setting, shows what was predicted. A rewrite must also leave every bit of the
answers, in nnbridge and in LiteRT's plain kernels or ONNX Runtime; edits that change answers need not. Exit status 0 only if all
pass.

With --every-rewrite, an operator alone and what stands in its place run on all inputs, with the file's constants; the whole
file and the rewritten one run on the first.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache, partial
from itertools import product
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from click.testing import CliRunner
from script_support import RUNTIMES, Array, argument_parser, finished, one_line_errors

from nnbridge import Execution, NnbridgeError, load
from nnbridge.advice import Advice, different_outputs
from nnbridge.cli.advising import FileAdvice
from nnbridge.cli.commands import cli
from nnbridge.cli.commands.plan import plan as plan_command
from nnbridge.compare import seeded_inputs
from nnbridge.compare.references import LiteRT, OnnxRuntime
from nnbridge.converters import ConversionOptions
from nnbridge.converters.edits import Answers, Edit
from nnbridge.loading import adjustable, edits

NOT_RUN = "not run by nnbridge or the format's own runtime"


def command(*arguments: str) -> Any:
    """A command's JSON; None if it refuses."""
    result = CliRunner().invoke(cli, [*arguments, "--json"])
    return json.loads(result.stdout) if result.exit_code == 0 else None


def main() -> None:
    """Print each advice that fails, and the counts."""
    parser = argument_parser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--devices", nargs="*", help="default: every shipped profile")
    parser.add_argument("--android", nargs="*", default=["10", "13"])
    parser.add_argument("--inputs", type=int, default=20, help="random inputs for each rewrite; 0: rewrites are planned only")
    parser.add_argument("--every-rewrite", action="store_true", help="prove all exact rewrites of the files, advised or not")
    options = parser.parse_args()
    paths = sorted((p for p in options.folder.rglob("*") if p.suffix in RUNTIMES), key=lambda p: p.stat().st_size)
    if not paths:
        parser.error(f"requires a folder of {' or '.join(RUNTIMES)} files, found {options.folder}")
    if options.every_rewrite:
        prove_all(paths, options.inputs)
    devices = options.devices or [device["name"] for device in command("devices", "--profiles")]
    counts: Counter[str] = Counter()
    for path in paths:
        counts += of_file(path, list(product(devices, options.android)), options.inputs)
        print(f"{path.name}: {total(counts)} in all; {process_time():.0f} s", flush=True)
    sys.exit(1 if counts["failed"] else 0)


def of_file(path: Path, settings: list[tuple[str, str]], inputs: int) -> Counter[str]:
    """Counts of plans and advices on a file, on each device under each Android."""
    counts: Counter[str] = Counter()
    proven: dict[tuple[Path, str], str] = {}
    file = FileAdvice(path)
    for device, android in settings:
        setting = ("--device", device, "--android", android)
        found = advised(file, path, setting)
        counts["planned" if found is not None else "not planned"] += 1
        for advice in found or ():
            wrong = check(path, setting, advice, inputs, proven)
            counts[advice.kind] += 1
            counts["failed" if wrong else "as predicted"] += 1
            if wrong:
                print(f"{path.name} {' '.join(setting)}: {advice.text}: {wrong}", flush=True)
    counts["rewrites run"] = len(proven)
    return counts


def prove_all(paths: Sequence[Path], inputs: int) -> None:
    """Run every exact rewrite of single operators beside the original; exits."""
    counts: Counter[str] = Counter()
    for path in paths:
        try:
            found = [edit for edit in edits(path) if edit.answers is Answers.SAME]
            load(path)
            counts["files"] += bool(found)
        except NnbridgeError:
            continue
        for edit in found:
            wrong = proven(path, edit, inputs)
            outcome = NOT_RUN if wrong == NOT_RUN else "failed" if wrong else "equal"
            counts[outcome] += 1
            counts[f"{edit.operator}: {edit.text}"] += outcome == "equal"
            if outcome == "failed":
                print(f"{path.parent.name}/{path.name}: {edit.index} {edit.operator}: {edit.text}: {wrong}", flush=True)
        if found:
            print(f"{path.name}: {len(found)}; {counts['equal']} equal, {process_time():.0f} s", flush=True)
    print(f"{total(counts)}; {inputs} inputs each")
    sys.exit(1 if counts["failed"] else 0)


def proven(path: Path, edit: Edit, inputs: int) -> str:
    """What is wrong with an exact rewrite: of the operator alone on all inputs, and in the whole file on one.

    On all inputs in the whole file where the operator alone does not run.
    """
    with tempfile.TemporaryDirectory() as scratch:
        files = [Path(scratch) / name / path.name for name in ("whole", "one", "other")]
        for file in files:
            file.parent.mkdir()
        edited, one, other = files
        edited.write_bytes(edit.content())
        operator, wrong = adjustable(path, edit.subgraph, edit.index), NOT_RUN
        if operator is not None and edit.alone is not None:
            one.write_bytes(operator.content({}, True))
            other.write_bytes(edit.alone())
            wrong = different(one, other, inputs)
        return different(path, edited, inputs) if wrong == NOT_RUN else wrong or different(path, edited, 1)


def total(counts: Counter[str]) -> str:
    """All counts in words."""
    return ", ".join(f"{count} {what}" for what, count in counts.items())


_OWN = ("model", "full", "with_cost", "with_advice", "estimate", "optimise", "memory", "cpu", "as_json")
"""What ``plan`` does not pass on to the compilation."""


def advised(file: FileAdvice, path: Path, setting: tuple[str, ...]) -> tuple[Advice, ...] | None:
    """What ``plan --advice`` advises; None where nothing can be planned."""
    context = plan_command.make_context("plan", [str(path), *setting])
    try:
        # What is advised is planned anew below, with all steps prepared.
        return file.on({name: value for name, value in context.params.items() if name not in _OWN}, prepare=False).advice
    except NnbridgeError:
        return None


def check(path: Path, setting: tuple[str, ...], advice: Advice, inputs: int, proven: dict[tuple[Path, str], str]) -> str:
    """What is wrong with an advice; empty if nothing is."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / path.name
        if advice.edit is None:
            changed = {f"--{name.replace('_', '-')}": str(value) for name, value in advice.options.items() if name != "shapes"}
            shapes = [word for shape in advice.options.get("shapes", ()) for word in ("--shape", shape)]
            kept = setting[:2] if "--feature-level" in changed else setting
            planned = command("plan", str(path), *kept, *shapes, *(word for item in changed.items() for word in item))
        else:
            target.write_bytes(advice.edit.content())
            planned = command("plan", str(target), *setting)
            key = (path, advice.text)
            if inputs and advice.kind == "rewrite" and key not in proven:
                proven[key] = different(path, target, inputs)
            if proven.get(key):
                return f"answers: {proven[key]}"
    if planned is None:
        return "cannot be planned"
    found = {"elsewhere": sum(planned["summary"]["elsewhere"].values()), "steps": len(planned["steps"])}
    found["partitions"] = planned["summary"]["partitions"]
    after = advice.after.figures
    return "" if all(after[name] == value for name, value in found.items()) else f"{found}, not {after}"


def different(path: Path, edited: Path, inputs: int) -> str:
    """The first output that differs, in nnbridge or in the format's own runtime; NOT_RUN if the original does not run there."""

    @cache
    def compilation(file: Path) -> Any:
        return finished(load(file, ConversionOptions(mapping="phone")))

    @lru_cache(maxsize=1)
    def drawn(seed: int) -> Mapping[str, Array]:
        return seeded_inputs(compilation(path).model, seed)

    runtime = cache(partial(LiteRT, kernels="optimised") if path.suffix == ".tflite" else OnnxRuntime)

    def answers(file: Path, seed: int) -> Mapping[str, Array]:
        here = Execution(compilation(file)).run(drawn(seed))
        there = runtime(file).run(drawn(seed))
        return {**here, **{f"the runtime's output {k}": np.ascontiguousarray(answer) for k, answer in enumerate(there)}}

    def compared(other: Path) -> str:
        return different_outputs(answers, path, other, range(inputs))

    try:
        return compared(edited)
    except NnbridgeError as error:
        failure = str(error)
    try:
        compared(path)
    except NnbridgeError:
        return NOT_RUN
    return failure


if __name__ == "__main__":
    with one_line_errors():
        main()
