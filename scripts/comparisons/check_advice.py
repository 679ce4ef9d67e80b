"""Check what plan --advice advises: every rewritten file is planned anew, and runs beside the original.

python scripts/comparisons/check_advice.py models
python scripts/comparisons/check_advice.py models --inputs 1000 --devices arm-nn-21.11 intel-nn-hal-gpu --android 10 13
python scripts/comparisons/check_advice.py models --every-rewrite --inputs 1000

For each TFLite and ONNX file of the folders, the smallest first, each shipped profile and each Android version. An advice
passes if ``nnbridge plan`` of the written file, or under the setting, shows what was predicted. A rewrite must also leave every
bit of the answers, in nnbridge and in LiteRT's plain kernels or ONNX Runtime; edits that change answers need not. Each
combination and each advice is counted in one class. Exit status 1 if any is in a class that is a failure.

With --every-rewrite, an operator alone and what stands in its place run on all inputs, with the file's constants; the whole
file and the rewritten one run on the first. The sum says which engines judged; a rewrite that none of them runs is a failure.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from time import process_time
from typing import Any

from click.testing import CliRunner

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import RUNTIMES, argument_parser, one_line_errors

with one_line_errors():
    from advice.equality import Judgement, judge, prove
    from advice.tally import ADVISED, DIFFERS, FAILURES, LOST, NOT_PLANNED, PREDICTED, REFUSED, UNADVISED, UNEQUAL, Tally

    from nnbridge import NnbridgeError, load
    from nnbridge.advice import Advice, FileAdvice
    from nnbridge.cli.commands import cli
    from nnbridge.converters.edits import Answers, Edit
    from nnbridge.errors import Reason
    from nnbridge.file import ModelFile
    from nnbridge.target import Target


def command(*arguments: str) -> Any:
    """A command's JSON; None if it refuses."""
    result = CliRunner().invoke(cli, [*arguments, "--json"])
    return json.loads(result.stdout) if result.exit_code == 0 else None


def main() -> None:
    """Print each advice that fails, and the sums."""
    parser = argument_parser()
    parser.add_argument("folders", type=Path, nargs="+", metavar="folder")
    parser.add_argument("--devices", nargs="*", help="default: every shipped profile")
    parser.add_argument("--android", nargs="*", default=["10", "13"])
    parser.add_argument("--inputs", type=int, default=20, help="random inputs for each rewrite; 0: rewrites are planned only")
    parser.add_argument("--every-rewrite", action="store_true", help="prove all exact rewrites of the files, advised or not")
    options = parser.parse_args()
    found = {p for folder in options.folders for p in folder.rglob("*") if p.suffix in RUNTIMES}
    paths = sorted(found, key=lambda p: (p.stat().st_size, p))
    if not paths:
        parser.error(f"requires folders of {' or '.join(RUNTIMES)} files, found {', '.join(map(str, options.folders))}")
    if options.every_rewrite:
        sys.exit(prove_all(paths, options.inputs))
    devices = options.devices or [device["name"] for device in command("devices", "--profiles")["devices"]]
    sys.exit(advise_all(paths, list(product(devices, options.android)), options.inputs))


# -- advices -------------------------------------------------------------------------------------------------------------------


def advise_all(paths: Sequence[Path], settings: Sequence[tuple[str, str]], inputs: int) -> int:
    """Check the advice on each file on each device under each Android; the exit status."""
    total = Tally()
    for path in paths:
        tally = of_file(path, settings, inputs)
        total += tally
        print(f"{path.name}: {tally.short}; {process_time():.0f} s", flush=True)
    print(f"\nIn all {len(paths)} files, {len(settings)} pairs of device and Android version, {inputs} inputs for each rewrite:")
    print("\n".join(total.lines()))
    return 1 if total.failed else 0


def of_file(path: Path, settings: Sequence[tuple[str, str]], inputs: int) -> Tally:
    """Plans and advices on a file."""
    tally = Tally()
    proven: dict[tuple[int, int, str], Judgement] = {}
    file = FileAdvice(ModelFile(path))
    for device, android in settings:
        setting = ("--device", device, "--android", android)
        found = advised(file, device, android)
        if isinstance(found, Reason):
            tally.plans[refused_plan(path, setting, found)] += 1
            continue
        tally.plans[ADVISED if found else UNADVISED, ""] += 1
        for advice in found:
            outcome, detail = check(path, setting, advice, inputs, proven)
            tally.advices[outcome, detail] += 1
            if outcome in FAILURES:
                print(f"{path.name} {' '.join(setting)}: {advice.text}: {outcome}: {detail}", flush=True)
    tally.rewrites.update(f"{judgement.outcome} by {judgement}" for judgement in proven.values())
    return tally


def advised(file: FileAdvice, device: str, android: str) -> tuple[Advice, ...] | Reason:
    """The advice of ``plan --advice``, or the reason for its refusal."""
    try:
        # What is advised is planned again below, with all steps prepared.
        return file.on(Target.of(device, android=android), prepare=False).advice
    except NnbridgeError as error:
        return error.reason


