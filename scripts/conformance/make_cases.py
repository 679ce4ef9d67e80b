"""Android's conformance cases for `nnbridge vts`, made from the specs in AOSP's packages/modules/NeuralNetworks.

AOSP is a checkout of that repository, Android 11 or newer, or the part of it that is read: runtime/test/specs/*/*.mod.py and
tools/test_generator. Its test generator expands every variation of each spec, in a separate process. The code of the generator
and of the specs is run: name a folder that you trust. FOLDER gets SUITE/SPEC.json.gz for each spec that has cases, and
index.json with the operations and operand types of each. A spec that fails is named, the others are written, and the exit
status is 1.

Examples:
  git clone https://android.googlesource.com/platform/packages/modules/NeuralNetworks
  python scripts/conformance/make_cases.py NeuralNetworks cases
  python scripts/conformance/make_cases.py NeuralNetworks cases --only 'V1_0/relu*' --only 'V1_3/while*'
  nnbridge vts cases --device nnapi-sample_minimal
"""

from __future__ import annotations

import contextlib
import gzip
import importlib
import json
import math
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from fnmatch import fnmatchcase
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import argument_parser, one_line_errors

with one_line_errors():
    from nnbridge.conformance.cases import Case, read_cases, spec_files
    from nnbridge.conformance.schema import schema_error
    from nnbridge.errors import InputError, Reason, cannot_read
    from nnbridge.storage.atomic import atomic_write

Json = dict[str, Any]
Spec = TypeVar("Spec", Path, None)
GENERATOR = Path("tools/test_generator/test_generator.py")
SPECS = "runtime/test/specs"
ENDING = ".mod.py"
EXACT = 2**53
"""Whole numbers below it are written without a point, except -0.0."""


# -- in the process that runs AOSP's code ----------------------------------------------------------------------------------


def expand(aosp: Path, spec: Path | None) -> list[Json] | str:
    """The cases of one spec, or the reason why there are none; without a spec the generator is imported only.

    Nothing that AOSP's code prints is shown, and nothing is written to its folder.
    """
    try:
        with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
            generator = _generator((aosp / GENERATOR).parent)
            return [] if spec is None else _expanded(generator, spec)
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {' '.join(str(error).split()) or 'no message'}"


def _generator(folder: Path) -> Any:
    sys.dont_write_bytecode = True
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    generator = importlib.import_module(GENERATOR.stem)
    if not hasattr(generator, "SubgraphReference"):
        raise ValueError("older than Android 11's, it has no SubgraphReference")
    return generator


def _expanded(generator: Any, spec: Path) -> list[Json]:
    generator.FileNames.InitializeFileLists(str(spec), None)
    generator.FileNames.fileIndex = 0
    generator.FileNames.NextFile()
    exec(compile(spec.read_text(encoding="utf-8"), str(spec), "exec"), generator.GetExecScope())
    cases: list[Json] = []
    generator.Example.DumpAllExamples(
        DumpExample=lambda example, found: found.append(_case(example, generator.IgnoredOutput)), example_fd=cases
    )
    return cases


def _case(example: Any, ignored: type) -> Json:
    model = example.model
    outputs = model.GetOutputs()
    content: Json = {
        "name": str(example.testName),
        "min_version": model.version or "UNKNOWN",
        "relaxed": bool(model.isRelaxed),
        "expect_failure": bool(example.expectFailure),
    }
    if example.expectedMultinomialDistributionTolerance:
        content["multinomial_tolerance"] = float(example.expectedMultinomialDistributionTolerance)
    referenced = [_subgraph(body) for body in model.GetReferencedModels()]
    content |= {
        "model": _subgraph(model) | ({"referenced": referenced} if referenced else {}),
        "inputs": [_values(operand) for operand in model.GetInputs()],
        "outputs": [None if isinstance(operand, ignored) else _values(operand) for operand in outputs],
    }
    unchecked = [place for place, operand in enumerate(outputs) if isinstance(operand, ignored)]
    return content | ({"ignored_outputs": unchecked} if unchecked else {})


def _subgraph(model: Any) -> Json:
    return {
        "operands": [_operand(operand) for operand in model.operands],
        "operations": [
            {"type": o.optype, "inputs": [i.model_index for i in o.ins], "outputs": [i.model_index for i in o.outs]}
            for o in model.operations
        ],
        "inputs": [operand.model_index for operand in model.GetInputs()],
        "outputs": [operand.model_index for operand in model.GetOutputs()],
    }


def _operand(operand: Any) -> Json:
    declared = operand.type
    content: Json = {
        "type": declared.type,
        "dims": [int(side) for side in declared.dimensions],
        "lifetime": operand.lifetime,
    }
    if declared.scale:
        content["scale"] = _number(float(declared.scale))
    if declared.zeroPoint:
        content["zero_point"] = int(declared.zeroPoint)
    quant = declared.extraParams
    if quant is not None and not quant.hide:
        content["channel_quant"] = {
            "scales": [_number(float(scale)) for scale in quant.scales],
            "channel_dim": int(quant.channelDim),
        }
    if operand.lifetime.startswith("CONSTANT") or operand.lifetime == "SUBGRAPH":
        content["value"] = _values(operand)
    return content


