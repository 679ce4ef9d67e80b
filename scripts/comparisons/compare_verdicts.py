"""The verdict on a file with TFLite's delegate, nnbridge's beside that of stock LiteRT with the delegate library.

    python scripts/comparisons/compare_verdicts.py --operators
    python scripts/comparisons/compare_verdicts.py models --devices nnapi-sample_all nnapi-sample_minimal
    python scripts/comparisons/compare_verdicts.py --random 5000 --graphs 1000 --seed 3
    python scripts/comparisons/compare_verdicts.py --loads 3000

A verdict: is the interpreter created, does TFLite refuse the delegate, does the delegate fail; and for each graph of the file,
decompositions among them, its nodes and those of each partition that is handed over. nnbridge's is that of `verdict_of`
(``nnbridge.converters.delegation``), without an interpreter. Folders: every .tflite file, for each device. ``--random``: drawn
single operators whose constants may be computed by the run, or by a kernel that computes them early, or that are the body of a
composite; ``--graphs``: drawn graphs, likewise. ``--keep`` gets the files that differ.

``--operators``: for each operator of tests/tflite/cases.py, every way in which its operands may be known (stored in the file, by
a kernel that computes them when it is prepared, or only by the run): whether LiteRT refuses the delegate for a dynamic tensor,
and whether the kernel computes its output early, beside what the operator's declaration says (``dynamic_unless``,
``known_when_prepared``). ``--loads``: whether TFLite loads a file at all: drawn operators, changed and damaged ones. Exit
status 1 where a verdict differs.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import argument_parser, one_line_errors

with one_line_errors():
    import ai_edge_litert.interpreter  # noqa: F401 - once, before the fork

    from nnbridge import NnbridgeError
    from nnbridge.model import Pool
    from nnbridge_tflite.passes.dynamic import first_dynamic, known_early
    from nnbridge_tflite.read.reader import read_pool
    from tests.differential import Fork
    from tests.tflite.cases import cases
    from tests.tflite.loading import candidate, litert_refusal, loading_outcome, refusal
    from tests.tflite.verdicts import CREATED, REFUSED, UNREADABLE, Verdict, asked, drawn, planned, states, with_states


def operators() -> int:
    """Compare single operators; how many differ."""
    fork, counts, seen = Fork(asked), Counter[str](), set()
    for case in cases():
        for type in case.types:
            for chosen in states(case, type):
                key = (case.operator, len(case.inputs), tuple(sorted(chosen.items())))
                if key in seen:
                    continue
                model = with_states(case, type, chosen)
                try:
                    (theirs,) = fork.run(model)
                except RuntimeError:
                    counts["LiteRT ends the process"] += 1
                    continue
                counts[theirs.outcome] += 1
                if theirs.outcome == UNREADABLE:
                    continue
                seen.add(key)
                graph = read_pool(Path("case.tflite"), Pool.of(memoryview(model))).graph
                ours = REFUSED if first_dynamic(graph) else CREATED
                early = known_early(graph.main)
                same = theirs.outcome == ours and (ours == REFUSED or set(theirs.prepared) == early)
                counts["equal" if same else "differs"] += 1
                if not same:
                    both = f"LiteRT {theirs.outcome} {theirs.prepared}, nnbridge {ours} {sorted(early)}"
                    print(f"{case.operator} {type} {chosen}: {both}")
    fork.close()
    print(f"LiteRT {version('ai-edge-litert')}: {dict(counts)}")
    return counts["differs"]


class Comparison:
    """Verdicts on files, ours beside LiteRT's."""

    def __init__(self, folder: Path, keep: Path | None) -> None:
        self.counts, self.keep, self._fork = Counter[str](), keep, Fork(asked)
        self._file = folder / "file.tflite"

    def compare(self, label: str, model: bytes, device: str, options: dict[str, Any]) -> None:
        """One file on one device."""
        try:
            (theirs,) = self._fork.run(model, device, options)
        except RuntimeError:
            self.counts["LiteRT ends the process"] += 1
            return
        if theirs.outcome == UNREADABLE:
            self.counts[UNREADABLE] += 1
            return
        try:
            self._file.write_bytes(model)
            ours = planned(self._file, device, options)
        except NnbridgeError as error:
            self.counts["nnbridge does not read it"] += 1
            print(f"{label}: not read: {error}"[:200])
            return
        graphs = sum(graph.operators > 0 for graph in theirs.graphs) > 1
        self.counts[f"{theirs.outcome}{', several graphs' if graphs else ''}"] += 1
        same = (theirs.outcome, _facts(theirs)) == (ours.outcome, _facts(ours))
        self.counts["equal" if same else "differs"] += 1
        if not same:
            print(f"{label} {device} {options}:\n  LiteRT {theirs.outcome} {_facts(theirs)} {theirs.text[:160]}")
            print(f"  nnbridge {ours.outcome} {_facts(ours)} {ours.text[:160]}")
            if self.keep is not None:
                self.keep.mkdir(parents=True, exist_ok=True)
                (self.keep / f"{label.split()[0]}.tflite").write_bytes(model)

    def loaded(self, kind: str, seed: int, number: int) -> bytes | None:
        """A drawn file that LiteRT loads, with the shapes that its kernels give; None if it loads none."""
        for tried in (1 + number % 3, 1, 2, 3, 4, 5):
            with suppress(RuntimeError):
                model = drawn(kind, seed, number, tried)
                (found,) = self._fork.run(model) if model is not None else (Verdict(UNREADABLE),)
                if found.outcome != UNREADABLE:
                    return drawn(kind, seed, number, tried, found.shapes)
        self.counts["not drawn"] += 1
        return None

    def close(self) -> int:
        """Print the counts; how many differ."""
        self._fork.close()
        print(f"LiteRT {version('ai-edge-litert')}: {dict(sorted(self.counts.items()))}")
        return self.counts["differs"]


