"""Put models with known answers to a device and compare its own.

CASES is a .jsonl or .jsonl.gz file with a line for each model: {"model": …, "supported": true}, in the form of
`nnbridge devices ask`. The known answer may stand under another key, even within objects (--answer other.imx_1.1.9); lines
without it are left out, and so are those that do not have the values of --where.

Examples:
  python scripts/verify_profile.py vsi-imx-1.3.0 imx-cases.jsonl.gz
  python scripts/verify_profile.py vsi-imx-1.1.9 imx-cases.jsonl.gz --answer other.imx_1.1.9
  python scripts/verify_profile.py ethos-n78-4tops ethos-n-cases.jsonl.gz --where variant=4
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nnbridge.conformance.questions import read_questions
from nnbridge.devices import device
from nnbridge.errors import NnbridgeError
from nnbridge.runtime.placement import answers_of


def value_of(data: Mapping[str, Any], key: str) -> Any:
    """The value at a dotted key; None if there is none. The last part may hold dots itself."""
    if key in data:
        return data[key]
    head, _, rest = key.partition(".")
    inner = data.get(head)
    return value_of(inner, rest) if rest and isinstance(inner, dict) else None


def verify(name: str, path: Path, answer: str = "supported", where: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Cases, disagreements, and what they are, by operation and way."""
    asked = device(name)
    cases, wrong = 0, []
    by_operation: Counter[str] = Counter()
    for question in read_questions(path):
        expected = value_of(question.data, answer)
        if expected is None or any(str(value_of(question.data, k)) != v for k, v in (where or {}).items()):
            continue
        cases += 1
        answers = answers_of(asked, question.model)
        found = all(reason is None for reason in answers.reasons)
        if found is not expected:
            operation = question.model.operation_name(question.model.main.operations[0])
            by_operation[f"{operation}: the source {'accepts' if expected else 'refuses'}"] += 1
            reason = next((str(r) for r in answers.reasons if r is not None), "supported")
            wrong.append({"line": question.line, "operation": operation, "expected": expected, "answer": reason})
            wrong[-1]["judge"] = str(question.data.get("reason", ""))
    return {"device": name, "cases": cases, "disagreements": len(wrong), "by_operation": dict(by_operation), "list": wrong}


def main() -> int:
    """Exit status 0 only if there are cases and no disagreement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device")
    parser.add_argument("cases", type=Path)
    parser.add_argument("--answer", default="supported", metavar="KEY", help="where the known answer stands")
    parser.add_argument("--where", action="append", default=[], metavar="KEY=VALUE", help="only lines with this value")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    try:
        found = verify(options.device, options.cases, options.answer, dict(item.split("=", 1) for item in options.where))
    except (NnbridgeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        for item in found["list"]:
            print(f"line {item['line']} {item['operation']}: expected {item['expected']} ({item['judge']}); {item['answer']}")
        print(f"{found['device']}: {found['cases']} cases, {found['disagreements']} disagreements")
    return 0 if found["cases"] and not found["disagreements"] else 1


if __name__ == "__main__":
    sys.exit(main())
