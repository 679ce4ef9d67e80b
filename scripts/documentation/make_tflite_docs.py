"""Write docs/tflite-operators.md: what Android's delegate maps, and what was compared with LiteRT's reference kernels.

python scripts/documentation/make_tflite_docs.py           write the file
python scripts/documentation/make_tflite_docs.py --check   exit with 1 if it is not up to date; sizes of differences may differ

Each case of tests/tflite/cases.py is converted and run beside LiteRT; an operator without a case is described by its host
kernel, or by the reason why there is none.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import REPOSITORY, write_or_check

from nnbridge_tflite.declaration import NO_KERNEL, REGISTRY, TfliteOperator
from nnbridge_tflite.host.running import computable
from nnbridge_tflite.read.schema import builtin_names
from nnbridge_tflite.rules import DelegateRule
from tests.tflite.agreement import differences
from tests.tflite.cases import Case, cases

TARGET = REPOSITORY / "docs" / "tflite-operators.md"
ELSEWHERE = {
    "test_control_flow.py": "ASSIGN_VARIABLE CALL CALL_ONCE HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE IF "
    "READ_VARIABLE VAR_HANDLE WHILE",
    "test_convert.py": "CUSTOM",
    "test_folding.py": "DENSIFY FILL",
    "test_recurrent.py": "BIDIRECTIONAL_SEQUENCE_LSTM BIDIRECTIONAL_SEQUENCE_RNN LSTM RNN SVDF UNIDIRECTIONAL_SEQUENCE_LSTM "
    "UNIDIRECTIONAL_SEQUENCE_RNN",
    "test_stablehlo.py": "STABLEHLO_COMPOSITE STABLEHLO_REDUCE_WINDOW STABLEHLO_SCATTER",
}
"""Tests of operators that take more than a file of one operator."""

HEAD = """# TFLite operators

Under *delegate*: what Android's NNAPI delegate maps, up to which version of the operator and from which feature level on
(further conditions are in the operator's declaration in `converters/nnbridge_tflite/operators/`; `nnbridge inspect FILE`
states which one a file breaks). Under *compared*: element types of single-operator files that were compared with LiteRT's
reference kernel, by where they ran: `delegate` and `wide` are NNAPI operations under the mapping of that name, `host` the host
extension. Largest differences are in steps for integers and relative to the range for floats. Inputs with `?` may be omitted,
`*` is any number of inputs. Made by `scripts/documentation/make_tflite_docs.py` from the declarations.

| operator | what it computes | inputs | delegate | compared |
|---|---|---|---|---|
"""


def _comparable(text: str) -> str:
    """The page without the sizes of differences."""
    return re.sub(r"\([0-9.e+-]+\)", "", text)


def document() -> str:
    """Run every case; the whole page."""
    compared: dict[str, dict[tuple[str, str], float]] = defaultdict(dict)
    with tempfile.TemporaryDirectory() as folder:
        for case in cases():
            for type in case.types:
                key = (type, case.place(type))
                compared[case.operator][key] = max(_difference(case, type, Path(folder)), compared[case.operator].get(key, 0.0))
    rows = [_row(name, REGISTRY.get(name), compared) for name in sorted(builtin_names().values())]
    return HEAD + "\n".join(rows) + "\n"


def _row(name: str, declared: TfliteOperator | None, compared: dict[str, dict[tuple[str, str], float]]) -> str:
    if declared is None:
        return f"| {name} | | | | refused when run; it requires {NO_KERNEL} |"
    rule = declared.delegate
    inputs = ", ".join(one.name + "?" * one.optional + "*" * one.repeat for one in declared.inputs)
    # The LSTMs' lists are as long as a page.
    inputs = inputs if len(declared.inputs) < 10 else f"{len(declared.inputs)}, in NNAPI's order"
    mapped = f"version {rule.version}, level {rule.level}" + _types(rule.types) if isinstance(rule, DelegateRule) else ""
    return f"| {name} | {declared.summary.replace('|', '&#124;')} | {inputs} | {mapped} | {_compared(declared, compared)} |"


def _types(types: tuple[str, ...] | None) -> str:
    return "" if types is None else ": " + ", ".join(types)


def _difference(case: Case, type: str, folder: Path) -> float:
    found, _ = differences(case.write(folder, type), kernels=case.kernels)
    return max(found, default=0.0)


def _compared(declared: TfliteOperator, compared: dict[str, dict[tuple[str, str], float]]) -> str:
    if declared.name in compared:
        found = compared[declared.name].items()
        return ", ".join(f"{type} {place} ({difference:.2g})" for (type, place), difference in found)
    for test, names in ELSEWHERE.items():
        if declared.name in names.split():
            return f"tests/tflite/{test}"
    return "host kernel" if computable(declared) or declared.control else f"refused when run; it requires {declared.refusal}"


if __name__ == "__main__":
    write_or_check(TARGET, document, _comparable)
