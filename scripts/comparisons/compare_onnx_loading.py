"""ONNX Runtime loads a file, or not: nnbridge's rules beside the installed runtime, on drawn, mostly broken files.

    python scripts/comparisons/compare_onnx_loading.py --count 3000 --seed 1
    python scripts/comparisons/compare_onnx_loading.py --sweep --count 100 --seed 1

Files are drawn as for scripts/nets/differential_onnx.py, then one or two things are changed (tests/onnx/loading.py). With
``--sweep`` of each drawn file everything is changed, one thing each time, some hundreds of files. ``--keep`` gets those on which
the two differ. Files that nnbridge does not read, and ONNX Runtime loads, are counted apart. Exit status 1
where a verdict differs.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import argument_parser, one_line_errors

with one_line_errors():
    import onnxruntime  # noqa: F401 - once, before the fork

    from tests.differential import Fork
    from tests.onnx.loading import candidate, loading_outcome, refusal, runtime_refusal, sweep


def drawn(seed: int, number: int, *, swept: bool) -> Iterator[tuple[str, bytes | None]]:
    """The files of a number, each with its name."""
    if not swept:
        yield str(number), candidate(seed, number)
        return
    for i, (what, model) in enumerate(sweep(seed, number)):
        yield f"{number}.{i} {what}", model


def main() -> int:
    """Compare; the exit status."""
    parser = argument_parser()
    parser.add_argument("--count", type=int, default=3000, metavar="N")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the number of the first file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sweep", action="store_true", help="of each drawn file, one change of each kind")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="files that differ")
    parser.add_argument("--verbose", action="store_true", help="files that nnbridge does not read, too")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    fork, counts = Fork(runtime_refusal), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file.onnx"
        numbers = range(options.first, options.first + options.count)
        files = (one for number in numbers for one in drawn(options.seed, number, swept=options.sweep))
        for name, model in files:
            if model is None:
                counts["not drawn"] += 1
                continue
            path.write_bytes(model)
            try:
                (why,) = fork.run(str(path))
            except RuntimeError as error:
                why = str(error)
            found, stated = refusal(path)
            outcome = loading_outcome(why, found, stated=stated)
            counts[outcome] += 1
            if outcome.startswith("only") or (options.verbose and outcome == "nnbridge does not read it"):
                print(f"{name}: ONNX Runtime: {why[-200:] or 'loads'}; nnbridge: {found[-200:] or 'loads'}")
                if options.keep is not None:
                    options.keep.mkdir(parents=True, exist_ok=True)
                    (options.keep / f"{name.split()[0]}.onnx").write_bytes(model)
    fork.close()
    print(f"ONNX Runtime {version('onnxruntime')}: {dict(sorted(counts.items()))}")
    return int(any(counts[outcome] for outcome in counts if outcome.startswith("only")))


if __name__ == "__main__":
    sys.exit(main())
