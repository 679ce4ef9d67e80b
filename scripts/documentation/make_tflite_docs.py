"""Write docs/tflite-operators.md: what Android's delegate maps, and what was compared with LiteRT's reference kernels.

python scripts/documentation/make_tflite_docs.py           write the file
python scripts/documentation/make_tflite_docs.py --check   exit with 1 if it is not up to date; sizes of differences may differ

Each case of tests/tflite/cases.py is converted and run beside LiteRT; an operator without a case is described by its host
kernel, or by the reason why there is none.
"""

from __future__ import annotations

import ast
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from documentation.site.conditions import requirements
from script_support import REPOSITORY, write_or_check

from nnbridge.converters.rules import LAST_LEVEL
from nnbridge_tflite.declaration import NO_KERNEL, REGISTRY, TfliteOperator
from nnbridge_tflite.host.running import computable
from nnbridge_tflite.read.schema import builtin_names
from nnbridge_tflite.rules import DelegateRule
from nnbridge_tflite.validate_lines import VALIDATE_LINES
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

SETS = {"all": "FLOAT32, UINT8, INT8, INT32", "8-bit": "FLOAT32, UINT8, INT8"}
"""Types that many operators share, by a short name."""

ANY_VERSION = 99
"""What declarations have as the newest version where the delegate does not look at it."""

HEAD = f"""# TFLite operators

[TensorFlow](https://www.tensorflow.org/mlir/tfl_ops) describes the operators. Made by
`scripts/documentation/make_tflite_docs.py` from the declarations.

- *Delegate*: what Android's NNAPI delegate maps: the newest version (v) if there is one, the first feature level (L), the types
  of the first input. Conditions are below; `nnbridge inspect FILE` states which one a file breaks.
- *Compared*: element types of files in `tests/tflite` that agree with LiteRT's reference kernels, by where they ran: `delegate`
  and `wide` are NNAPI operations under the mapping of that name, `host` is the host extension. In brackets: the largest
  difference, if any, in steps for integers, relative to the range for floats.
- *All* types are {SETS["all"]}; *8-bit* is {SETS["8-bit"]}.

| operators | delegate | compared |
|---|---|---|
"""

CONDITIONS = """
## Conditions, and which part of a phone has them

| kind | who refuses | what the program sees |
|---|---|---|
| `delegate` | the delegate's `Validate` | the operator stays with TFLite |
| `building` | NNAPI, while the delegate adds operations ([operations.md](operations.md)), and what the delegate does before | `ModifyGraphWithDelegate` fails: no interpreter |
| `device` | a device of a lower feature level | the operator stays with TFLite |
| `running` | the shape rules of NNAPI's CPU, and what the delegate leaves out | `invoke()` fails, unless a driver computes it |
| `nnbridge` | no part of a phone: nnbridge does not convert it | the operator stays with TFLite here |
| `graph` | TFLite, for tensors whose dimensions only a run knows ([delegate.md](delegate.md)) | TFLite refuses the delegate |

### Of the delegate

Kind `delegate`: lines of tflite/delegates/nnapi/nnapi_delegate.cc in LiteRT at f674577. In square brackets: holds only below this
feature level.

| operators and lines | conditions |
|---|---|
"""  # noqa: E501 - rows of a table


LOWERED = """
### Of the other parts

Names in italics are functions that operators share. Texts in braces depend on the file. Rows of one operator
and kind are alternatives, tried in order.

| operators | kind | conditions |
|---|---|---|
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
    alike: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name in sorted(builtin_names().values()):
        alike[_row(REGISTRY.get(name), compared)].append(name)
    rows = "".join(f"| {', '.join(names)} | {' | '.join(cells)} |\n" for cells, names in sorted(alike.items(), key=_order))
    return HEAD + rows + CONDITIONS + "\n".join(validated()) + "\n" + LOWERED + "\n".join(lowered()) + "\n"


def _order(row: tuple[tuple[str, str], list[str]]) -> tuple[bool, list[str]]:
    """Operators that the delegate maps first, then by name."""
    return not row[0][0], row[1]


def validated() -> Iterator[str]:
    """The conditions of the delegate's Validate, a row for the operators that share them."""
    sharing: dict[str, list[str]] = defaultdict(list)
    for declared in REGISTRY:
        if isinstance(declared.delegate, DelegateRule):
            rule = declared.delegate
            rules = [one.rule + (f" [{one.below}]" if one.below < LAST_LEVEL else "") for one in rule.conditions]
            sharing["; ".join(rules) or "none"].append(f"{declared.name} {VALIDATE_LINES[declared.name]}")
    for rules_text, names in sharing.items():
        yield f"| {', '.join(names)} | {rules_text} |"


def lowered() -> Iterator[str]:
    """The conditions of the functions that lower operators as the delegate does, and of those that these share."""
    for path in sorted((REPOSITORY / "converters/nnbridge_tflite/operators").glob("*.py")):
        for function in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(function, ast.FunctionDef) and (names := _lowered_by(function)):
                by_stage: dict[str, list[str]] = defaultdict(list)
                for rule, stage in requirements(function):
                    by_stage[stage].append(rule)
                for stage, rules in by_stage.items():
                    yield f"| {names} | {stage} | {'; '.join(rules)} |"


def _lowered_by(function: ast.FunctionDef) -> str:
    """The operators that a function lowers as the delegate does; its name in italics for one that such functions share."""
    if "to: Lowerer" not in ast.unparse(function.args):
        return ""
    texts = [ast.unparse(decorator) for decorator in function.decorator_list]
    if any("wide=True" in text for text in texts):
        return ""
    found = [re.sub(r"\.lowering\(\)|^lowers\(|\)$", "", text) for text in texts if "lower" in text]
    return ", ".join(found) if found else "" if texts else f"*{function.name}*"


def _row(declared: TfliteOperator | None, compared: dict[str, dict[tuple[str, str], float]]) -> tuple[str, str]:
    if declared is None:
        return "", f"refused when run; it requires {NO_KERNEL}"
    rule = declared.delegate
    return _mapped(rule) if isinstance(rule, DelegateRule) else "", _compared(declared, compared)


def _mapped(rule: DelegateRule) -> str:
    """Version, level and types."""
    version = f"v{rule.version}, " if rule.version < ANY_VERSION else ""
    return f"{version}L{rule.level}" + ("" if rule.types is None else ": " + _short(rule.types))


def _short(types: Iterable[str]) -> str:
    """A list of types, by its short name if it has one."""
    listed = ", ".join(types)
    return next((name for name, members in SETS.items() if members.lower() == listed.lower()), listed)


def _difference(case: Case, type: str, folder: Path) -> float:
    found, _ = differences(case.write(folder, type), kernels=case.kernels)
    return max(found, default=0.0)


def _compared(declared: TfliteOperator, compared: dict[str, dict[tuple[str, str], float]]) -> str:
    if declared.name in compared:
        by_place: dict[str, list[str]] = defaultdict(list)
        for (type, place), difference in compared[declared.name].items():
            by_place[place].append(f"{type} ({difference:.2g})" if difference else type)
        return "; ".join(f"{place} {_short(types)}" for place, types in by_place.items())
    for test, names in ELSEWHERE.items():
        if declared.name in names.split():
            return f"{test}"
    return "host kernel" if computable(declared) or declared.control else f"refused when run; it requires {declared.refusal}"


if __name__ == "__main__":
    write_or_check(TARGET, document, _comparable)
