"""Record what the commands print for many files, devices and settings, and compare two recordings of different versions.

Before a change that should leave the results as they are:

    python scripts/comparisons/record_doors.py --python before/.venv/bin/python before.jsonl

and after it, the same runs by the other version, then both compared:

    python scripts/comparisons/record_doors.py --python .venv/bin/python --again before.jsonl after.jsonl
    python scripts/comparisons/record_doors.py --compare before.jsonl after.jsonl --expected expected.txt

A run is a command, a model, a device, a version of Android and a setting, such as ``--mapping wide``. The runs are a sample:
every two values of different dimensions that can go together occur together in one of them, and the same files always yield the
same sample. A row has standard output, standard error, the files that were written and the exit status; times and temporary paths
are masked. Models whose ``run`` takes longer than ``--slowest`` seconds are left out. One worker process imports nnbridge once
and forks for each run, so this needs an operating system that forks.

``--compare`` groups rows by what is different and ends with exit status 1 if a difference is not in ``--expected``: a file of
lines ``PATTERN => explanation``. The pattern is a regular expression, searched in a line such as
``plan models/digits_int8.tflite arm-nn-21.11 12 default | out operations[].place: 'NNAPI CPU' => 'TFLite'``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from itertools import combinations, product
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
MODELS = ("models/*.tflite", "models/*.onnx", "../shared/models/*/*.tflite", "../shared/models/*/*.onnx")
"""Patterns of model files below the repository."""
DEVICES = (
    *("", "nnapi-sample_float_fast", "nnapi-sample_quant", "arm-nn-18.05", "arm-nn-21.11", "vsi-imx-1.3.0", "ethos-u55-128"),
    *("tflite-gpu-delegate", "process:nnapi-sample_all"),
)
"""Values of ``--device``; an empty one is no device."""
ANDROIDS = ("8.1", "10", "12", "13")
SETTINGS: Mapping[str, tuple[str, ...]] = {
    "default": (),
    "wide": ("--mapping", "wide"),
    "none": ("--no-fallback",),
    "app": ("--disallow-nnapi-cpu",),
    "unlimited": ("--max-partitions", "0"),
}
OUTPUT = "<output>"
"""Stands in a command's arguments for the file to write; its suffix follows."""
TIME_LIMIT = 120.0
"""Seconds for a run."""


@dataclass(frozen=True)
class Door:
    """A command: its arguments beside model and device, and the settings that it has options for."""

    arguments: tuple[str, ...]
    settings: tuple[str, ...] = tuple(SETTINGS)
    device: str = "--device"
    needs_device: bool = False


DOORS: Mapping[str, Door] = {
    "plan": Door(("plan", "--json")),
    "plan-advice": Door(("plan", "--json", "--advice")),
    "plan-cost": Door(("plan", "--json", "--cost")),
    "run": Door(("run", "--json", "--seed", "0")),
    "report": Door(("report", "--json", "-o", f"{OUTPUT}.html")),
    "matrix": Door(("matrix", "--json", "--jobs", "1", "--store", f"{OUTPUT}.db"), ("default", "wide"), "--devices", True),
    "bisect": Door(("bisect", "--json"), ("default", "wide", "unlimited"), needs_device=True),
    "overlay": Door(("report", "--json", "-o", f"{OUTPUT}.json")),
}


@dataclass(frozen=True, order=True)
class Run:
    """One call of the command line."""

    door: str
    model: str
    device: str
    android: str
    setting: str

    def arguments(self) -> list[str]:
        door = DOORS[self.door]
        device = [door.device, self.device] if self.device else []
        return [*door.arguments, self.model, *device, "--android", self.android, *SETTINGS[self.setting]]

    def __str__(self) -> str:
        return " ".join((self.door, self.model, self.device or "-", self.android, self.setting))


# -- the sample ----------------------------------------------------------------------------------------------------------


def groups_of(run: Run, size: int) -> set[tuple[tuple[int, str], ...]]:
    """Every ``size`` values of different dimensions that occur together in a run."""
    return set(combinations(enumerate(astuple(run)), size))


def possible_runs(models: Sequence[str]) -> list[Run]:
    """Every run that the commands have options for."""
    runs = (Run(*values) for values in product(DOORS, models, DEVICES, ANDROIDS, SETTINGS))
    return [r for r in runs if r.setting in DOORS[r.door].settings and (r.device or not DOORS[r.door].needs_device)]


