"""Ask for the plan of each file on each device and version of Android at every door, and count where the results differ.

    python scripts/comparisons/compare_doors.py models ../shared/models
    python scripts/comparisons/compare_doors.py models --devices arm-nn-21.11 --androids 12 --doors python delegate

``nnbridge plan --json`` in the command line is compared with:

- ``python``: ``nnbridge.plan(…).to_dict()``, which is equal to it, or fails with the same sentence
- ``matrix``: the cell of ``nnbridge matrix``: operations, those on the device, NNAPI's CPU and the host, and partitions
- ``report``: the data of the page of ``nnbridge report``: the summary's sentence, and the device of each operation
- ``delegate``: the delegate library in stock LiteRT, the judge for TFLite files: whether LiteRT refuses the delegate, the nodes
  that its log says were replaced, and the partitions that its interpreter then has. The library emulates no version of Android
  and is compared with ``plan --fallback app`` of the newest. Devices that look at TFLite's operators are no NNAPI devices
- ``provider``: the provider in stock ONNX Runtime: the nodes that it claims and their partitions, beside those of the plan of the
  file as ONNX Runtime optimises it (compare_provider.py has how); again of the newest version

A line for each difference, with all versions of Android that have it, then a table of comparisons and differences. Exit status 0
only without differences.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import RUNTIMES, argument_parser, one_line_errors

DEVICES = ("nnapi-sample_float_fast", "nnapi-sample_quant", "arm-nn-18.05", "arm-nn-21.11", "vsi-imx-1.3.0", "ethos-u55-128")
ANDROIDS = ("8.1", "10", "12", "13")
Facts = dict[str, Any]
"""What a door says, by name; what two doors both say must be equal."""


@dataclass(frozen=True)
class Asked:
    """One question: the plan of a file on a phone."""

    path: Path
    device: str
    android: str


def said(arguments: Sequence[str]) -> tuple[int, Any, str]:
    """A command's exit status, its JSON, None without, and the error that it ends with."""
    from click.testing import CliRunner

    from nnbridge.cli.commands import cli

    done = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    errors = [line for line in done.stderr.splitlines() if line.startswith("nnbridge: ")]
    return done.exit_code, json.loads(done.stdout) if done.stdout.startswith(("{", "[")) else None, "\n".join(errors)


def of_device(device: str, name: str = "--device") -> list[str]:
    return [name, device] if device else []


@cache
def planned(asked: Asked, *options: str) -> tuple[int, Any, str]:
    """``nnbridge plan --json``."""
    return said(["plan", str(asked.path), "--json", *of_device(asked.device), "--android", asked.android, *options])


def plan_facts(asked: Asked, *options: str) -> Facts:
    """The facts of a plan that the other doors state, too."""
    status, found, error = planned(asked, *options)
    if status or found is None:
        return {"refused": True, "error": error.removeprefix("nnbridge: ")}
    places = Counter(operation["place"] for operation in found["operations"])
    summary = found["summary"]
    return {
        "refused": False,
        "plan": found,
        "operations": len(found["operations"]),
        "on device": places["device"],
        "on NNAPI's CPU": sum(count for place, count in places.items() if place not in ("device", "host")),
        "on host": places["host"],
        "steps on devices": sum(step["place"] == "device" for step in found["steps"]),
        "sentence": summary["sentence"],
        "devices of operations": [operation["device"] for operation in found["operations"]],
        "LiteRT refuses": bool(summary["refusal"]),
        "nodes": summary["on_device"],
        "partitions": summary["partitions"],
    }


# -- the other doors -----------------------------------------------------------------------------------------------------


def python_facts(asked: Asked) -> Facts:
    """``nnbridge.plan``."""
    import nnbridge

    try:
        found = nnbridge.plan(asked.path, device=asked.device or (), android=asked.android)
    except nnbridge.NnbridgeError as error:
        return {"refused": True, "error": str(error)}
    return {"refused": False, "plan": json.loads(json.dumps(found.to_dict()))}


