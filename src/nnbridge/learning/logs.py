"""Logs as answers: Android's ExecutionPlan, TFLite's delegates, LiteRT's compilers, and nnbridge's plans, traces and cases.

Wordings are those of ExecutionPlan.cpp (``findBestDeviceForEachOperation``, verbose log ``compilation``), of logcat's ``chatty``,
of TFLite's ``subgraph.cc`` and delegates, and of LiteRT's compiler plugins.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nnbridge.conformance.questions import read_questions
from nnbridge.errors import InputError, Reason, Why
from nnbridge.foreign import ReadingBudget, Shape, checked
from nnbridge.model import Model
from nnbridge.reading import read_at_most

CPU = "nnapi-reference"
MAX_BYTES = 256 * 2**20
MAX_REPEATED = 20_000
"""Operations of one log whose lines chatty left out."""
MAX_ANSWERS = 500_000
"""Answers that follow from what a log does not say: a device that refuses one operation of a model supports the others."""
MAX_NAME = 255
"""Characters of the name of a device or file."""
MAX_DEVICES = 100
"""Devices of one log: a phone has fewer than ten."""
MAX_MODELS = 1_000
"""Models of one log that differ: each is looked for in all files."""
_DIGITS = 9
"""Of a number in a log."""
_SHOWN = 40
_PLAN: Shape = {
    "model?": str,
    "operations": [{"source": int, "type": str, "place": str, "device": str, "reasons": [{"device": str, "kind?": str}]}],
}
"""What is read of ``plan --json``."""
_CALL: Shape = {"answers": [{"type": str, "devices": {str: bool}}], "saved?": str}
"""What is read of a compilation in a trace."""
_REFUSED = re.compile(r"Device (\S+) can't do operation ([A-Z][A-Z0-9_]*)")
_PLACED = re.compile(r"findBestDeviceForEachOperation\((?:\w+:)?([A-Z][A-Z0-9_]*)(?::\d+)?\) = (-?\d+)(?: \(([^)]*)\))?")
_NOBODY = re.compile(r"No driver can do (?:the op|operation ([A-Z][A-Z0-9_]*))")
_CHATTY = re.compile(r"chatty\s*:")
_SAME = re.compile(r"\bidentical (\d+) lines?")
_THREAD = re.compile(r"^\d\d-\d\d\s+\S+\s+(\d+)\s+(\d+)\s")
_END = re.compile(r"ModelBuilder::partitionTheWork|ExecutionPlan compilation finished")
_DELEGATE = re.compile(r"Operator ([A-Z][A-Z0-9_]*) \(v\d+\) refused by (\w+) delegate: (.*)")
_GPU = re.compile(r"(?:Following|Next) operations are not supported by (\w+) delegate:")
_OPERATOR = re.compile(r"^\s*(?:[A-Z]+: )?([A-Z][A-Z0-9_]*): ?(.*)$")
_SHARE = re.compile(r"(?<!\d)(\d+) operations will run on the \w+, and the remaining (\d+)")
_REPLACED = re.compile(r"Replacing (\d+) out of (\d+) node\(s\) with delegate \((\w+)\)")
_COMPILER = re.compile(r"LiteRT Op #(\d+) '(\w+)' \(code=\d+\) is not supported in (\w+) Compiler")
_SELECTED = re.compile(r"PartitionSubgraph: \d+, selected num ops: (\d+), from tot\w* ops: (\d+)")


@dataclass(frozen=True)
class Logged:
    """Answers for one model, operation by operation in its order."""

    operations: tuple[str, ...]
    answers: tuple[Mapping[str, bool], ...]
    """For each operation: device → whether it is supported."""
    where: str
    file: str = ""
    """The model's file, where the log names it."""
    model: Model | None = None


@dataclass(frozen=True)
class Delegated:
    """What a delegate or compiler says of the operators of one file."""

    device: str
    where: str
    accepted: int = -1
    """Operators that it accepts; -1: not stated."""
    total: int = -1
    refused: Mapping[str, str] = field(default_factory=dict)
    """Operators of which some are refused, with its words."""
    indexes: Mapping[int, str] = field(default_factory=dict)
    """Refused operators by their index in the file."""


@dataclass(frozen=True)
class Log:
    """All that a file says."""

    models: tuple[Logged, ...] = ()
    delegated: tuple[Delegated, ...] = ()


def read_log(path: Path) -> Log:
    """The answers of a log; InputError if nothing in it is one."""
    if path.suffix in (".jsonl", ".gz"):
        found = Log(tuple(_cases(path)))
    else:
        text = _text(path)
        found = _json(path, text) or Log(tuple(_android(text, path.name)), tuple(_delegates(text, path.name)))
    _check_names(found, path)
    if not found.models and not found.delegated:
        rule = "lines of ExecutionPlan, TFLite or LiteRT, `plan --json`, NNBRIDGE_TRACE, or models with answers"
        raise InputError(Reason(rule, "none", operand=str(path)))
    return found


