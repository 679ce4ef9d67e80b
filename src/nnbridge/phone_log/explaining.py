"""A phone's log, line by line: the rule that a line reports, the operators of the file that it is about, what to do next."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Any

from nnbridge.converters.delegation import FAILS_BUILDING, taken
from nnbridge.converters.structure import FileGraph
from nnbridge.errors import InputError, NnapiError, Reason, RefusalError, Stage, counted
from nnbridge.file import ModelFile
from nnbridge.log_lines.patterns import DELEGATE_NAME, LinePattern, Writer
from nnbridge.log_lines.reader import MAX_LINE, LogLine, ReadLine, decoded, read_lines
from nnbridge.log_lines.validation import OPERATIONS_OF_FILE
from nnbridge.phone_log.parts import HandedPart, Key, building_and_running_failures, every_part, handed_parts, tflite_verdict
from nnbridge.plan import Planned, draft
from nnbridge.records import dataclass
from nnbridge.target import Target
from nnbridge.types import operation_name

MAX_EXPLAINED = 50_000
"""Lines of one log that are explained."""
_PARTITION_NAME = re.compile(r"[A-Za-z]+_\d+_\d+$")
"""A node that a provider made of a partition: its name, the model's hash, a number."""
_SHOWN = 200
"""Characters of a line that are repeated."""
_MOST_OPERATORS = 8
"""Operators that are named where a line may be about several."""
_OWN = "nnbridge: "
_NAMED = re.compile(r"\b(?:operation|Operation) ([A-Z][A-Z0-9_]{2,})\b")
_SOURCE_FILE = re.compile(r"(\w+)\.cpp$")
_DIGITS = re.compile(r"-?\d{1,9}")


@dataclass(frozen=True, slots=True)
class NamedOperator:
    """An operator of the file."""

    subgraph: int
    index: int
    operator: str

    def __str__(self) -> str:
        place = f" of subgraph {self.subgraph}" if self.subgraph else ""
        return f"operator {self.index} {self.operator}{place}"


@dataclass(frozen=True, slots=True)
class ExplainedLine:
    """A line of a log that has a pattern."""

    number: int
    text: str
    """The message, without its end if it is long."""
    pattern: str
    """The name of its pattern in :data:`nnbridge.log_lines.patterns.PATTERNS`."""
    writer: str
    says: str
    """The rule or event that such lines report."""
    source: str
    operators: tuple[NamedOperator, ...] = ()
    certain: bool = True
    """False where the line may be about any of the operators."""
    rule: str = ""
    """What the plan of this file has on it: the rule that is broken, and what was found."""
    next: str = ""
    cut: bool = False
    times: str = "1"

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        operators = [{"subgraph": o.subgraph, "index": o.index, "operator": o.operator} for o in self.operators]
        fields = {name: getattr(self, name) for name in self.__slots__}
        return {"line": fields.pop("number"), **fields, "operators": operators, "times": int(self.times[:9])}


@dataclass(frozen=True)
class LogExplanation:
    """A log explained for a file."""

    model: str
    log: str
    lines: tuple[ExplainedLine, ...]
    total: int
    """Lines that are not empty."""
    unmatched: tuple[tuple[int, int], ...]
    """First and last line of each stretch that no pattern has."""
    missing: int
    """How many lines these are."""
    own: int
    """Lines that nnbridge wrote."""
    plan: str
    """The plan's first sentence."""

    @property
    def sentence(self) -> str:
        """All of it in one sentence."""
        named = sum(bool(one.operators) for one in self.lines)
        text = f"{counted(len(self.lines), 'line')} of {self.total:,} explained, {named:,} with operators of {self.model}"
        text += f"; {self.own:,} of nnbridge's own" if self.own else ""
        return f"{text}; {counted(self.missing, 'line')} of no known form"

    def as_dict(self) -> dict[str, Any]:
        """The object that ``nnbridge plan --explain-log --json`` prints."""
        counts = {"lines": self.total, "explained": len(self.lines), "own": self.own, "unmatched": self.missing}
        return {
            "model": self.model,
            "log": self.log,
            "sentence": self.sentence,
            "plan": self.plan,
            "counts": counts,
            "explained": [one.as_dict() for one in self.lines],
            "unmatched": [list(stretch) for stretch in self.unmatched],
        }


