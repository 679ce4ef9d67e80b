"""Random operators and small graphs through every installed engine: differences that no documented rule explains, a page each.

    python scripts/nets/hunt.py --count 2000 --seed 3 --output found
    python scripts/nets/hunt.py --engines litert-gpu-float32,tflm --cold

Each file runs on LiteRT's reference kernels and on the engines; what refuses a file is left out. A difference is more than 0.1 %
of an output's range, or more than one step of integers, or an engine's process that ends. It is explained where the engine's
profile refuses an operator of the file or names a fault (--cold: nothing is). Of a graph the operator that differs alone is
looked for; files of one kind (engine, operator, type, symptom) are one page, of the smallest. Exit status 1 if any is left.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import argument_parser, one_line_errors

with one_line_errors():
    from nnbridge import NnbridgeError, devices
    from nnbridge.compare.references import REFERENCE_RUNTIMES
    from nnbridge.devices.source_profiles import SourceProfile
    from nnbridge.file import ModelFile
    from nnbridge.model import Pool
    from nnbridge.source import SourceGraph
    from nnbridge_tflite.read.reader import read_pool
    from nnbridge_tflite.tables import alone, decoded
    from nnbridge_tflite.write import encode
    from tests.differential import Fork
    from tests.tflite.loading import undamaged

_BASE = "litert-reference"
_ENDED = "the reference ended"
_REAL, _STEPS = 1e-3, 1
_TYPES = {"FLOAT32": "f4", "FLOAT16": "f2", "INT8": "i1", "UINT8": "u1", "INT16": "i2", "INT32": "i4", "INT64": "i8", "BOOL": "?"}


@dataclass(frozen=True)
class Catch:
    """An engine that computes a file otherwise than the reference kernels."""

    engine: str
    operators: tuple[str, ...]
    types: tuple[str, ...]
    symptom: str
    content: bytes
    outcomes: dict[str, str]
    """Every engine's outcome for the file."""
    known: str
    """The documented rule that explains it; empty for none."""

    @property
    def kind(self) -> tuple[Any, ...]:
        """The features that files with the same cause share, as far as can be seen."""
        return self.engine, self.operators, self.types[:1], self.symptom.split(":")[0]


def _run(name: str, content: bytes, feeds: Sequence[Any]) -> list[Any]:
    """In a fork: the outputs of a runtime."""
    runtime = REFERENCE_RUNTIMES[name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.tflite"
        path.write_bytes(content)
        found = resolve_name(runtime.opened)(path, "", False, *runtime.settings).run(dict(enumerate(feeds)))
    return list(found)


def feeds_of(graph: SourceGraph) -> list[Any]:
    """Values for a file's inputs: whole numbers of 32 and 64 bits may be indexes, and are 0 or 1."""
    rng, made = np.random.default_rng(7), []
    kinds = {
        "FLOAT32": "f4",
        "INT8": "i1",
        "UINT8": "u1",
        "INT16": "i2",
        "INT32": "i4",
        "INT64": "i8",
        "BOOL": "?",
        "FLOAT16": "f2",
    }
    for tensor in graph.inputs:
        kind = np.dtype(kinds[tensor.type])
        if kind.kind == "f":
            value = rng.standard_normal(tensor.shape)
        elif kind.kind == "b" or kind.itemsize > 2:
            value = rng.integers(0, 2, tensor.shape)
        else:
            value = rng.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, tensor.shape)
        made.append(np.asarray(value, kind))
    return made


