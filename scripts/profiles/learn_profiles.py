"""Hide every shipped driver profile behind its answers, learn it from half of the models, and compare it on the others.

Models are the files of a folder, and with --cases Android's conformance cases, one spec of two; the halves are those of --seed.
Each operation of the other half is right, wrong, or open (the learned profile marks its answer as uncertain).

Examples:
  python scripts/profiles/learn_profiles.py models/
  python scripts/profiles/learn_profiles.py ../shared/models/tflite --cases ../shared/vts --json
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nnbridge import load
from nnbridge.conformance.cases import build, read_cases, spec_files
from nnbridge.devices import shipped
from nnbridge.devices.device import Device
from nnbridge.devices.profile_file import load_profiles
from nnbridge.errors import NnbridgeError
from nnbridge.learning.observations import asked, learned
from nnbridge.learning.writing import profile_text
from nnbridge.model import Model
from nnbridge.runtime.placement import answers_of

_SUFFIXES = (".tflite", ".nnapi", ".onnx")


def halves(groups: Sequence[Any], seed: int) -> tuple[list[Any], list[Any]]:
    """Two halves of a list in random order."""
    order = list(groups)
    random.Random(seed).shuffle(order)
    return order[: (len(order) + 1) // 2], order[(len(order) + 1) // 2 :]


def read_files(paths: Sequence[Path]) -> Iterator[tuple[str, Model]]:
    """The models that load, by name."""
    for path in paths:
        try:
            yield path.name, load(path)
        except NnbridgeError as error:
            print(f"{path.name} is left out: {error}", file=sys.stderr)


def read_specs(paths: Sequence[Path]) -> Iterator[tuple[str, Model]]:
    """The models of conformance cases, by spec and case."""
    for path in paths:
        for case in read_cases(path):
            try:
                yield f"{case.spec}/{case.name}", build(case)
            except NnbridgeError:
                continue


def hidden(
    device: Device, known: Sequence[tuple[str, Model]], others: dict[str, Sequence[tuple[str, Model]]], folder: Path
) -> Any:
    """The answers for other models of a profile that was learned from some: kind of model → counts, and what was wrong."""
    rules = learned(o for name, model in known for o in asked(device, model, name))
    path = folder / "learned.toml"
    path.write_text(profile_text({device.name: rules}, "learned"), encoding="utf-8")
    (profile,) = load_profiles(path)
    found: dict[str, Any] = {"device": device.name, "bytes": path.stat().st_size, "wrong": []}
    for kind, models in others.items():
        counts: Counter[str] = Counter()
        for name, model in models:
            expected, answers = answers_of(device, model), answers_of(profile, model)
            for i, reason in enumerate(expected.reasons):
                right = (reason is None) == (answers.reasons[i] is None)
                outcome = "open" if answers.uncertain[i] else "right" if right else "wrong"
                counts[outcome] += 1
                if outcome == "wrong":
                    operation = model.operation_name(model.main.operations[i])
                    found["wrong"].append(f"{name} {operation}: {reason} | {answers.reasons[i]}")
        found[kind] = dict(counts)
    return found


def share(counts: dict[str, int], *outcomes: str) -> float:
    """The share of outcomes in percent."""
    return 100 * sum(counts.get(outcome, 0) for outcome in outcomes) / max(1, sum(counts.values()))


def main() -> int:
    """Exit status 0 only if at least 99 % of the operations are right or open, for every profile."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cases", type=Path, metavar="FOLDER")
    parser.add_argument("--device", action="append", default=[], metavar="NAME", help="only these profiles")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--part", default="0/1", metavar="I/N", help="only every Nth profile, from the Ith on")
    parser.add_argument("--show", type=int, default=0, metavar="N", help="print N wrong answers of each profile")
    options = parser.parse_args()
    files = halves(sorted(p for p in options.folder.iterdir() if p.suffix in _SUFFIXES), options.seed)
    specs = halves(spec_files(options.cases), options.seed) if options.cases else ([], [])
    known = [*read_files(files[0]), *read_specs(specs[0])]
    others: dict[str, Sequence[tuple[str, Model]]] = {"models": list(read_files(files[1])), "cases": list(read_specs(specs[1]))}
    found = []
    with tempfile.TemporaryDirectory() as folder:
        part, count = map(int, options.part.split("/"))
        for device in shipped()[part::count]:
            if options.device and device.name not in options.device:
                continue
            found.append(hidden(device, known, others, Path(folder)))
            if not options.json:
                shown = [
                    f"{kind} {sum(found[-1][kind].values())}: right {share(found[-1][kind], 'right'):.2f} %, "
                    f"open {share(found[-1][kind], 'open'):.2f} %, wrong {share(found[-1][kind], 'wrong'):.2f} %"
                    for kind in others
                    if found[-1][kind]
                ]
                print(f"{device.name}: {'; '.join(shown)}", *found[-1]["wrong"][: options.show], sep="\n  ", flush=True)
    if options.json:
        print(json.dumps(found, indent=2))
    return 0 if all(share(each[kind], "right", "open") >= 99 for each in found for kind in others if each[kind]) else 1


if __name__ == "__main__":
    sys.exit(main())