def explain_log(file: ModelFile, target: Target, content: bytes, name: str = "log") -> LogExplanation:
    """Explain each line of a log for a file.

    ``target``: the phone, for what the plan says of each operator. InputError for a log that is too long, or has more lines
    of NNAPI than are explained; ConversionError for what is wrong with the file.
    """
    found: list[ReadLine] = []
    missing: list[LogLine] = []
    total = own = 0
    for read in read_lines(decoded(content, name)):
        total += read.lines
        if read.line.text.startswith(_OWN):
            own += 1
        elif read.pattern is None:
            missing.append(replace(read.line, text=""))
        else:
            found.append(read)
            if len(found) > MAX_EXPLAINED:
                rule = f"a log with at most {MAX_EXPLAINED:,} lines of NNAPI (grep for the part that matters)"
                raise InputError(Reason(rule, "more", operand=name))
    facts = PlanFacts(_planned(file, target))
    lines = tuple(_explained(found, facts, name))
    stretches = tuple(_stretches(line.number for line in missing))
    return LogExplanation(str(file.path), name, lines, total, stretches, len(missing), own, facts.sentence)


def _planned(file: ModelFile, target: Target) -> Planned:
    """The plan as far as it comes."""
    planned = draft(file, target.with_(kernels="reference"))
    try:
        return planned.finish(prepare=False)
    except NnapiError:
        return planned