def refused_plan(path: Path, setting: tuple[str, ...], reason: Reason) -> tuple[str, str]:
    """The class of a plan that nothing is advised on: a failure if ``plan`` has steps for it."""
    planned = command("plan", str(path), *setting)
    outcome = LOST if planned is not None and "summary" in planned else NOT_PLANNED
    if outcome in FAILURES:
        print(f"{path.name} {' '.join(setting)}: {outcome}: {reason}", flush=True)
    return outcome, f"expected {reason.rule}, found {reason.found}"


def check(
    path: Path, setting: tuple[str, ...], advice: Advice, inputs: int, proven: dict[tuple[int, int, str], Judgement]
) -> tuple[str, str]:
    """An advice's class, with its kind where it is as predicted, or else what is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        if advice.edit is None:
            planned = command("plan", str(path), *changed_setting(setting, advice))
        else:
            target = Path(folder) / path.name
            advice.edit.content().write(target)
            planned = command("plan", str(target), *setting)
            if inputs and advice.kind == "rewrite":
                key = advice.edit.subgraph, advice.edit.index, advice.text
                if key not in proven:
                    proven[key] = judge(path, target, inputs, wide=not advice.edit.keys)
                if proven[key].outcome != "equal":
                    return UNEQUAL, proven[key].wrong or f"not run: {dict(proven[key].refused)}"
    if planned is None or "summary" not in planned:
        return REFUSED, advice.kind
    found, after = figures(planned), advice.after.figures
    return (PREDICTED, advice.kind) if found == after else (DIFFERS, f"{found}, not {after}")


def changed_setting(setting: tuple[str, ...], advice: Advice) -> list[str]:
    """The command's options with those that are advised."""
    flags = [f"--{name.replace('_', '-')}" for name, value in advice.options.items() if value is True]
    changed = {f"--{name.replace('_', '-')}": str(v) for name, v in advice.options.items() if name != "shapes" and v is not True}
    shapes = [word for shape in advice.as_dict()["options"].get("shapes", ()) for word in ("--shape", shape)]
    kept = setting[:2] if "--feature-level" in changed else setting
    return [*kept, *flags, *shapes, *(word for item in changed.items() for word in item)]


def figures(planned: Any) -> dict[str, int]:
    """The figures of a plan's JSON, as :attr:`nnbridge.advice.Outcome.figures` has them."""
    steps = zip(planned["steps"], planned["cost"]["steps"], strict=True)
    return {
        "elsewhere": sum(planned["summary"]["elsewhere_places"].values()) + planned["summary"]["foreign"],
        "partitions": planned["summary"]["partitions"],
        "steps": len(planned["steps"]),
        "multiply_adds": sum(cost["multiply_adds"] or 0 for step, cost in steps if step["place"] == "device"),
        "faulty": sum(bool(one.get("faults")) for one in planned.get("operators", ())),
    }


# -- exact rewrites ------------------------------------------------------------------------------------------------------------


def prove_all(paths: Sequence[Path], inputs: int) -> int:
    """Run every exact rewrite of single operators beside the original; the exit status."""
    outcomes: Counter[str] = Counter()
    judges: Counter[str] = Counter()
    texts: Counter[str] = Counter()
    refused: dict[str, str] = {}
    for path in paths:
        found = exact_edits(path)
        if isinstance(found, NnbridgeError):
            refused[path.name] = str(found.reason)
            continue
        here: Counter[str] = Counter()
        for edit in found:
            proof = prove(path, edit, inputs)
            here[proof.outcome] += 1
            judges[f"{proof.outcome}: {proof.judges}"] += 1
            texts[f"{proof.outcome}: {edit.operator}: {edit.text}"] += 1
            if proof.wrong or proof.refused:
                print(f"{path.name}: {edit.index} {edit.operator}: {edit.text}: {proof.wrong} {proof.refused}", flush=True)
        outcomes += here
        print(f"{path.name}: {in_words(here) or 'no exact rewrite'}; {process_time():.0f} s", flush=True)
    print(f"\n{outcomes.total()} exact rewrites in {len(paths)} files, {inputs} inputs each: {in_words(outcomes)}")
    for counts in (judges, texts):
        print("\n".join(f"  {count} {what}" for what, count in counts.most_common()))
    for name, why in refused.items():
        print(f"  nnbridge refuses {name}, so that it is not rewritten: {why}")
    return 0 if outcomes.keys() <= {"equal"} else 1


def exact_edits(path: Path) -> list[Edit] | NnbridgeError:
    """The exact rewrites of a file, or why it is refused."""
    try:
        load(path)
        return [edit for edit in ModelFile(path).edits if edit.answers is Answers.SAME]
    except NnbridgeError as error:
        return error


def in_words(counts: Counter[str]) -> str:
    """All counts, which add up."""
    return " + ".join(f"{count} {what}" for what, count in sorted(counts.items()))


if __name__ == "__main__":
    with one_line_errors():
        main()
