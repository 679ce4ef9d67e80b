"""Put models with known answers to a device and compare its own.

CASES is a .jsonl or .jsonl.gz file with a line for each model: {"model": …, "supported": true}, in the form of
`nnbridge devices ask`. The known answer may stand under another key, even within objects (--answer other.imx_1.1.9); lines
without it are left out, and so are those that do not have the values of --where.

With --judge the answers come from a program that runs the driver's own code, which whoever runs this builds from the vendor's
source: it reads the models' lines, and writes a line {"supported": [true], "reason": "…"} for each; null where it has no answer.
With --program that program reads whole numbers instead, a line for each model, for programs in C++: the number of operands;
for each its type, 1 if it is omitted, its rank and sides, its scale, its zero point, its channel dimension, the number of its
channels' scales and these, the number of its constant's bytes and these; then the number of operations, for each its code, the
number of its inputs and these, and of its outputs. Scales are the bits of their float32. It answers with a line: 1, 0, or ? for
each operation, a space, a reason. A program that dies refuses the model that it was asked, and is started again.
Disagreements that the profile marks as uncertain are counted apart. What the runtime would not ask the driver, because its
feature level is too low, is left out.

Examples:
  python scripts/profiles/verify_profile.py vsi-imx-1.3.0 imx-cases.jsonl.gz
  python scripts/profiles/verify_profile.py vsi-imx-1.1.9 imx-cases.jsonl.gz --answer other.imx_1.1.9
  python scripts/profiles/verify_profile.py ethos-n78-4tops ethos-n-cases.jsonl.gz --where variant=4
  python scripts/profiles/verify_profile.py vsi-imx-1.3.0 random.jsonl.gz --judge './judge imx_1.3.0'
  python scripts/profiles/verify_profile.py ethos-n78-4tops random.jsonl.gz --program './judge 4'
"""

from __future__ import annotations

import argparse
import gzip
import json
import shlex
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from nnbridge.conformance.questions import Question, read_questions
from nnbridge.devices import device
from nnbridge.errors import InputError, NnbridgeError, Reason, Why
from nnbridge.model import Model
from nnbridge.runtime.placement import answers_of
from nnbridge.types import Lifetime


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


def numbers(model: Model) -> Iterator[int]:
    """A model of one graph as whole numbers, in the order that ``--program`` states."""

    def bits(number: float) -> int:
        return int.from_bytes(struct.pack("<f", number), "little")

    yield len(model.main.operands)
    for operand in model.main.operands:
        quant, value = operand.channel_quant, model.value(operand) if operand.is_constant else None
        data = b"" if value is None else value.tobytes()
        yield from (operand.type, operand.lifetime is Lifetime.NO_VALUE, len(operand.dims), *operand.dims)
        yield from (bits(operand.scale), operand.zero_point)
        yield from (quant.channel_dim, len(quant.scales), *map(bits, quant.scales)) if quant else (0, 0)
        yield from (len(data), *data)
    yield len(model.main.operations)
    for operation in model.main.operations:
        yield from (operation.type, len(operation.inputs), *operation.inputs, len(operation.outputs), *operation.outputs)


def answered(path: Path, command: str) -> Iterator[tuple[Question, Mapping[str, Any]]]:
    """The models of a file, and what a program that reads numbers answers; InputError where it answers something else."""
    program: subprocess.Popen[str] | None = None
    for question in read_questions(path):
        if program is None:
            program = subprocess.Popen(shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        assert program.stdin is not None
        assert program.stdout is not None
        try:
            print(*map(int, numbers(question.model)), file=program.stdin, flush=True)
            marks, _, reason = program.stdout.readline().rstrip("\n").partition(" ")
        except BrokenPipeError:
            marks, reason = "", ""
        count = len(question.model.main.operations)
        if not marks:
            program.wait()
            program, marks, reason = None, "0" * count, f"died, exit status {program.returncode}"
        if len(marks) != count or set(marks) - set("01?"):
            raise InputError(Reason(f"1, 0 or ? for each of {count} operations", marks[:80], operand=command))
        yield question, {"supported": None if "?" in marks else [mark == "1" for mark in marks], "reason": reason}
    if program is not None:
        program.communicate()


def verify(
    name: str,
    path: Path,
    answer: str = "supported",
    where: Mapping[str, str] | None = None,
    live: Iterable[tuple[Question, Mapping[str, Any]]] | None = None,
) -> dict[str, Any]:
    """Cases, disagreements, and what they are, by operation and way; ``live`` are the answers of the driver's own code."""
    asked = device(name)
    cases, uncertain, wrong = 0, 0, []
    by_operation: Counter[str] = Counter()
    for question, judgement in live or ((q, q.data) for q in read_questions(path)):
        expected = value_of(judgement, answer)
        if expected is None or any(str(value_of(question.data, k)) != v for k, v in (where or {}).items()):
            continue
        expected = all(expected) if isinstance(expected, list) else expected
        answers = answers_of(asked, question.model)
        if live and any(reason is not None and reason.kind is Why.FEATURE_LEVEL for reason in answers.reasons):
            continue
        cases += 1
        found = all(reason is None for reason in answers.reasons)
        if live and found is not expected and any(answers.uncertain):
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
    parser.add_argument("--program", default="", metavar="COMMAND", help="the program that answers models in numbers")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    try:
        where = dict(item.split("=", 1) for item in options.where)
        live = judged(options.cases, options.judge) if options.judge else None
        live = answered(options.cases, options.program) if options.program else live
        found = verify(options.device, options.cases, options.answer, where, live)
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
