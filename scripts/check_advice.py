"""Check what plan --advice advises: every rewritten file is planned anew, and runs beside the original.

python scripts/check_advice.py models
python scripts/check_advice.py models --inputs 1000 --devices arm-nn-21.11 intel-nn-hal-gpu --android 10 13

For each TFLite and ONNX file of a folder, each shipped profile and each Android version. A rewrite passes if ``nnbridge plan`` of
the written file shows what was predicted, and if nnbridge and LiteRT answer bit for bit as they do for the original. Exit
status 0 only if all pass.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner
from script_support import RUNTIMES, Array, argument_parser, finished, one_line_errors

from nnbridge import Execution, NnbridgeError, load
from nnbridge.advice import different_outputs
from nnbridge.cli.commands import cli
from nnbridge.compare import seeded_inputs
from nnbridge.compare.references import reference
from nnbridge.converters import ConversionOptions
from nnbridge.loading import edits


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
    parser.add_argument("--inputs", type=int, default=20, help="random inputs for each rewrite")
    options = parser.parse_args()
    devices = options.devices or [device["name"] for device in command("devices", "--profiles")]
    counts: dict[str, int] = {"plans": 0, "settings": 0, "rewrites": 0, "failed": 0, "files": 0}
    proven: dict[tuple[Path, int, int, str], str] = {}
    for path in sorted(p for p in options.folder.rglob("*") if p.suffix in RUNTIMES):
        counts["files"] += 1
        print(f"{path.name}: {counts}", flush=True)
        for device in devices:
            for android in options.android:
                setting = ("--device", device, "--android", android)
                plan = command("plan", str(path), *setting, "--advice")
                counts["plans"] += plan is not None
                for advice in plan["advice"] if plan else ():
                    counts["rewrites" if advice["rewrite"] else "settings"] += 1
                    wrong = check(path, setting, advice, options.inputs, proven)
                    counts["failed"] += bool(wrong)
                    if wrong:
                        print(f"{path.name} {' '.join(setting)}: {advice['text']}: {wrong}", flush=True)
    total = ", ".join(f"{count} {what}" for what, count in counts.items())
    print(f"{total}; {len(proven)} different rewrites, each run on {options.inputs} inputs")
    sys.exit(1 if counts["failed"] else 0)


def check(path: Path, setting: tuple[str, ...], advice: Any, inputs: int, proven: dict[tuple[Path, int, int, str], str]) -> str:
    """What is wrong with an advice; empty if nothing is."""
    at = advice["operator"]
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / path.name
        if at is None:
            changed = {f"--{name.replace('_', '-')}": str(value) for name, value in advice["options"].items() if name != "shapes"}
            shapes = [word for shape in advice["options"].get("shapes", ()) for word in ("--shape", shape)]
            kept = setting[:2] if "--feature-level" in changed else setting
            planned = command("plan", str(path), *kept, *shapes, *(word for item in changed.items() for word in item))
        else:
            place = at["subgraph"], at["index"]
            edit = next(e for e in edits(path) if (e.subgraph, e.index) == place and e.text in advice["text"])
            target.write_bytes(edit.content())
            planned = command("plan", str(target), *setting)
            key = (path, edit.subgraph, edit.index, edit.text)
            if key not in proven:
                proven[key] = different(path, target, inputs)
            if proven[key]:
                return f"answers differ: {proven[key]}"
    if planned is None:
        return "cannot be planned"
    found = {"elsewhere": sum(planned["summary"]["elsewhere"].values()), "steps": len(planned["steps"])}
    found["partitions"] = planned["summary"]["partitions"]
    return "" if all(advice["after"][name] == value for name, value in found.items()) else f"{found}, not {advice['after']}"


def different(path: Path, edited: Path, inputs: int) -> str:
    """The first output that differs, in nnbridge or in LiteRT."""

    @cache
    def compilation(file: Path) -> Any:
        return finished(load(file, ConversionOptions(mapping="phone")))

    def here(file: Path, seed: int) -> Mapping[str, Array]:
        return Execution(compilation(file)).run(seeded_inputs(compilation(file).model, seed))

    litert = cache(lambda file: reference("litert", file))

    def there(file: Path, seed: int) -> Mapping[str, Array]:
        answers = litert(file).run(seeded_inputs(compilation(path).model, seed))
        return {str(k): np.ascontiguousarray(answer) for k, answer in enumerate(answers)}

    try:
        return different_outputs(here, path, edited, range(inputs)) or different_outputs(there, path, edited, range(inputs))
    except NnbridgeError as error:
        return str(error)


if __name__ == "__main__":
    with one_line_errors():
        main()
