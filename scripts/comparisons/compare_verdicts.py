"""The verdict on a file with TFLite's delegate, nnbridge's beside that of stock LiteRT with the delegate library.

    python scripts/comparisons/compare_verdicts.py --operators

``--operators``: for each operator of tests/tflite/cases.py, every way in which its operands may be known (stored in the file, by
a kernel that computes them when it is prepared, or only by the run): whether LiteRT refuses the delegate for a dynamic tensor,
and whether the kernel computes its output early, beside what the operator's declaration says (``dynamic_unless``,
``known_when_prepared``). Exit status 1 where one differs.
"""

from __future__ import annotations

import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import argument_parser, one_line_errors

with one_line_errors():
    import ai_edge_litert.interpreter  # noqa: F401 - once, before the fork

    from nnbridge.model import Pool
    from nnbridge_tflite.passes.dynamic import first_dynamic, known_early
    from nnbridge_tflite.read.reader import read_pool
    from tests.differential import Fork
    from tests.tflite.cases import cases
    from tests.tflite.verdicts import CREATED, REFUSED, UNREADABLE, asked, states, with_states


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


def main() -> int:
    """Compare; the exit status."""
    parser = argument_parser()
    parser.add_argument("--operators", action="store_true", help="single operators, their operands known in every way")
    options = parser.parse_args()
    return int(bool(options.operators and operators()))


if __name__ == "__main__":
    sys.exit(main())