def sample(models: Sequence[str], count: int) -> list[Run]:
    """At least ``count`` runs, if there are so many, in which all pairs of values occur that can; those with new pairs first.

    Each pass goes over all models and devices, as these have the most pairs, and chooses commands, versions and settings whose
    pairs, then triples, are new.
    """
    left: dict[tuple[str, str], list[Run]] = defaultdict(list)
    pairs: set[Any] = set()
    for run in possible_runs(models):
        left[run.model, run.device].append(run)
        pairs |= groups_of(run, 2)
    draw = random.Random(0)
    for runs in left.values():
        draw.shuffle(runs)
    triples: set[Any] = set()
    chosen: list[Run] = []
    while any(left.values()) and (pairs or len(chosen) < count):
        for runs in left.values():
            if not runs or (not pairs and len(chosen) >= count):
                continue
            best = max(runs, key=lambda r: (len(groups_of(r, 2) & pairs), len(groups_of(r, 3) - triples)))
            runs.remove(best)
            pairs -= groups_of(best, 2)
            triples |= groups_of(best, 3)
            chosen.append(best)
    return chosen


# -- masking -------------------------------------------------------------------------------------------------------------

_TIMES = re.compile(r"(milliseconds|microseconds|seconds|_ms|_us)$")
_ESTIMATES = re.compile(r"estimate")
"""What a cost model computes is the same each time."""
_TEXTS = (
    (re.compile(r"\b\d[\d,]*(\.\d+)? ?(ms|us|µs|s)\b"), "<time>"),
    (re.compile(r"\b20\d\d-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?)?"), "<date>"),
    (re.compile(r"\b(pid|process) \d+\b"), r"\1 <pid>"),
    (re.compile(r"\.sock(et)?-?\w*"), ".socket"),
)


def masked(value: Any, key: str = "") -> Any:
    """The value without what differs from run to run: measured times, dates, process numbers."""
    if isinstance(value, dict):
        return {k: masked(v, k if not _TIMES.search(key) else key) for k, v in value.items()}
    if isinstance(value, list):
        return [masked(v, key) for v in value]
    if isinstance(value, (int, float)) and not isinstance(value, bool) and _TIMES.search(key) and not _ESTIMATES.search(key):
        return "<time>"
    if isinstance(value, str):
        for pattern, instead in _TEXTS:
            value = pattern.sub(instead, value)
    return value


def masked_text(text: str, paths: Mapping[str, str]) -> Any:
    """A text without ``paths``, which become the names they have there; JSON is read."""
    for path, name in paths.items():
        text = text.replace(path, name)
    try:
        return masked(json.loads(text))
    except ValueError:
        return masked(text)


def page_data(html: str) -> str:
    """The data of a page of ``nnbridge report``, without its styles and scripts."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    return found.group(1) if found else html


# -- recording -----------------------------------------------------------------------------------------------------------


@dataclass
class Worker:
    """A process of another interpreter that forks for each run of the command line."""

    python: str
    process: subprocess.Popen[str] = field(init=False)

    def __post_init__(self) -> None:
        self.process = subprocess.Popen(
            [self.python, __file__, "--worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONUTF8": "1", "NO_COLOR": "1", "COLUMNS": "120"},
            text=True,
            encoding="utf-8",
        )

    def run(self, arguments: Sequence[str], folder: str) -> dict[str, Any]:
        """Exit status, ``time limit`` for instance, and seconds; ``out`` and ``err`` are files of the folder."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"arguments": arguments, "folder": folder}) + "\n")
        self.process.stdin.flush()
        return dict(json.loads(self.process.stdout.readline()))

    def close(self) -> None:
        self.process.communicate()