def matrix_facts(asked: Asked) -> Facts:
    """A cell of ``nnbridge matrix``, computed here."""
    from nnbridge.matrix.cells import MatrixSettings, compute_all, tasks
    from nnbridge.types import ANDROID_LEVELS

    ((group),) = tasks({asked.path.name: asked.path}, [asked.device], [ANDROID_LEVELS[asked.android]], MatrixSettings())
    (cell,) = compute_all(group)
    if cell.error:
        return {"refused": True}
    return {
        "refused": False,
        "operations": cell.operations,
        "on device": cell.on_device,
        "on NNAPI's CPU": cell.on_cpu,
        "on host": cell.on_host,
        "steps on devices": cell.partitions,
    }


def report_facts(asked: Asked) -> Facts:
    """The data of a page of ``nnbridge report``, and what the command prints."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "page.html")
        command = ["report", str(asked.path), "-o", str(page), "--json", *of_device(asked.device), "--android", asked.android]
        status, found, error = said(command)
        if status or found is None:
            return {"refused": True, "error": error.removeprefix("nnbridge: ")}
        text = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL)
    assert text is not None
    data = json.loads(text.group(1))["plan"]
    names = [runner["name"] for runner in data["runners"]]
    return {
        "refused": False,
        "sentence": found["summary"]["sentence"] if found["summary"]["sentence"] == data["sentence"] else "two sentences",
        "operations": len(data["r"]),
        "devices of operations": [names[k] if k >= 0 else "NNAPI runtime" for k in data["r"]],
        "steps on devices": sum(data["runners"][step["r"]]["place"] == "device" for step in data["steps"] if step["r"] >= 0),
    }


@contextmanager
def logged() -> Iterator[list[str]]:
    """Lines that libraries write to standard error from now on."""
    lines: list[str] = []
    with tempfile.TemporaryFile() as file:
        before = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield lines
        finally:
            os.dup2(before, 2)
            os.close(before)
            file.seek(0)
            lines += file.read().decode(errors="replace").splitlines()


def delegate_facts(asked: Asked) -> Facts | None:
    """The delegate in stock LiteRT; None for files that LiteRT does not open without it."""
    from ai_edge_litert import interpreter as runtime

    from nnbridge import delegate

    plain = {"experimental_op_resolver_type": runtime.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES}
    try:
        runtime.Interpreter(str(asked.path), **plain).allocate_tensors()
    except (RuntimeError, ValueError):
        return None
    with logged() as lines:
        loaded = delegate.load(asked.device, runtime=runtime)
        try:
            interpreter = runtime.Interpreter(str(asked.path), experimental_delegates=[loaded], **plain)
            interpreter.allocate_tensors()
        except (RuntimeError, ValueError) as error:
            if str(error):
                return {"refused": True, "error": str(error)}
            return {"refused": False, "LiteRT refuses": True}
    replaced = [re.search(r"Replacing (\d+) out of \d+ node\(s\) with delegate .* for subgraph (\d+)", line) for line in lines]
    nodes = {int(found[2]): int(found[1]) for found in replaced if found}
    partitions = sum(operator["op_name"] == "DELEGATE" for operator in interpreter._get_ops_details())
    return {"refused": False, "LiteRT refuses": False, "nodes": nodes.get(0, 0), "partitions": partitions}


def provider_difference(asked: Asked) -> list[str] | None:
    """The difference between the provider's claims in stock ONNX Runtime and the plan's; None for files that it does not run."""
    import compare_provider

    from nnbridge import provider

    with tempfile.TemporaryDirectory() as folder:
        file = compare_provider.opened(asked.path, Path(folder), {})
        if isinstance(file, str):
            return None
        session = file.session(provider.session_options(asked.device))
        groups = [g for g in session.get_provider_graph_assignment_info() if g.ep_name == compare_provider.NAMES[0]]
        claimed = {node.name for group in groups for node in group.get_nodes()}
        seen = plan_facts(Asked(file.seen, asked.device, asked.android))
        ours = file.planned
    found = [
        f"{what} {len(names)}: {', '.join(sorted(names)[:3])}"
        for what, names in (("claims not", ours - claimed), ("claims more", claimed - ours - file.computed))
        if names
    ]
    if not seen["refused"] and seen["partitions"] != len(groups):
        found.append(f"partitions: plan {seen['partitions']}, provider {len(groups)}")
    return found


# -- comparing -----------------------------------------------------------------------------------------------------------


def shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 160 else f"{text[:157]}..."


def first_difference(ours: Any, theirs: Any, where: str = "") -> str:
    """The first place of two values that differs."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in [*ours, *(k for k in theirs if k not in ours)]:
            if key not in ours or key not in theirs:
                return f"{where}.{key} only {'here' if key in ours else 'there'}"
            if ours[key] != theirs[key]:
                return first_difference(ours[key], theirs[key], f"{where}.{key}")
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        index = next(i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b)
        return first_difference(ours[index], theirs[index], f"{where}[{index}]")
    return f"{where} {shown(ours)}, there {shown(theirs)}".strip()