def difference(ours: Sequence[Any], right: Sequence[Any]) -> str:
    """The symptom of outputs beside those that are right; empty where they do not differ."""
    if len(ours) != len(right):
        return f"other outputs: {len(ours)} in place of {len(right)}"
    for number, (one, other) in enumerate(zip(ours, right, strict=True)):
        if one.shape != other.shape:
            return f"other dimensions: {list(one.shape)} in place of {list(other.shape)}"
        if not other.size or other.dtype.kind == "O":
            continue
        a, b = one.astype(np.float64), other.astype(np.float64)
        finite = np.isfinite(a) & np.isfinite(b)
        if ((a != b) & ~finite & ~(np.isnan(a) & np.isnan(b))).any():
            return f"not finite: output {number}"
        apart = float(np.abs(a[finite] - b[finite]).max(initial=0))
        span = float(np.ptp(b[finite])) if finite.any() else 0.0
        if other.dtype.kind in "iub" and apart > (_STEPS if other.dtype.itemsize <= 2 and other.dtype.kind != "b" else 0):
            return f"other integers: output {number} by {apart:g}"
        if other.dtype.kind == "f" and apart > _REAL * (span or float(np.abs(b[finite]).max(initial=0)) or 1):
            return f"other numbers: output {number} by {apart:.3g} of a range of {span:.3g}"
    return ""


class Hunt:
    """Files through engines, each in a fork of its own that one of them may end."""

    def __init__(self, engines: Sequence[str], *, cold: bool) -> None:
        self.engines, self._cold = engines, cold
        self._forks = {name: Fork(_run) for name in (_BASE, *engines)}
        self.counts: Counter[str] = Counter()

    def catches(self, content: bytes) -> Iterator[Catch]:
        """The engines that differ on a file."""
        try:
            graph = _graph(content)
            feeds = feeds_of(graph)
            right = self._forks[_BASE].run(_BASE, content, feeds)
        except (NnbridgeError, RuntimeError, KeyError):
            self.counts["not run by the reference kernels"] += 1
            return
        content = _with_shapes(content, graph, right)
        self.counts["files"] += 1
        outcomes = {name: self._outcome(name, content, feeds, right) for name in self.engines}
        for name, outcome in outcomes.items():
            self.counts[f"{name}: {outcome.split(':')[0]}"] += 1
            if outcome not in ("equal", "refused"):
                names, types = tuple(o.name for o in graph.operators), tuple(t.type for t in graph.inputs)
                known = "" if self._cold else _known(name, graph)
                yield Catch(name, names, types, outcome, content, outcomes, known)

    def _outcome(self, name: str, content: bytes, feeds: Sequence[Any], right: Sequence[Any]) -> str:
        try:
            return difference(self._forks[name].run(name, content, feeds), right) or "equal"
        except RuntimeError as error:
            return f"ends: {error}" if _ENDED in str(error) else "refused"

    def run(self, name: str, content: bytes, feeds: Sequence[Any]) -> list[Any]:
        """An engine's outputs; RuntimeError where it refuses the file or ends."""
        return self._forks[name].run(name, content, feeds)

    def reduced(self, catch: Catch) -> Catch:
        """The operator of a graph that differs by itself, else the graph."""
        if len(catch.operators) == 1:
            return catch
        tables = decoded(read_pool(Path("caught"), Pool.of(memoryview(catch.content))))
        for index in range(len(catch.operators)):
            for one in self.catches(encode(alone(tables, 0, index))):
                if one.engine == catch.engine:
                    return one
        return catch


def _graph(content: bytes) -> SourceGraph:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.tflite"
        path.write_bytes(content)
        return ModelFile(path).source_graph


def _with_shapes(content: bytes, graph: SourceGraph, outputs: Sequence[Any]) -> bytes:
    """The file with the dimensions of its outputs, which engines for small processors read instead of inferring them."""
    tables = decoded(read_pool(Path("drawn"), Pool.of(memoryview(content))))
    tensors = tables["subgraphs"][0]["tensors"]
    for tensor, array in zip(graph.outputs, outputs, strict=False):
        tensors[tensor.index] = {**tensors[tensor.index], "shape": np.asarray(array.shape, "<i4")}
    return encode(tables)