def work() -> None:
    """The worker's side: one line of JSON for each run, in and out."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    imported = False
    for line in sys.stdin:
        job = json.loads(line)
        start = time.monotonic()
        status = _forked(job["arguments"], Path(job["folder"]))
        if not imported:
            _import_what_a_run_imports(Path(job["folder"]))
            imported = True
        channel.write(json.dumps({"status": status, "seconds": round(time.monotonic() - start, 3)}) + "\n")
        channel.flush()


def _forked(arguments: list[str], folder: Path) -> int | str:
    child = os.fork()
    if not child:
        os.setsid()
        for descriptor, name in ((0, os.devnull), (1, str(folder / "out")), (2, str(folder / "err"))):
            opened = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(opened, descriptor)
        os._exit(_call(arguments, folder))
    end = time.monotonic() + TIME_LIMIT
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "time limit"


def _call(arguments: list[str], folder: Path) -> int:
    import io
    import multiprocessing

    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = io.TextIOWrapper(os.fdopen(descriptor, "wb", closefd=False), encoding="utf-8", line_buffering=name == "stderr")
        setattr(sys, name, stream)
    sys.argv = ["nnbridge", *arguments]
    # Processes that would import everything once more are forked, too; what they compute is the same.
    get_context = multiprocessing.get_context
    multiprocessing.get_context = lambda method=None: get_context("fork")  # type: ignore[assignment]
    code: object = 0
    try:
        from nnbridge.cli import main

        main()
    except SystemExit as end:
        code = end.code
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    (folder / "modules").write_text("\n".join(list(sys.modules)))
    sys.stdout.flush()
    sys.stderr.flush()
    if isinstance(code, str):
        print(code, file=sys.stderr, flush=True)
    return code if isinstance(code, int) else int(code is not None)


def _import_what_a_run_imports(folder: Path) -> None:
    import importlib
    from contextlib import suppress

    for name in (folder / "modules").read_text().splitlines():
        with suppress(Exception):
            if not name.startswith("__"):
                importlib.import_module(name)


def outcome(worker: Worker, run: Run) -> dict[str, Any]:
    """The row of a run."""
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder, "written")
        written.mkdir()
        done = worker.run([a.replace(OUTPUT, str(written / "output")) for a in run.arguments()], folder)
        paths = {str(written): "<temporary>", folder: "<temporary>", str(REPOSITORY): "<repository>"}
        files = {}
        for path in sorted(written.iterdir()):
            if path.suffix in {".html", ".json"}:
                text = path.read_text(encoding="utf-8", errors="replace")
                files[path.name] = masked_text(page_data(text) if path.suffix == ".html" else text, paths)
        out, err = (
            masked_text(Path(folder, name).read_text(encoding="utf-8", errors="replace"), paths) for name in ("out", "err")
        )
    if run.door == "report" and isinstance(out, dict):
        out["bytes"] = "<size>"
    return {**vars(run), "status": done["status"], "out": out, "err": err, "files": files, "seconds": done["seconds"]}


def found_models(patterns: Iterable[str]) -> list[str]:
    """Model files by pattern, named from the repository."""
    files = [Path(os.path.relpath(p, REPOSITORY)) for pattern in patterns for p in sorted(_matching(pattern))]
    return [str(file) for file in dict.fromkeys(files)]


def _matching(pattern: str) -> Iterator[Path]:
    if Path(pattern).is_absolute():
        yield Path(pattern)
        return
    up = len([part for part in Path(pattern).parts if part == ".."])
    yield from (REPOSITORY.parents[up - 1] if up else REPOSITORY).glob("/".join(Path(pattern).parts[up:]))


def quick_models(worker: Worker, models: Sequence[str], slowest: float) -> list[str]:
    """The models one of whose first two runs is quick enough; the very first may compile kernels."""
    quick = []
    for model in models:
        run = Run("run", model, "", ANDROIDS[-1], "default")
        if any(outcome(worker, run)["seconds"] <= slowest for _ in range(2)):
            quick.append(model)
        else:
            print(f"{model}: a run takes longer than {slowest:g} s, left out", file=sys.stderr)
    return quick


def record(target: Path, worker: Worker, runs: Sequence[Run]) -> None:
    """A row for each run, written as it is done; those that the recording has stay."""
    start = time.monotonic()
    done = read_rows(target) if target.exists() else {}
    runs = [run for run in runs if run not in done]
    with target.open("a", encoding="utf-8") as file:
        for index, run in enumerate(runs):
            file.write(json.dumps(outcome(worker, run), ensure_ascii=False) + "\n")
            file.flush()
            if index % 100 == 99:
                print(f"{index + 1} of {len(runs)} in {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)


# -- comparing -----------------------------------------------------------------------------------------------------------


def read_rows(path: Path) -> dict[Run, dict[str, Any]]:
    """Rows by run."""
    rows = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return {Run(*(row[name] for name in Run.__dataclass_fields__)): row for row in rows}


def differences(old: Any, new: Any, where: str = "") -> Iterator[str]:
    """A line for each place that differs; indexes and numbers are left out, so that equal changes have equal lines."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(k for k in new if k not in old)]:
            here = f"{where}.{key}" if where else str(key)
            if key not in old or key not in new:
                yield f"{here}: {'gone' if key in old else 'new'}"
            else:
                yield from differences(old[key], new[key], here)
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield f"{where}[]: {'fewer' if len(new) < len(old) else 'more'}"
        else:
            for a, b in zip(old, new, strict=True):
                yield from differences(a, b, f"{where}[]")
    elif old != new or type(old) is not type(new):
        yield f"{where}: {' => '.join(_short(old, new))}"


