"""Put models with known answers to a device and compare its own.

CASES is a .jsonl or .jsonl.gz file with a line for each model: {"model": …, "supported": true}, in the form of
`nnbridge devices ask`. The known answer may stand under another key, even within objects (--answer other.imx_1.1.9); lines
without it are left out, and so are those that do not have the values of --where.

With --judge the answers come from a program that runs the driver's own code, which whoever runs this builds from the vendor's
source: it reads the models' lines, and writes a line {"supported": [true], "reason": "…"} for each; null where the driver dies.
Disagreements that the profile marks as uncertain are counted apart. What the runtime would not ask the driver, because its
feature level is too low, is left out.

Examples:
  python scripts/verify_profile.py vsi-imx-1.3.0 imx-cases.jsonl.gz
  python scripts/verify_profile.py vsi-imx-1.1.9 imx-cases.jsonl.gz --answer other.imx_1.1.9
  python scripts/verify_profile.py ethos-n78-4tops ethos-n-cases.jsonl.gz --where variant=4
  python scripts/verify_profile.py vsi-imx-1.3.0 random.jsonl.gz --judge './judge imx_1.3.0'
"""

from __future__ import annotations

import argparse
import gzip
import json
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nnbridge.conformance.questions import Question, read_questions
from nnbridge.devices import device
from nnbridge.errors import InputError, NnbridgeError, Reason, Why
from nnbridge.runtime.placement import answers_of


def value_of(data: Mapping[str, Any], key: str) -> Any:
    """The value at a dotted key; None if there is none. The last part may hold dots itself."""
    if key in data:
        return data[key]
    head, _, rest = key.partition(".")
    inner = data.get(head)
    return value_of(inner, rest) if rest and isinstance(inner, dict) else None


def judged(path: Path, command: str) -> Iterator[tuple[Question, Mapping[str, Any]]]:
    """The models of a file, and what a judge's program answers; InputError where it does not answer each."""
    data = path.read_bytes()
    lines = gzip.decompress(data) if path.suffix == ".gz" else data
    answered = subprocess.run(shlex.split(command), input=lines, stdout=subprocess.PIPE, check=False)
    answers = [json.loads(line) for line in answered.stdout.splitlines()]
    questions = list(read_questions(path))
    if answered.returncode or len(answers) != len(questions):
        found = f"exit status {answered.returncode}, {len(answers)} lines"
        raise InputError(Reason(f"exit status 0 and {len(questions)} lines, one for each model", found, operand=command))
    yield from zip(questions, answers, strict=True)


def verify(
    name: str, path: Path, answer: str = "supported", where: Mapping[str, str] | None = None, judge: str = ""
) -> dict[str, Any]:
    """Cases, disagreements, and what they are, by operation and way."""
    asked = device(name)
    cases, uncertain, wrong = 0, 0, []
    by_operation: Counter[str] = Counter()
    for question, judgement in judged(path, judge) if judge else ((q, q.data) for q in read_questions(path)):
        expected = value_of(judgement, answer)
        if expected is None or any(str(value_of(question.data, k)) != v for k, v in (where or {}).items()):
            continue
        expected = all(expected) if isinstance(expected, list) else expected
        answers = answers_of(asked, question.model)
        if judge and any(reason is not None and reason.kind is Why.FEATURE_LEVEL for reason in answers.reasons):
            continue
        cases += 1
        found = all(reason is None for reason in answers.reasons)
        if judge and found is not expected and any(answers.uncertain):
            uncertain += 1
        elif found is not expected:
            operation = question.model.operation_name(question.model.main.operations[0])
            by_operation[f"{operation}: the source {'accepts' if expected else 'refuses'}"] += 1
            reason = next((str(r) for r in answers.reasons if r is not None), "supported")
            wrong.append({"line": question.line, "operation": operation, "expected": expected, "answer": reason})
            wrong[-1]["judge"] = str(judgement.get("reason", ""))
    found = {"device": name, "cases": cases, "disagreements": len(wrong), "uncertain": uncertain}
    return {**found, "by_operation": dict(by_operation), "list": wrong}


def main() -> int:
    """Exit status 0 only if there are cases and no disagreement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device")
    parser.add_argument("cases", type=Path)
    parser.add_argument("--answer", default="supported", metavar="KEY", help="where the known answer stands")
    parser.add_argument("--where", action="append", default=[], metavar="KEY=VALUE", help="only lines with this value")
    parser.add_argument("--judge", default="", metavar="COMMAND", help="the program that answers")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    try:
        where = dict(item.split("=", 1) for item in options.where)
        found = verify(options.device, options.cases, options.answer, where, options.judge)
    except (NnbridgeError, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        for item in found["list"]:
            print(f"line {item['line']} {item['operation']}: expected {item['expected']} ({item['judge']}); {item['answer']}")
        print(f"{found['device']}: {found['cases']} cases, {found['disagreements']} disagreements")
        if found["uncertain"]:
            print(f"{found['uncertain']} more are marked as uncertain")
    return 0 if found["cases"] and not found["disagreements"] else 1


if __name__ == "__main__":
    sys.exit(main())
