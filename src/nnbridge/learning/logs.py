"""Logs as answers: Android's ExecutionPlan, TFLite's delegates, LiteRT's compilers, and nnbridge's plans, traces and cases.

What a line is, :mod:`nnbridge.log_lines` says; here is what lines say of devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from nnbridge.budget import parse_json
from nnbridge.conformance.questions import read_questions
from nnbridge.errors import InputError, Reason, Why
from nnbridge.foreign import ReadingBudget, Shape, checked
from nnbridge.log_lines.reader import ReadLine, numbered, read_lines, read_text
from nnbridge.model import Model
from nnbridge.records import dataclass

CPU = "nnapi-reference"
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
    """A delegate's or compiler's statement on the operators of one file."""

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
        text = read_text(path)
        found = _json(path, text) or _lines_of(text, path.name)
    _check_names(found, path)
    if not found.models and not found.delegated:
        rule = "lines of ExecutionPlan, TFLite or LiteRT, `plan --json`, NNBRIDGE_TRACE, or models with answers"
        raise InputError(Reason(rule, "none", file=str(path)))
    return found


def _check_names(log: Log, path: Path) -> None:
    """InputError for names that no device and no file has, and for more devices than any phone."""
    devices = {device for logged in log.models for answer in logged.answers for device in answer}
    devices.update(part.device for part in log.delegated)
    if len(devices) > MAX_DEVICES:
        raise InputError(Reason(f"a log of at most {MAX_DEVICES} devices", f"{len(devices):,}", file=str(path)))
    different = len({logged.operations for logged in log.models if logged.model is None})
    if different > MAX_MODELS:
        raise InputError(Reason(f"a log of at most {MAX_MODELS:,} models", f"{different:,}", file=str(path)))
    if "" in devices:
        raise InputError(Reason("names of devices", "an empty one", file=str(path)))
    for name in (*devices, *(Path(logged.file).name for logged in log.models)):
        if len(name) > MAX_NAME or not name.isprintable():
            rule = f"names of devices and files of at most {MAX_NAME} printable characters"
            raise InputError(Reason(rule, ascii(name[:_SHOWN]), file=str(path)))


def _number(digits: str, where: str) -> int:
    if len(digits) > _DIGITS:
        raise InputError(Reason(f"a number of at most {_DIGITS} digits", f"one of {len(digits):,}", operand=where))
    return int(digits)


def _lines_of(text: str, name: str) -> Log:
    """The meaning of programs' lines."""
    lines = [line for line in read_lines(text) if line.pattern is not None and not line.cut]
    return Log(tuple(_android(lines, name)), tuple(_delegates(lines, name)))


# -- Android -------------------------------------------------------------------------------------------------------------


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


def _android(lines: Iterable[ReadLine], name: str) -> Iterator[Logged]:
    threads: dict[str, _Thread] = {}
    found: list[Logged] = []
    repeated = ReadingBudget(MAX_REPEATED, f"at most {MAX_REPEATED:,} operations whose lines chatty left out", name)
    for read in lines:
        assert read.pattern is not None
        number, fields = read.line.number, read.fields
        thread = threads.setdefault(read.line.thread, _Thread())
        if read.pattern.name == "device-refused":
            thread.refused[fields["device"]] = None
        elif read.pattern.name == "placed":
            count = _number(read.line.times, f"{name} line {number}")
            repeated.spend(count - 1, f" line {number}")
            for _ in range(count):
                thread.placed(fields["operation"], fields.get("device", ""), number)
        elif read.pattern.ends_model:
            if "operation" in fields:
                thread.placed(fields["operation"], "", number)
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


def _delegates(lines: Iterable[ReadLine], name: str) -> Iterator[Delegated]:
    """The refusals of delegates and compilers, block by block."""
    refused: dict[str, dict[str, str]] = {}
    indexes: dict[str, dict[int, str]] = {}
    listing = ""
    for read in lines:
        assert read.pattern is not None
        kind, fields, where = read.pattern.name, read.fields, f"{name} line {read.line.number}"
        if kind == "gpu-refusals":
            listing = _delegate(fields["kernel"])
        elif kind == "gpu-operator":
            refused.setdefault(listing, {})[fields["operation"]] = fields["rest"]
        elif kind == "gpu-share":
            accepted, rest = (_number(fields[key], where) for key in ("nodes", "left"))
            device = listing or "gpu-delegate"
            yield Delegated(device, where, accepted, accepted + rest, refused.pop(device, {}))
            listing = ""
        elif kind == "delegate-refused":
            refused.setdefault(_delegate(fields.get("kernel", "NNAPI")), {})[fields["operation"]] = fields["rest"]
        elif kind == "litert-refused":
            indexes.setdefault(fields["kernel"].lower(), {})[_number(fields["node"], where)] = fields["kind"]
        elif kind == "litert-selected":
            device = next(iter(indexes), "litert")
            accepted, total = (_number(fields[key], where) for key in ("nodes", "total"))
            yield Delegated(device, where, accepted, total, {}, indexes.pop(device, {}))
        elif kind == "replaced" and "total" in fields:
            device = fields["kernel"]
            key = "nnapi-delegate" if "Nnapi" in device else device
            accepted, total = (_number(fields[key], where) for key in ("nodes", "total"))
            yield Delegated(device, where, accepted, total, refused.pop(key, {}))
    yield from (Delegated(device, name, refused=words) for device, words in refused.items())
    yield from (Delegated(device, name, indexes=found) for device, found in indexes.items())


def _delegate(kernel: str) -> str:
    return f"{kernel.lower()}-delegate"


# -- nnbridge's own ------------------------------------------------------------------------------------------------------


def _json(path: Path, text: str) -> Log | None:
    """A plan or a trace; None if the text is neither."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        content = parse_json(text.encode(errors="surrogatepass"))
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
    for number, line in numbered(text):
        with suppress(ValueError, RecursionError):
            yield number, parse_json(line.encode(errors="surrogatepass"))


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
            raise InputError(Reason(rule, str(said), operand=f"line {question.line}", file=str(path)))
        names = tuple(question.model.operation_name(o) for o in main.operations)
        answers = tuple({device: bool(answer)} for answer in listed)
        yield Logged(names, answers, f"{path.name} line {question.line}", model=question.model)