_SHOWN, _BEFORE = 90, 12
"""Characters of a value that are shown, and how many before the first that differs."""


def _short(old: Any, new: Any) -> Iterator[str]:
    """Two values in short, numbers left out: texts from where they differ on."""
    texts = [type(v).__name__ if isinstance(v, (dict, list)) else re.sub(r"\d+", "N", repr(v)) for v in (old, new)]
    differs = next((i for i, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), min(map(len, texts)))
    start = max(differs - _BEFORE, 0) if max(map(len, texts)) > _SHOWN else 0
    for text in texts:
        shown = text[start : start + _SHOWN]
        yield f"{'...' * (start > 0)}{shown}{'...' * (start + _SHOWN < len(text))}"


def row_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The different places of two rows, each once."""
    parts = ("status", "out", "err", "files")
    return sorted({line for part in parts for line in differences(old[part], new[part], part)})


@dataclass(frozen=True)
class Expected:
    """A difference that a change is meant to have."""

    pattern: re.Pattern[str]
    explanation: str


def read_expected(path: Path | None) -> list[Expected]:
    """The lines ``PATTERN => explanation`` of a file; # begins a comment."""
    lines = path.read_text(encoding="utf-8").splitlines() if path else []
    pairs = [line.rpartition(" => ") for line in lines if line.strip() and not line.startswith("#")]
    return [Expected(re.compile(pattern), explanation.strip()) for pattern, _, explanation in pairs]


def compare(
    old: Mapping[Run, Any], new: Mapping[Run, Any], expected: Sequence[Expected], examples: int
) -> tuple[list[str], bool]:
    """The lines to print, and whether nothing is absent and all differences are expected ones."""
    equal, absent = 0, [run for run in old if run not in new]
    explained: Counter[str] = Counter()
    groups: dict[tuple[str, ...], list[Run]] = defaultdict(list)
    for run in old.keys() & new.keys():
        lines = row_differences(old[run], new[run])
        found = {line: next((e for e in expected if e.pattern.search(f"{run} | {line}")), None) for line in lines}
        unexplained = tuple(line for line, e in found.items() if e is None)
        if not lines:
            equal += 1
        elif unexplained:
            groups[unexplained].append(run)
        else:
            explained.update({e.explanation for e in found.values() if e})
    text = [f"{len(old)} and {len(new)} runs: {equal} equal, {len(absent)} absent from the second"]
    text += [f"{count:5} expected: {explanation}" for explanation, count in explained.most_common()]
    for signature, runs in sorted(groups.items(), key=lambda item: -len(item[1])):
        text += [f"{len(runs):5} different:", *(f"          {line}" for line in signature[:12])]
        text += [f"          and {len(signature) - 12} more"] * (len(signature) > 12)
        text += [f"       in {run}" for run in sorted(runs)[:examples]]
    return text, not groups and not absent


# -- the command line ----------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", nargs="?", type=Path, help="the recording to write, or to continue (.jsonl)")
    parser.add_argument("--python", default=sys.executable, help="interpreter whose nnbridge is recorded")
    parser.add_argument("--models", nargs="+", default=MODELS, metavar="PATTERN", help="model files below the repository")
    parser.add_argument("--also", nargs="+", default=(), metavar="PATTERN", help="more model files")
    parser.add_argument("--count", type=int, default=1600, help="runs at least (default: %(default)s)")
    parser.add_argument("--slowest", type=float, default=5.0, metavar="S", help="longest run of a model (default: %(default)s)")
    parser.add_argument("--again", type=Path, metavar="OLD", help="the runs of this recording instead of a sample")
    parser.add_argument("--first", type=int, metavar="N", help="the first N runs only")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("OLD", "NEW"), help="compare two recordings")
    parser.add_argument("--expected", type=Path, metavar="FILE", help="differences that are meant")
    parser.add_argument("--examples", type=int, default=2, metavar="N", help="runs to name of each group (default: %(default)s)")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work()
        return 0
    if options.compare:
        old, new = map(read_rows, options.compare)
        lines, expected = compare(old, new, read_expected(options.expected), options.examples)
        print("\n".join(lines))
        return 0 if expected else 1
    if options.target is None:
        parser.error("expected the recording to write, or --compare")
    worker = Worker(options.python)
    if options.again:
        runs = list(read_rows(options.again))
    else:
        runs = sample(quick_models(worker, found_models([*options.models, *options.also]), options.slowest), options.count)
    record(options.target, worker, runs[: options.first])
    worker.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