def _values(operand: Any) -> list[Any]:
    """Flat values in the operand's type; none for an operand that is left out."""
    name, values = operand.type.type, operand.value or ()
    if "FLOAT" not in name:
        return [bool(value) if "BOOL" in name else int(value) for value in values]
    # Literals of float in the tests that AOSP compiles, halves by way of them; the shortest text says the same number.
    with np.errstate(over="ignore"):
        rounded = np.array([float(value) for value in values]).astype(np.float32)
        rounded = rounded.astype(np.float16) if "FLOAT16" in name else rounded
    return [_number(float(str(value))) for value in rounded]


def _number(value: float) -> float | str:
    """A number as short as JSON has it; text for those that JSON lacks."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    whole = value.is_integer() and abs(value) < EXACT and str(value) != "-0.0"
    return int(value) if whole else value


# -- in the script's own process -------------------------------------------------------------------------------------------


def specs_of(aosp: Path, only: Sequence[str]) -> list[Path]:
    """The specs that are asked for; InputError where the generator or the specs are not found."""
    if not (aosp / GENERATOR).is_file():
        raise InputError(Reason(f"AOSP's packages/modules/NeuralNetworks with {GENERATOR}", "none", operand=str(aosp)))
    found = sorted((aosp / SPECS).glob(f"*/*{ENDING}"))
    if not found:
        raise InputError(Reason(f"specs, {SPECS}/SUITE/SPEC{ENDING}", "none", operand=str(aosp)))
    for pattern in only:
        if not any(fnmatchcase(title(spec), pattern) for spec in found):
            raise InputError(Reason(f"a pattern of the {len(found)} specs, such as {title(found[0])}", pattern, operand="--only"))
    return [spec for spec in found if not only or any(fnmatchcase(title(spec), pattern) for pattern in only)]


def title(spec: Path) -> str:
    """``SUITE/SPEC`` of a spec's file."""
    return f"{spec.parent.name}/{spec.name.removesuffix(ENDING)}"


def expanded(aosp: Path, specs: Sequence[Path]) -> Iterator[tuple[Path, list[Json] | str]]:
    """Each spec with its cases, or with the reason why it has none; InputError if the generator cannot be used."""
    ((_, wrong),) = _run(aosp, [None])
    if wrong:
        raise InputError(Reason("the test generator of Android 11 or newer", str(wrong), operand=str(aosp / GENERATOR)))
    return _run(aosp, specs)


def _run(aosp: Path, specs: Sequence[Spec]) -> Iterator[tuple[Spec, list[Json] | str]]:
    """The results of ``expand`` in a process, which is replaced when it crashes."""
    left = list(specs)
    while left:
        with ProcessPoolExecutor(1, get_context("spawn")) as worker:
            while left:
                spec = left.pop(0)
                try:
                    yield spec, worker.submit(expand, aosp, spec).result()
                except BrokenProcessPool:
                    yield spec, "the process that ran it crashed"
                    break


def write_cases(folder: Path, spec: Path, cases: Sequence[Json]) -> str | None:
    """Write the file of a spec; the reason if `nnbridge vts` could not read it."""
    suite, _, name = title(spec).partition("/")
    content = {"suite": suite, "spec": name, "cases": cases}
    wrong = schema_error(content)
    if wrong is not None:
        return str(wrong)
    (folder / suite).mkdir(parents=True, exist_ok=True)
    with atomic_write(folder / suite / f"{name}.json.gz") as file:
        file.write(gzip.compress(json.dumps(content, allow_nan=False, separators=(",", ":")).encode(), mtime=0))
    return None


def index(folder: Path) -> list[Json]:
    """Each file of cases that is in the folder, as `nnbridge vts` reads it."""
    return [_entry(path, list(read_cases(path))) for path in spec_files(folder)]


def _entry(path: Path, cases: Sequence[Case]) -> Json:
    graphs = [graph for case in cases for graph in case.subgraphs]
    return {
        "suite": path.parent.name,
        "spec": path.name.removesuffix(".json.gz"),
        "cases": len(cases),
        "operations": sorted({operation["type"] for graph in graphs for operation in graph["operations"]}),
        "operand_types": sorted({operand["type"] for graph in graphs for operand in graph["operands"]}),
    }


def main() -> int:
    parser = argument_parser()
    parser.add_argument("aosp", type=Path, metavar="AOSP", help="a checkout of packages/modules/NeuralNetworks")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder to write the cases to")
    parser.add_argument(
        "--only", action="append", default=[], metavar="PATTERN", help="specs by SUITE/SPEC, wildcards allowed; repeatable"
    )
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    specs = specs_of(options.aosp.resolve(), options.only)
    options.folder.mkdir(parents=True, exist_ok=True)
    for spec, cases in expanded(options.aosp.resolve(), specs):
        wrong = cases if isinstance(cases, str) else write_cases(options.folder, spec, cases) if cases else None
        if wrong is not None:
            print(f"{title(spec)}: {wrong}", file=sys.stderr)
        counts += Counter(failed=wrong is not None, empty=not cases, written=bool(cases) and wrong is None)
        counts["cases"] += len(cases) if wrong is None else 0
    if counts["written"]:
        with atomic_write(options.folder / "index.json") as file:
            file.write(json.dumps(index(options.folder), indent=0).encode())
    print(
        f"{options.folder}: {counts['cases']:,} cases of {counts['written']} specs; "
        f"{counts['empty']} specs have no example, {counts['failed']} failed"
    )
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    with one_line_errors():
        try:
            sys.exit(main())
        except OSError as error:
            raise InputError(Reason("a folder to read and one to write", cannot_read(error))) from error