def _check_names(log: Log, path: Path) -> None:
    """InputError for names that no device and no file has, and for more devices than any phone."""
    devices = {device for logged in log.models for answer in logged.answers for device in answer}
    devices.update(part.device for part in log.delegated)
    if len(devices) > MAX_DEVICES:
        raise InputError(Reason(f"a log of at most {MAX_DEVICES} devices", f"{len(devices):,}", operand=str(path)))
    different = len({logged.operations for logged in log.models if logged.model is None})
    if different > MAX_MODELS:
        raise InputError(Reason(f"a log of at most {MAX_MODELS:,} models", f"{different:,}", operand=str(path)))
    if "" in devices:
        raise InputError(Reason("names of devices", "an empty one", operand=str(path)))
    for name in (*devices, *(Path(logged.file).name for logged in log.models)):
        if len(name) > MAX_NAME or not name.isprintable():
            rule = f"names of devices and files of at most {MAX_NAME} printable characters"
            raise InputError(Reason(rule, ascii(name[:_SHOWN]), operand=str(path)))


def _number(digits: str, where: str) -> int:
    if len(digits) > _DIGITS:
        raise InputError(Reason(f"a number of at most {_DIGITS} digits", f"one of {len(digits):,}", operand=where))
    return int(digits)


def _text(path: Path) -> str:
    try:
        content = read_at_most(path, MAX_BYTES)
    except OSError as error:
        raise InputError(Reason("a readable log", error.strerror or str(error), operand=str(path))) from error
    if len(content) > MAX_BYTES:
        raise InputError(Reason(f"a log of at most {MAX_BYTES:,} bytes", "more", operand=str(path)))
    # As text files are read: every line ends with \n.
    return content.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")


# -- Android -------------------------------------------------------------------------------------------------------------


def _numbered(text: str) -> Iterator[tuple[int, str]]:
    """Each line that is not empty, and its number."""
    return ((number, line) for number, line in enumerate(text.splitlines(), 1) if line)


def _repeated(text: str) -> Iterator[tuple[str, str, int, str]]:
    """Thread, line, its number, and in digits how often it stands there: lines that chatty left out are there again."""
    last: dict[str, str] = {}
    for number, line in _numbered(text):
        thread = _THREAD.match(line)
        key = "-".join(thread.groups()) if thread else ""
        chatty = _CHATTY.search(line)
        same = _SAME.search(line, chatty.end()) if chatty else None
        if same:
            yield key, last.get(key, ""), number, same.group(1)
        else:
            last[key] = line
            yield key, line, number, "1"


class _Thread:
    """The operations of one model, as they are logged."""

    def __init__(self) -> None:
        self.operations: list[str] = []
        self.answers: list[dict[str, bool]] = []
        self.refused: dict[str, None] = {}
        self.first = 0

    def placed(self, operation: str, device: str, number: int) -> None:
        self.first = self.first or number
        accepted = {} if device in ("", "NNAPI") else {device: True}
        self.operations.append(operation)
        self.answers.append({**dict.fromkeys(self.refused, False), **accepted})
        self.refused.clear()

    def end(self, name: str) -> Iterator[Logged]:
        """The model, if there is one. A device that refused something and is not named for an operation supports it."""
        if self.operations:
            yield Logged(tuple(self.operations), tuple(self.answers), f"{name} line {self.first}")
        self.__init__()  # type: ignore[misc]


def _android(text: str, name: str) -> Iterator[Logged]:
    threads: dict[str, _Thread] = {}
    found: list[Logged] = []
    repeated = ReadingBudget(MAX_REPEATED, f"at most {MAX_REPEATED:,} operations whose lines chatty left out", name)
    for key, line, number, times in _repeated(text):
        thread = threads.setdefault(key, _Thread())
        if match := _REFUSED.search(line):
            thread.refused[match.group(1)] = None
        elif match := _PLACED.search(line):
            count = _number(times, f"{name} line {number}")
            repeated.spend(count - 1, f" line {number}")
            for _ in range(count):
                thread.placed(match.group(1), match.group(3) or "", number)
        elif match := _NOBODY.search(line):
            if match.group(1):
                thread.placed(match.group(1), "", number)
            found += thread.end(name)
        elif _END.search(line):
            found += thread.end(name)
    for thread in threads.values():
        found += thread.end(name)
    budget = ReadingBudget(MAX_ANSWERS, f"a log from which at most {MAX_ANSWERS:,} answers follow", name)
    for logged in found:
        # Whoever is asked and does not refuse supports; a log without a refusal says nothing of the devices that lost.
        asked = {device for answer in logged.answers for device in answer} - {CPU}
        stated = sum(map(len, logged.answers))
        budget.spend(max(0, len(asked) * len(logged.answers) - stated), f", the model of {logged.where}")
        yield replace(logged, answers=tuple({**dict.fromkeys(asked, True), **answer} for answer in logged.answers))


# -- TFLite and LiteRT ---------------------------------------------------------------------------------------------------