def differences(ours: Facts, theirs: Facts) -> list[str]:
    """A line for each fact that both state, and differently."""
    if ours["refused"] != theirs["refused"]:
        return [
            f"refused: plan {ours['refused']}, there {theirs['refused']}: {shown(ours.get('error') or theirs.get('error', ''))}"
        ]
    lines = []
    for name in ours.keys() & theirs.keys():
        if ours[name] != theirs[name]:
            lines.append(f"{name}: plan {first_difference(ours[name], theirs[name])}")
    return sorted(lines)


def doors_of(asked: Asked, newest: str, before_nnapi: Callable[[str], bool]) -> Iterator[str]:
    """The doors that can be asked this."""
    yield "python"
    yield "report"
    if asked.device:
        yield "matrix"
    if asked.device and asked.android == newest and not before_nnapi(asked.device):
        yield from {".tflite": ("delegate",), ".onnx": ("provider",)}.get(asked.path.suffix, ())


def compared(door: str, asked: Asked) -> list[str] | None:
    """The differences of a door from plan, None where there is nothing to compare."""
    if door == "provider":
        return provider_difference(asked)
    if door == "delegate":
        theirs = delegate_facts(asked)
        return None if theirs is None else differences(plan_facts(asked, "--fallback", "app"), theirs)
    facts = {"python": python_facts, "matrix": matrix_facts, "report": report_facts}[door]
    return differences(plan_facts(asked), facts(asked))


def is_before_nnapi(name: str) -> bool:
    """True for a device that looks at a file's operators."""
    from nnbridge.devices import device
    from nnbridge.devices.source_profiles import SourceProfile

    return isinstance(device(name), SourceProfile)


def files_in(folders: Iterable[Path]) -> list[Path]:
    return [
        p for folder in folders for p in ([folder] if folder.is_file() else sorted(folder.rglob("*"))) if p.suffix in RUNTIMES
    ]


def main() -> int:
    parser = argument_parser()
    parser.add_argument("folders", nargs="+", type=Path, help="model files, or folders of them")
    parser.add_argument("--devices", nargs="+", default=["", *DEVICES], metavar="NAME")
    parser.add_argument("--androids", nargs="+", default=list(ANDROIDS), metavar="VERSION")
    parser.add_argument("--doors", nargs="+", default=["python", "report", "matrix", "delegate", "provider"])
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    newest = max(options.androids, key=float)
    for path in files_in(options.folders):
        lines: dict[tuple[str, str, str], list[str]] = defaultdict(list)
        for device in options.devices:
            for android in options.androids:
                asked = Asked(path, device, android)
                for door in doors_of(asked, newest, is_before_nnapi):
                    found = compared(door, asked) if door in options.doors else None
                    if found is None:
                        continue
                    counts[door] += 1
                    faults[door] += bool(found)
                    for line in found:
                        lines[door, device or "no device", line].append(android)
        planned.cache_clear()
        for (door, device, line), androids in lines.items():
            print(f"{path.name} {device} {'/'.join(androids)} {door}: {line}", flush=True)
    for door, count in counts.items():
        print(f"{door:<10} {count:>6} compared, {faults[door]} different")
    return 1 if sum(faults.values()) else 0


if __name__ == "__main__":
    with one_line_errors("'.[dev]'"):
        sys.exit(main())