def loads(count: int, seed: int) -> int:
    """Drawn files, some with one thing changed and some that a fuzzer damaged: does TFLite load them?

    How many only one side loads. Files that nnbridge reads or converts never are not compared where LiteRT loads them.
    """
    fork, counts = Fork(litert_refusal), Counter[str]()
    for number in range(count):
        model = candidate(seed, number)
        if model is None:
            counts["not drawn"] += 1
            continue
        try:
            (why,) = fork.run(model)
        except RuntimeError as error:
            why = str(error)
        found, loaded = refusal(model)
        outcome = loading_outcome(why, found, loaded=loaded)
        counts[outcome] += 1
        if outcome.startswith("only"):
            print(f"{number}: LiteRT: {why[-160:] or 'loads'}; nnbridge: {found or 'loads'}")
    fork.close()
    print(dict(sorted(counts.items())))
    return sum(n for outcome, n in counts.items() if outcome.startswith("only"))


def _facts(verdict: Verdict) -> list[tuple[int, int, tuple[tuple[int, ...], ...]]]:
    return [(graph.subgraph, graph.operators, graph.groups) for graph in verdict.graphs if graph.operators]


def main() -> int:
    """Compare; the exit status."""
    parser = argument_parser()
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--operators", action="store_true", help="single operators, their operands known in every way")
    parser.add_argument("--devices", nargs="+", default=["nnapi-sample_all"], metavar="NAME")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="drawn single operators")
    parser.add_argument("--graphs", type=int, default=0, metavar="N", help="drawn graphs")
    parser.add_argument(
        "--loads", type=int, default=0, metavar="N", help="drawn, changed and damaged files: does TFLite load them?"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="files that differ")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    folder = tempfile.TemporaryDirectory()
    comparison = Comparison(Path(folder.name), options.keep)
    for path in sorted(path for folder in options.folders for path in folder.rglob("*.tflite")):
        for device in options.devices:
            for more in ({}, {"allow_dynamic_dimensions": True}, {"max_number_delegated_partitions": 0}):
                comparison.compare(path.name, path.read_bytes(), device, more)
    for kind, count in (("operator", options.random), ("graph", options.graphs)):
        for number in range(count):
            model = comparison.loaded(kind, options.seed, number)
            if model is not None:
                more = {"allow_dynamic_dimensions": True} if number % 5 == 0 else {}
                comparison.compare(f"{kind}{number}", model, options.devices[number % len(options.devices)], more)
    differ = comparison.close()
    folder.cleanup()
    differ += loads(options.loads, options.seed) if options.loads else 0
    return int(bool(differ or (options.operators and operators())))


if __name__ == "__main__":
    sys.exit(main())