def _delegates(text: str, name: str) -> Iterator[Delegated]:
    """What delegates and compilers refuse, block by block."""
    refused: dict[str, dict[str, str]] = {}
    indexes: dict[str, dict[int, str]] = {}
    listing = ""
    for number, line in _numbered(text):
        where = f"{name} line {number}"
        if match := _GPU.search(line):
            listing = f"{match.group(1).lower()}-delegate"
        elif match := _SHARE.search(line):
            accepted, rest = (_number(digits, where) for digits in match.groups())
            device = listing or "gpu-delegate"
            yield Delegated(device, where, accepted, accepted + rest, refused.pop(device, {}))
            listing = ""
        elif match := _DELEGATE.search(line):
            refused.setdefault(f"{match.group(2).lower()}-delegate", {})[match.group(1)] = match.group(3)
        elif match := _COMPILER.search(line):
            indexes.setdefault(match.group(3).lower(), {})[_number(match.group(1), where)] = match.group(2)
        elif match := _SELECTED.search(line):
            device = next(iter(indexes), "litert")
            accepted, total = (_number(digits, where) for digits in match.groups())
            yield Delegated(device, where, accepted, total, {}, indexes.pop(device, {}))
        elif match := _REPLACED.search(line):
            device = match.group(3)
            key = "nnapi-delegate" if "Nnapi" in device else device
            accepted, total = (_number(digits, where) for digits in match.groups()[:2])
            yield Delegated(device, where, accepted, total, refused.pop(key, {}))
        elif listing and (match := _OPERATOR.match(line)):
            refused.setdefault(listing, {})[match.group(1)] = match.group(2)
    yield from (Delegated(device, name, refused=words) for device, words in refused.items())
    yield from (Delegated(device, name, indexes=found) for device, found in indexes.items())


# -- nnbridge's own ------------------------------------------------------------------------------------------------------


def _json(path: Path, text: str) -> Log | None:
    """A plan or a trace; None if the text is neither."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        content = json.loads(text)
    except RecursionError:
        return None
    except ValueError:
        # Not one object: one in each line.
        return Log(tuple(_trace(path, _lines(text))))
    if "operations" in content:
        return Log((_plan(path, checked(content, _PLAN, str(path))),))
    return Log(tuple(_trace(path, [(1, content)]))) if "answers" in content else None


def _plan(path: Path, content: Mapping[str, Any]) -> Logged:
    operations = [o for o in content["operations"] if o["source"] == 0]
    types, answers = (tuple(o["type"] for o in operations), tuple(map(_planned, operations)))
    return Logged(types, answers, path.name, content.get("model", ""))


def _planned(operation: Mapping[str, Any]) -> dict[str, bool]:
    """Device → whether it supports an operation of a plan."""
    accepted = (Why.PERFORMANCE.value, Why.FALLBACK.value)
    others = {reason["device"]: reason.get("kind") in accepted for reason in operation["reasons"]}
    return {**others, operation["device"]: True} if operation["place"] == "device" else others


def _lines(text: str) -> Iterator[tuple[int, object]]:
    """The JSON of each line that is some, and its number."""
    for number, line in _numbered(text):
        with suppress(ValueError, RecursionError):
            yield number, json.loads(line)


def _trace(path: Path, calls: Iterable[tuple[int, object]]) -> Iterator[Logged]:
    """Plans of compilations whose model the trace saved."""
    for number, call in calls:
        if isinstance(call, dict) and "answers" in call:
            answers = checked(call, _CALL, f"{path} line {number}")["answers"]
            types, devices = (tuple(a["type"] for a in answers), tuple(a["devices"] for a in answers))
            where = f"{path.name} line {number}"
            yield Logged(types, devices, where, _beside(path, call.get("saved", ""), where))


def _beside(path: Path, name: str, where: str) -> str:
    """The path of a file beside the trace; a trace names no file anywhere else."""
    if name == ".." or (name and name != Path(name).name) or "\0" in name:
        raise InputError(Reason("the name of a file beside the trace", ascii(name[:_SHOWN]), operand=f"{where}.saved"))
    return str(path.with_name(name)) if name else ""


def _cases(path: Path) -> Iterator[Logged]:
    """Models with answers, as `nnbridge devices ask` has them: ``{"model": …, "supported": true}``, or a list of answers."""
    for question in read_questions(path):
        said, device = question.data.get("supported"), str(question.data.get("device", "device"))
        main = question.model.main
        listed = said if isinstance(said, list) else [said] * len(main.operations)
        if len(listed) != len(main.operations) or not all(isinstance(answer, bool) for answer in listed):
            rule = f"supported: true, false, or a list of {len(main.operations)}"
            raise InputError(Reason(rule, str(said), operand=f"{path} line {question.line}"))
        names = tuple(question.model.operation_name(o) for o in main.operations)
        answers = tuple({device: bool(answer)} for answer in listed)
        yield Logged(names, answers, f"{path.name} line {question.line}", model=question.model)