def _known(engine: str, graph: SourceGraph) -> str:
    """The rule of the engine's profile that explains a difference."""
    profile = devices.device(engine) if engine in devices.known_names() else None
    if not isinstance(profile, SourceProfile):
        return ""
    for claim in profile.claims(graph):
        if claim.fault or claim.fatal or not claim.accepted:
            return claim.fault or f"refused: {claim.reason}"
    return ""


def page(catch: Catch, count: int, file: str) -> str:
    """A finding in Markdown."""
    rows = "\n".join(f"| {name} | {outcome} |" for name, outcome in {_BASE: "equal", **catch.outcomes}.items())
    agree = [name for name, outcome in {_BASE: "equal", **catch.outcomes}.items() if outcome == "equal"]
    packages = dict.fromkeys(REFERENCE_RUNTIMES[name].distribution for name in (_BASE, *catch.outcomes))
    versions = ", ".join(f"{package} {version(package)}" for package in packages)
    known = f"Explained by the profile: {catch.known}\n\n" if catch.known else ""
    title = f"# {catch.engine}: {' → '.join(catch.operators)} of {', '.join(catch.types)}"
    command = f"    nnbridge compare {file} --reference {','.join([_BASE, *catch.outcomes])}"
    table = f"| engine | outcome |\n|---|---|\n{rows}\n\n{', '.join(agree)} agree."
    said = f"{catch.symptom} ({count} files of this kind)."
    return f"{title}\n\n{said}\n\n{table}\n\n{known}Versions: {versions}.\n\n{command}\n"


def main() -> int:
    parser = argument_parser()
    parser.add_argument("--count", type=int, default=1000, help="files that are drawn (default: 1000)")
    parser.add_argument("--minutes", type=float, default=60, help="time after which no more files are drawn (default: 60)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engines", help="names of references, with commas (default: those that are installed)")
    parser.add_argument("--cold", action="store_true", help="let no rule explain anything")
    parser.add_argument("--output", type=Path, default=Path("found"), help="folder of the pages (default: found)")
    options = parser.parse_args()
    installed = [n for n, r in REFERENCE_RUNTIMES.items() if r.format == "tflite" and r.absent() is None]
    usual = [name for name in installed if name not in ("litert", _BASE, "litert-gpu")]
    engines = options.engines.split(",") if options.engines else usual
    if missing := [name for name in (_BASE, *engines) if name not in installed]:
        parser.error(f"not installed here: {', '.join(missing)} (nnbridge doctor says what is missing)")
    hunt, kinds = Hunt(engines, cold=options.cold), defaultdict[Any, list[Catch]](list)
    end = time.monotonic() + 60 * options.minutes
    for number in takewhile(lambda _: time.monotonic() < end, range(options.count)):
        content = undamaged(options.seed, number)
        for catch in hunt.catches(content) if content is not None else ():
            kinds[catch.kind].append(catch)
    left = 0
    for number, caught in enumerate(sorted(kinds.values(), key=len, reverse=True)):
        first = min(caught, key=lambda one: (bool(one.known), len(one.operators), len(one.content)))
        found = hunt.reduced(first)
        print(f"{len(caught):5} {found.engine}: {' → '.join(found.operators)} {found.types[:1]}: {found.symptom}"
              + (f" — {found.known}" if found.known else ""))  # fmt: skip
        if found.known:
            continue
        left += 1
        options.output.mkdir(parents=True, exist_ok=True)
        stem = options.output / f"{number:03}-{found.engine}-{found.operators[0]}"
        stem.with_suffix(".tflite").write_bytes(found.content)
        stem.with_suffix(".md").write_text(page(found, len(caught), stem.with_suffix(".tflite").name), encoding="utf-8")
    print(", ".join(f"{count} {what}" for what, count in sorted(hunt.counts.items())))
    print(f"{left} kinds of differences without an explanation" + (f": {options.output}" if left else ""))
    return int(left > 0)


if __name__ == "__main__":
    with one_line_errors():
        sys.exit(main())