def _stretches(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    first, last = 0, -1
    for number in numbers:
        if number != last + 1:
            if first:
                yield first, last
            first = number
        last = number
    if first:
        yield first, last


# -- the file ------------------------------------------------------------------------------------------------------------


class PlanFacts:
    """The facts that lines are compared with: the operators, tensors and NNAPI models of a file, and why operators are
    refused."""

    def __init__(self, planned: Planned) -> None:
        self.planned = planned
        self.file = planned.file

    @cached_property
    def sentence(self) -> str:
        """The plan's first sentence; empty for a plan that failed."""
        try:
            return self.planned.summary.sentence
        except RefusalError:
            return ""

    @cached_property
    def graphs(self) -> Mapping[int, FileGraph]:
        """The file's graphs."""
        return {graph.number: graph for graph in self.file.graphs}

    @cached_property
    def operators(self) -> Mapping[Key, NamedOperator]:
        """Every operator by subgraph and index."""
        return {
            (number, one.index): NamedOperator(number, one.index, one.operator)
            for number, graph in self.graphs.items()
            for one in graph.operators
        }

    @cached_property
    def versions(self) -> Mapping[Key, int]:
        """The versions of a TFLite file's operators."""
        try:
            graph = self.file.source_graph
        except RefusalError:
            return {}
        return {(graph.subgraph, one.index): one.version for one in graph.operators}

    @cached_property
    def parts(self) -> tuple[HandedPart, ...]:
        """NNAPI models that the file may become: those of this plan, and those of a phone that refuses nothing."""
        try:
            mine = handed_parts(self.planned.model, tflite_verdict(self.planned))
        except RefusalError:
            mine = ()
        return tuple(dict.fromkeys((*mine, *every_part(self.file))))

    @cached_property
    def by_type(self) -> Mapping[str, tuple[Key, ...]]:
        """NNAPI operation → operators of the file that become one."""
        found: dict[str, dict[Key, None]] = {}
        for part in self.parts:
            for kind, key in zip(part.types, part.keys, strict=True):
                found.setdefault(kind, {})[key] = None
        return {kind: tuple(sorted(keys)) for kind, keys in found.items()}

    @cached_property
    def nodes_by_name(self) -> Mapping[str, Key]:
        """Nodes by their own names in an ONNX file."""
        every = ((graph.number, one) for graph in self.graphs.values() for one in graph.operators)
        return {one.name: (number, one.index) for number, one in every if one.name}

    @cached_property
    def by_client(self) -> Mapping[Key, str]:
        """The reasons why operators are not handed over, by the delegate's or provider's rules."""
        left = {(0, index) for index in self.planned.left or ()}
        refused = (one for one in self.planned.mapped if one.reasons and one.key not in left)
        return {one.key: "; ".join(map(_words, one.reasons)) for one in refused}

    @cached_property
    def by_device(self) -> Mapping[Key, str]:
        """The operators that the plan's drivers refuse of those that NNAPI gets, and those beyond the limit on partitions."""
        left = {(0, index): f"{self.devices} {_words(reason)}" for index, reason in (self.planned.left or {}).items()}
        return {**self._refused, **left}

    @property
    def devices(self) -> str:
        """The names of the plan's drivers."""
        return ", ".join(device.name for device in self.planned.drivers)

    @cached_property
    def _refused(self) -> Mapping[Key, str]:
        """The operations that the plan's drivers refuse of those that NNAPI gets."""
        drivers = {device.name for device in self.planned.drivers}
        main = self.planned.model.main
        found: dict[Key, str] = {}
        for placement in self.planned.compilation.placements:
            source = main.operations[placement.operation].source
            key = (0, placement.operation) if source is None else source.key
            whys = [f"{a.device} {_words(a.reason)}" for a in placement.answers if a.reason and a.device in drivers]
            if whys:
                found.setdefault(key, "; ".join(whys))
        return found

    @cached_property
    def failures(self) -> Mapping[Key, tuple[Stage, str]]:
        """The operators at which the phone fails after the delegate took them, and why."""
        found = building_and_running_failures(self.planned)
        return {key: (reason.stage, _words(reason)) for key, reason in found.items() if reason.stage is not None}

    @cached_property
    def types(self) -> Mapping[str, tuple[Key, ...]]:
        """Found type → the operators that NNAPI refuses for it."""
        found: dict[str, list[Key]] = {}
        for key, reason in building_and_running_failures(self.planned).items():
            found.setdefault(reason.found, []).append(key)
        return {name: tuple(keys) for name, keys in found.items()}

    @cached_property
    def dynamic(self) -> tuple[Key | None, str]:
        """The first operator whose output's dimensions only a run knows, and the plan's words."""
        delegation = self.file.importer.delegation()
        reason = None if delegation is None else delegation.dynamic()
        return (None, "") if delegation is None or reason is None else (delegation.dynamic_operator(), reason.found)

    @cached_property
    def by_name(self) -> Mapping[str, tuple[Key, ...]]:
        """An operator of the file's format → those of its type; ONNX's without their domain too."""
        found: dict[str, list[Key]] = {}
        for key, one in self.operators.items():
            for name in {one.operator, one.operator.rpartition(".")[2]}:
                found.setdefault(name, []).append(key)
        return {name: tuple(keys) for name, keys in found.items()}

    @cached_property
    def around(self) -> Mapping[str, tuple[Key, ...]]:
        """The name of a tensor → the operators that write and read it."""
        found: dict[str, dict[Key, None]] = {}
        for graph in self.graphs.values():
            for one in graph.operators if graph.tensors else ():
                for i in (*one.outputs, *one.inputs):
                    found.setdefault(graph.tensors[i], {})[graph.number, one.index] = None
        return {name: tuple(sorted(keys)) for name, keys in found.items()}

    def writer(self, tensor: int, subgraph: int = 0) -> tuple[Key, ...]:
        """The operator that writes a tensor."""
        graph = self.graphs.get(subgraph)
        return tuple((subgraph, one.index) for one in graph.operators if tensor in one.outputs) if graph else ()

    def of_node(self, node: int, named: str) -> tuple[Key, ...]:
        """The operators of a node of an interpreter; one that a delegate added runs those of its partition."""
        main = self.graphs.get(0)
        count = len(main.operators) if main else 0
        if named == DELEGATE_NAME or node >= count:
            groups = self._groups
            return groups[node - count] if 0 <= node - count < len(groups) else ()
        known = self.operators.get((0, node))
        matches = known is not None and (not named or named in (known.operator, known.operator.rpartition(":")[2]))
        if matches:
            return ((0, node),)
        # A node of a body, or of another file.
        return tuple(key for key in self.by_name.get(named, ()) if key[1] == node)

    @cached_property
    def _groups(self) -> tuple[tuple[Key, ...], ...]:
        verdict = tflite_verdict(self.planned)
        graphs = () if verdict is None else verdict.graphs
        return tuple(tuple((graph.subgraph, node) for node in group) for graph in graphs for group in graph.groups)


def _words(reason: Reason) -> str:
    found = f", found {reason.found}" if reason.found else ""
    place = f"{reason.operand}: " if reason.operand else ""
    return f"{place}requires {reason.rule}{found}"


# -- the log -------------------------------------------------------------------------------------------------------------


@dataclass
class _LoggedModel:
    """The operations of one NNAPI model, as a thread logs them."""

    types: dict[int, str] = field(default_factory=dict)
    """By index; without indexes in the log, in order."""
    lines: list[tuple[int, int]] = field(default_factory=list)
    """Position of a line among all, and the operation that it is about."""


def _logged_models(lines: Sequence[ReadLine]) -> Iterator[_LoggedModel]:
    """The NNAPI models of a log: the devices' refusals of an operation come before its placement."""
    open_models: dict[str, _LoggedModel] = {}
    for position, read in enumerate(lines):
        assert read.pattern is not None
        kind, thread = read.pattern.name, read.line.thread
        model = open_models.setdefault(thread, _LoggedModel())
        if kind in ("device-refused", "placed") and "operation" in read.fields:
            stated = read.fields.get("index")
            index = int(stated[:9]) if stated else len(model.types)
            if index in model.types and (kind == "placed" or model.types[index] != read.fields["operation"]):
                yield open_models.pop(thread)
                model = open_models.setdefault(thread, _LoggedModel())
                index = int(stated[:9]) if stated else 0
            model.lines.append((position, index))
            if kind == "placed":
                model.types[index] = read.fields["operation"]
        elif read.pattern.ends_model and model.lines:
            yield open_models.pop(thread)
    yield from open_models.values()


def _places(lines: Sequence[ReadLine], facts: PlanFacts) -> Mapping[int, Key]:
    """The operator of each line of ExecutionPlan, where the log's operations are those of a part of the file."""
    found: dict[int, Key] = {}
    used: list[HandedPart] = []
    for model in _logged_models(lines):
        types = tuple(model.types[i] for i in sorted(model.types))
        fitting = [part for part in facts.parts if part.types == types] or [p for p in facts.parts if _fits(p, model.types)]
        fitting = [part for part in fitting if part not in used] or fitting
        different = {tuple(part.keys[i] for i in sorted(model.types) if i < len(part.keys)) for part in fitting}
        if not fitting or (len(different) > 1 and fitting[0].types != types):
            continue
        used.append(fitting[0])
        found.update({position: fitting[0].keys[i] for position, i in model.lines if i < len(fitting[0].keys)})
    return found


def _fits(part: HandedPart, types: Mapping[int, str]) -> bool:
    """True if a log that lacks lines may be of this part."""
    return bool(types) and all(i < len(part.types) and part.types[i] == kind for i, kind in types.items())


def _explained(lines: Sequence[ReadLine], facts: PlanFacts, log: str) -> Iterator[ExplainedLine]:
    places = _places(lines, facts)
    counts: dict[tuple[str, str], int] = {}
    for position, read in enumerate(lines):
        assert read.pattern is not None
        operation = read.fields.get("operation", "")
        seen = counts.get((read.pattern.name, operation), 0)
        counts[read.pattern.name, operation] = seen + 1
        after = next(iter(lines[position + 1 : position + 2]), None)
        keys, rule = _about(_AboutLine(read.pattern, read.fields, places.get(position), seen, after), facts)
        operators = [facts.operators[key] for key in keys if key in facts.operators]
        pattern = read.pattern
        yield ExplainedLine(
            read.line.number,
            _message(read),
            pattern.name,
            str(pattern.writer),
            pattern.says,
            pattern.source,
            tuple(operators[:_MOST_OPERATORS]),
            len(operators) <= 1 or pattern.ends_model or "node" in read.fields,
            rule,
            _next(_remedy(read, facts), facts.file.path, log),
            read.cut,
            read.line.times,
        )


def _message(read: ReadLine) -> str:
    """The line from where its form begins."""
    text, pattern = read.line.text[:MAX_LINE], read.pattern
    assert pattern is not None
    starts = [text.find(form.head) for form in pattern.forms if form.head]
    start = min((start for start in starts if start >= 0), default=0)
    return text[start : start + _SHOWN].strip()


def _remedy(read: ReadLine, facts: PlanFacts) -> str:
    """The advice for a driver: where it has a profile in this plan, no other profile is needed."""
    assert read.pattern is not None
    if read.pattern.name == "device-refused" and read.fields.get("device") in [driver.name for driver in facts.planned.drivers]:
        return f"nnbridge plan FILE --device {quote(read.fields['device'])} --advice has what to change"
    return read.pattern.next


def _next(remedy: str, model: Path, log: str) -> str:
    return re.sub(r"\bFILE\b", lambda _: quote(str(model)), re.sub(r"\bLOG\b", lambda _: quote(log), remedy))


_Found = tuple[tuple[Key, ...], str]
"""The operators that a line may be about, and what the plan has on them."""


@dataclass(frozen=True, slots=True)
class _AboutLine:
    """A line, and what the lines before it leave known."""

    pattern: LinePattern
    fields: Mapping[str, str]
    place: Key | None = None
    """The operator of a line of ExecutionPlan."""
    seen: int = 0
    """How many lines of this pattern and operator come before."""
    after: ReadLine | None = None
    """The next line that has a pattern."""

    def get(self, name: str) -> str:
        """A field; empty where the line does not have it."""
        return self.fields.get(name, "")


def _about(line: _AboutLine, facts: PlanFacts) -> _Found:
    others = _of_message
    if line.pattern.writer is Writer.ORT:
        others = _of_session if line.pattern.level == "E" else _of_provider
    return _ABOUT.get(line.pattern.name, others)(line, facts)


def _of_message(line: _AboutLine, facts: PlanFacts) -> _Found:
    """A message of NNAPI's that names an operation, or the source file of one."""
    names = _operations_of(line)
    keys = tuple(key for name in names for key in facts.by_type.get(name) or _prefixed(facts, name) or _unbuilt(facts, name))
    if names and not keys:
        return (), f"no operator of the file becomes {' or '.join(names[:3])}"
    failing = tuple(key for key in keys if key in facts.failures)
    return failing or keys, _failing(facts, failing)


def _of_operation(line: _AboutLine, facts: PlanFacts) -> _Found:
    """An operation that ExecutionPlan names."""
    name, device = line.get("operation"), line.get("device")
    keys = (line.place,) if line.place is not None else facts.by_type.get(name) or _prefixed(facts, name)
    if not keys or line.pattern.name == "placed":
        return keys, "" if keys else f"no operator of the file becomes {name}: the log is about another file"
    if device not in [driver.name for driver in facts.planned.drivers]:
        return keys, f"{device or 'the driver'} is not a device of this plan; --device with its profile names the rule"
    why = "; ".join(dict.fromkeys(facts.by_device[key] for key in keys if key in facts.by_device))
    return keys, why or f"this plan's {device} supports it: the phone's driver differs from the profile"


def _of_node(line: _AboutLine, facts: PlanFacts) -> _Found:
    keys = facts.of_node(_number(line.get("node")), line.get("operator"))
    return keys, _failing(facts, keys)


def _before_node(line: _AboutLine, facts: PlanFacts) -> _Found:
    """The node that the next line names."""
    after = line.after
    known = after is not None and after.pattern is not None and after.pattern.name == "node-failed"
    return (
        (facts.of_node(_number(after.fields.get("node", "")), after.fields.get("operator", "")), "")
        if after and known
        else ((), "")
    )


def _of_flex(line: _AboutLine, facts: PlanFacts) -> _Found:
    keys = tuple(sorted(key for name, several in facts.by_name.items() if name.startswith("Flex") for key in several))
    return keys, "" if keys else "the file has no operator of TensorFlow's: the log is about another file"


def _of_custom(line: _AboutLine, facts: PlanFacts) -> _Found:
    name = line.get("operator")
    keys = facts.by_name.get(name, ())
    return keys, "" if keys else f"the file has no operator {name[:_SHOWN]!r}"


def _of_custom_name(line: _AboutLine, facts: PlanFacts) -> _Found:
    name = line.get("custom")
    keys = facts.by_name.get(name) or facts.by_name.get(f"CUSTOM:{name}", ())
    return keys, "" if keys else f"the file has no operator {name!r}"


def _of_vendor(line: _AboutLine, facts: PlanFacts) -> _Found:
    """An operation under the name that a vendor's HAL has for it."""
    name = line.get("operation").replace("CONVOLUTION", "CONV")
    keys = facts.by_type.get(name) or _prefixed(facts, name)
    return keys, "" if keys else f"no operator of the file becomes {name}"


def _of_running(line: _AboutLine, facts: PlanFacts) -> _Found:
    """A node by its type, or what a provider made one node of."""
    kind, said = line.get("kind"), f'"{line.get("rest")[:_SHOWN]}"'
    if _PARTITION_NAME.match(kind):
        handed = tuple(one.key for one in facts.planned.mapped if taken(one)) if kind.upper().startswith("NNAPI") else ()
        return handed, said
    named = facts.nodes_by_name.get(line.get("tensor_name"))
    keys = facts.by_name.get(kind, ()) if named is None else (named,)
    return keys, said if keys else f"the file has no {kind[:_SHOWN]}"


def _of_code(line: _AboutLine, facts: PlanFacts) -> _Found:
    delegation = facts.file.importer.delegation()
    codes = () if delegation is None else delegation.codes(0)
    return tuple((0, i) for i, code in enumerate(codes) if code == _number(line.get("builtin"))), ""


def _of_tensor(line: _AboutLine, facts: PlanFacts) -> _Found:
    keys = facts.around.get(line.get("tensor_name"), ())
    return keys, _failing(facts, keys) if keys else f"the file has no tensor {line.get('tensor_name')[:_SHOWN]!r}"


def _of_type(line: _AboutLine, facts: PlanFacts) -> _Found:
    keys = facts.types.get(line.get("found_type"), ())
    return keys, _failing(facts, keys) or "by this plan NNAPI refuses no operator for this type: the log is about another file"


def _at_building(line: _AboutLine, facts: PlanFacts) -> _Found:
    return _at_failure(facts, Stage.BUILDING)


def _at_run(line: _AboutLine, facts: PlanFacts) -> _Found:
    return _at_failure(facts, Stage.RUNNING)


def _dynamic(line: _AboutLine, facts: PlanFacts) -> _Found:
    tensor = _number(line.get("tensor"))
    first, said = facts.dynamic
    mine = () if first is None else (first,)
    writers = facts.writer(tensor) if tensor >= 0 else ()
    if writers and writers != mine:
        now = f"this plan's TFLite stops at {said}" if said else "this plan's TFLite computes it early: a newer release helps"
        return writers, f"tensor {tensor} has dimensions that are known only at run time; {now}"
    return mine, said or "no tensor is dynamic in this plan: the log is about another file, or inputs were resized"


def _of_session(line: _AboutLine, facts: PlanFacts) -> _Found:
    """An error that leaves the program without a session: the first node that the provider fails to build."""
    named, rule = _of_provider(line, facts)
    failing = [key for key, (stage, _) in facts.failures.items() if stage in FAILS_BUILDING and (not named or key in named)][:1]
    return (tuple(failing), facts.failures[failing[0]][1]) if failing else (named, rule)


def _of_provider(line: _AboutLine, facts: PlanFacts) -> _Found:
    name, kind, index = line.get("name"), line.get("kind"), _number(line.get("node"))
    named = facts.nodes_by_name.get(name) if name else None
    stated = facts.operators.get((0, index))
    if named is None and not name and stated is not None and stated.operator == kind:
        named = (0, index)
    if named is not None:
        why = facts.by_client.get(named, "")
        if line.get("supported") == "1":
            return (named,), f"this plan differs: {why}" if why else ""
        return (named,), why or "this plan's provider accepts it: the phone's ONNX Runtime is of another release"
    if line.get("operation_code"):
        return facts.by_type.get(operation_name(_number(line.get("operation_code"))), ()), ""
    if line.get("tensor_name"):
        keys = facts.around.get(line.get("tensor_name"), ())
    else:
        wanted = _KINDS.get(line.pattern.name) or ((kind,) if kind else ())
        keys = tuple(sorted(key for name in wanted for key in facts.by_name.get(name, ())))
        keys = tuple(key for key in keys if key in facts.by_client) or keys
    return keys, _refusals(facts.by_client, keys)


_KINDS = {"ort-split": ("Split",), "ort-rank-2": ("MatMul", "Gemm"), "ort-known-b": ("MatMul", "Gemm")}
"""The operators that lines without a name are about."""


def _of_operator(line: _AboutLine, facts: PlanFacts) -> _Found:
    """An operator by its type and version only: the lines of a log are in the file's order, one for each that is refused."""
    name, words, version = line.get("operation"), line.get("rest")[:_SHOWN], _number(line.get("version"))
    keys = facts.by_name.get(name, ())
    keys = tuple(key for key in keys if facts.versions.get(key, version) == version) or keys
    said = f'"{words}"' if words else ""
    if line.pattern.name != "delegate-refused" or not keys:
        return keys, said if keys else f"the file has no {name}"
    refused = tuple(key for key in keys if key in facts.by_client)
    keys = refused[line.seen : line.seen + 1] or refused or keys
    mine = _refusals(facts.by_client, keys)
    return keys, f"{said}; this plan: {mine or 'it is handed over; the phone has another release of the delegate'}"


def _at_failure(facts: PlanFacts, stage: Stage) -> _Found:
    """The first operator at which this plan fails, too."""
    keys = [key for key, (where, _) in facts.failures.items() if where is stage][:1]
    if keys:
        return tuple(keys), facts.failures[keys[0]][1]
    what = (
        "builds every model of the file" if stage is Stage.BUILDING else "has no operation that NNAPI's own kernels fail to run"
    )
    return (), f"this plan {what}: the phone has another release or driver, or got another file"


def _failing(facts: PlanFacts, keys: Iterable[Key]) -> str:
    return _refusals({key: why for key, (_, why) in facts.failures.items()}, keys)


def _refusals(whys: Mapping[Key, str], keys: Iterable[Key]) -> str:
    """Each reason once, three at most."""
    return "; ".join(list(dict.fromkeys(whys[key] for key in keys if key in whys))[:3])


def _operations_of(line: _AboutLine) -> tuple[str, ...]:
    """The NNAPI operation that a message names, or those that its source file checks."""
    if line.get("operation"):
        return (line.get("operation"),)
    if named := _NAMED.search(line.get("rest")):
        return (named[1],)
    source = _SOURCE_FILE.search(line.get("file"))
    return (
        ()
        if source is None
        else OPERATIONS_OF_FILE.get(source[1]) or (re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", source[1]).upper(),)
    )


def _prefixed(facts: PlanFacts, name: str) -> tuple[Key, ...]:
    """Operators of operations whose name begins so: the line may be cut within it, or name a family's source file."""
    plain = name.replace("_", "")
    found = [keys for kind, keys in facts.by_type.items() if len(plain) > 2 and kind.replace("_", "").startswith(plain)]
    return tuple(sorted({key for keys in found for key in keys}))


def _unbuilt(facts: PlanFacts, name: str) -> tuple[Key, ...]:
    """Operators of a TFLite file that are called as NNAPI's operation, and are never built."""
    return facts.by_name.get(name, ())


def _number(text: str) -> int:
    return int(text) if _DIGITS.fullmatch(text) else -1


_ABOUT: Mapping[str, Callable[[_AboutLine, PlanFacts], _Found]] = {
    **dict.fromkeys(("device-refused", "placed"), _of_operation),
    "dynamic-graph": _dynamic,
    **dict.fromkeys(("node-failed", "litert-refused"), _of_node),
    **dict.fromkeys(("delegate-refused", "gpu-operator", "unresolved-builtin"), _of_operator),
    "unresolved-custom": _of_custom,
    "select-ops": _of_flex,
    "kernel-condition": _before_node,
    **dict.fromkeys(("old-not-delegated", "old-gpu"), _of_code),
    "gpu-custom": _of_custom_name,
    "gpu-failed-operator": _of_operator,
    "gpu-failed": _before_node,
    "hta-refused": _of_vendor,
    "ort-run-failed": _of_running,
    "api-error-tensor": _of_tensor,
    "operand-type": _of_type,
    **dict.fromkeys(("api-error-build", "restored", "api-error", "old-failure", "invalid-model"), _at_building),
    **dict.fromkeys(("api-error-run", "run-failed"), _at_run),
}
"""The name of a pattern → how the operators of its lines are found."""
