"""The lines that logcat would show on a phone for a plan, by the table of :mod:`nnbridge.log_lines`.

Lines of nnbridge's own, which no phone has, begin with ``nnbridge:``: the reason of each refusal, and what is not emulated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from nnbridge.converters.delegation import GraphVerdict, Refusal, refusal_of
from nnbridge.converters.inspection import ON_NNAPI, Mapped
from nnbridge.converters.mapping import MappingKind
from nnbridge.devices.host import HOST_NAME
from nnbridge.errors import Reason, RefusalError, Stage, Why
from nnbridge.log_lines.patterns import BY_NAME, DELEGATE_NAME
from nnbridge.log_lines.reader import read_lines
from nnbridge.log_lines.validation import COMPARED_AT, TYPE_CHECKS
from nnbridge.operations import definition
from nnbridge.phone_log.parts import (
    HandedPart,
    building_and_running_failures,
    handed_parts,
    stay,
    target_drivers,
    tflite_verdict,
)
from nnbridge.plan import Planned
from nnbridge.records import dataclass
from nnbridge.releases import NEWEST
from nnbridge.runtime.placement import Placement
from nnbridge.runtime.plan import INTERPRETER
from nnbridge.types import OperandCode, OperationCode

BAD_DATA, BAD_STATE = "ANEURALNETWORKS_BAD_DATA", "ANEURALNETWORKS_BAD_STATE"
_LINE_OF_OPERATION, _LINE_OF_COMPILATION, _LINE_OF_RUN = 1144, 4716, 5259
"""Where LiteRT's nnapi_delegate.cc adds operations, creates compilations and runs them."""
_CUSTOM = 32
"""The builtin code of custom operators."""
_FORM = "lines as `logcat -v tag` shows them, with debug.nn.vlog=compilation; those that begin with nnbridge: are nnbridge's own"


@dataclass(frozen=True, slots=True)
class PhoneLine:
    """A line; without a tag it is nnbridge's own."""

    text: str
    tag: str = ""
    level: str = ""

    def __str__(self) -> str:
        return f"{self.level}/{self.tag:<8}: {self.text}" if self.tag else f"nnbridge: {self.text}"


def phone_lines(planned: Planned) -> Iterator[PhoneLine]:
    """The lines while the app opens the file on the phone, in their order."""
    yield PhoneLine(_FORM)
    if planned.file.asked.tflite != NEWEST:
        yield PhoneLine(
            f"what is handed over is TFLite {planned.file.asked.tflite}'s; forms and line numbers are the newest release's"
        )
    if planned.bound:
        names = ", ".join(device.name for device in planned.bound)
        yield PhoneLine(f"{names}: sees the file before NNAPI, which logs nothing about it")
        return
    clients: Mapping[str, Callable[[Planned], Iterator[PhoneLine]]] = {"delegate": _tflite, "provider": _provider}
    try:
        yield from clients.get(planned.mapping, _nnapi)(planned)
    except RefusalError as error:  # of a plan that failed, whose own error is reported
        yield PhoneLine(f"the rest of the log is not emulated: {error}")


def line(pattern: str, **values: object) -> PhoneLine:
    """A line of a phone."""
    known = BY_NAME[pattern]
    return PhoneLine(known.format(**values), known.tag, known.level)


# -- TFLite --------------------------------------------------------------------------------------------------------------


def _tflite(planned: Planned) -> Iterator[PhoneLine]:
    verdict = tflite_verdict(planned)
    if verdict is None:
        yield from _nnapi(planned)
        return
    yield line("delegate-created")
    if verdict.stage is Stage.GRAPH and verdict.reason is not None:
        tensor = next((read.fields["tensor"] for read in read_lines(verdict.reason.says) if "tensor" in read.fields), "-1")
        yield line("dynamic-graph", tensor=tensor)
        yield PhoneLine(f"{verdict.reason.found}: the app's interpreter is not created")
        return
    if verdict.stage is Stage.BUILDING and verdict.reason is not None:
        yield from _fails(planned, verdict.reason)
        return
    parts = list(handed_parts(planned.model, verdict))
    for graph in verdict.graphs:
        yield from _graph(planned, graph, [parts.pop(0) for _ in graph.groups])
    yield from _left(planned)
    if any(stay(graph) for graph in verdict.graphs if graph.subgraph == 0):
        yield from _unknown_operators(planned)
        yield line("xnnpack-created")
        yield PhoneLine("XNNPACK's lines about its nodes are not emulated")


def _graph(planned: Planned, graph: GraphVerdict, parts: Sequence[HandedPart]) -> Iterator[PhoneLine]:
    delegation = planned.file.importer.delegation()
    handed = sorted(node for group in graph.groups for node in group)
    if not handed or delegation is None:
        return
    # Groups that stay alternate with those that are handed over.
    partitions = sum(len(delegation.preview(graph.subgraph, nodes)) for nodes in (handed, stay(graph)) if nodes)
    counts = {"nodes": len(handed), "total": graph.operators, "partitions": partitions}
    yield line("replaced", kernel=DELEGATE_NAME, subgraph=graph.subgraph, name=graph.name, **counts)
    for part in parts:
        if part.operations:
            yield from _compiled(planned, part)
        else:
            yield PhoneLine(f"a partition of subgraph {graph.subgraph}: ExecutionPlan's lines of bodies are not emulated")


def _fails(planned: Planned, reason: Reason) -> Iterator[PhoneLine]:
    """The model cannot be built. Devices are asked before nodes are replaced; without devices, the new node fails."""
    if not target_drivers(planned):
        yield PhoneLine('a line "Replacing … node(s)" comes before, with the nodes that the delegate accepts')
    place = " ".join(part for part in (reason.operation, reason.operand) if part)
    found = f", found {reason.found}" if reason.found else ""
    yield PhoneLine(f"building fails at {place}: NNAPI requires {reason.rule}{found}")
    if reason.says:  # TFLite's own words, before any call of NNAPI
        yield from (
            PhoneLine(reason.says, read.pattern.tag, read.pattern.level) for read in read_lines(reason.says) if read.pattern
        )
    else:
        failures = building_and_running_failures(planned)
        mine = next((why for key, why in failures.items() if reason.operation.startswith(f"operator {key[1]} ")), reason)
        yield from _validation(mine)
        yield line("api-error-build", code=BAD_DATA, line=_LINE_OF_OPERATION)
        if not target_drivers(planned):
            yield line("api-error", code=BAD_STATE, line=_LINE_OF_COMPILATION, action="creating NNAPI compilation")
            yield PhoneLine(f'a line "Node number N ({DELEGATE_NAME}) failed to prepare." names the node of the partition')
    yield line("restored")
    yield PhoneLine("the app's interpreter is not created")


def _validation(reason: Reason) -> Iterator[PhoneLine]:
    """NNAPI's own lines on an operand's type, of Android 13."""
    check = TYPE_CHECKS.get(reason.operation)
    known = definition(OperationCode[reason.operation]) if check is not None else None
    names = [one.name for one in known.signatures[0].inputs] if known is not None else []
    if check is None or reason.operand not in names or reason.found not in OperandCode.__members__:
        yield PhoneLine("E/ModelBuilder has a line of NNAPI's validation here, which is not emulated")
        return
    number = names.index(reason.operand)
    if not number:
        said = BY_NAME["unsupported-type"].forms[check.form].format({"operation": reason.operation})
        yield line("invalid-operation", file=check.file, line=check.unsupported, rest=said)
    elif check.inputs and reason.rule in OperandCode.__members__:
        file, _, at = COMPARED_AT.rpartition(":")
        values = {"side": "input", "side_again": "input", "operand": number}
        said = BY_NAME["operand-type"].format(found_type=reason.found, expected_type=reason.rule, **values)
        text = BY_NAME["check-failed"].format(file=file, line=at, rest=f"type == expectedTypes[i] {said}")
        yield PhoneLine(text, BY_NAME["operand-type"].tag, "E")
        yield line("invalid-operation", file=check.file, line=check.inputs, rest="validateInputTypes(context, inExpectedTypes) ")


def _left(planned: Planned) -> Iterator[PhoneLine]:
    """The reasons why operators stay, which no line of a release states."""
    names = {one.key: one.operator for one in planned.mapped}
    refused = {one.key: one.reasons for one in planned.mapped if one.mapping == MappingKind.HOST}
    by_device = planned.left or {}
    devices = ", ".join(device.name for device in planned.drivers)
    for key, reasons in refused.items():
        if reasons and reasons[0].stage is Stage.RUNNING:
            said = BY_NAME["api-error-run"].format(code="ANEURALNETWORKS_OP_FAILED", line=_LINE_OF_RUN)
            yield PhoneLine(
                f"operator {key[1]} {names[key]}{_of(key[0])}: a phone hands it over, and NNAPI's CPU fails to run it: "
                f'{_required(reasons[0])}; invoke() then fails with "{said}"'
            )
            continue
        why = by_device.get(key[1]) if key[0] == 0 else None
        who = devices if why is not None and why.kind is not Why.PARTITIONS else "TFLite's NNAPI delegate"
        text = _required(why) if why is not None else "; ".join(map(_required, reasons))
        yield PhoneLine(f"operator {key[1]} {names[key]}{_of(key[0])} stays with TFLite: {who} {text}")


def _unknown_operators(planned: Planned) -> Iterator[PhoneLine]:
    delegation = planned.file.importer.delegation()
    codes = () if delegation is None else delegation.codes(0)
    customs = (one.operator for one in planned.mapped if one.key in {(0, i) for i, code in enumerate(codes) if code == _CUSTOM})
    for name in dict.fromkeys(customs):
        said = BY_NAME["select-ops" if name.startswith("Flex") else "unresolved-custom"].format(operator=name)
        yield PhoneLine(f'an app whose TFLite has no kernel of {name} gets "{said}", and no interpreter')


def _of(subgraph: int) -> str:
    return f" of subgraph {subgraph}" if subgraph else ""


def _required(reason: Reason) -> str:
    return f"requires {reason.rule}" + (f", found {reason.found}" if reason.found else "")


# -- ONNX Runtime --------------------------------------------------------------------------------------------------------


def _provider(planned: Planned) -> Iterator[PhoneLine]:
    """The provider's verbose lines; it looks at the nodes that ONNX Runtime's optimiser leaves."""
    failure = refusal_of(planned.mapped, planned.mapping)
    if failure is not None and failure.stage is Stage.LOADING:
        yield from _session_error(failure)
        return
    nodes = [one for one in planned.mapped if one.mapping not in (MappingKind.FOLDED, MappingKind.DEAD)]
    names = {(graph.number, one.index): one.name for graph in planned.file.graphs for one in graph.operators}
    for node in nodes:
        supported = node.mapping in ON_NNAPI
        yield from (_provider_reason(node, reason) for reason in _reasons(node))
        if node.operator in ("QuantizeLinear", "DequantizeLinear"):
            continue  # a part of another node's unit, or one by itself
        name = names.get(node.key, "")
        values = {"kind": node.operator, "node": node.index, "name": name}
        unit = {"unit_kind": node.operator, "unit_index": node.index, "unit": name}
        yield line("node-support", supported=int(supported), **values, **unit)
    partitions = len(handed_parts(planned.model, None))
    handed = sum(node.mapping in ON_NNAPI for node in nodes)
    counts = line("provider-partitions", partitions=partitions, total=len(nodes), nodes=handed)
    yield counts if partitions > 1 else replace(counts, level="I")
    yield PhoneLine("indexes and counts are the file's; ONNX Runtime's optimiser may have removed nodes before")
    if failure is None or failure.stage is Stage.RUNNING:
        yield from _nnapi(planned)
    if failure is not None:
        yield from _session_error(failure)


def _session_error(failure: Refusal) -> Iterator[PhoneLine]:
    """ONNX Runtime's error where its words are known, and the plan's."""
    read = next(read_lines(failure.reason.says), None)
    if read is not None and read.pattern is not None:
        yield PhoneLine(failure.reason.says, read.pattern.tag, "E")
    yield PhoneLine(failure.sentence)


def _reasons(node: Mapped) -> Iterable[Reason]:
    return node.reasons if node.mapping == MappingKind.HOST else ()


def _provider_reason(node: Mapped, reason: Reason) -> PhoneLine:
    """A refusal in the provider's words where it has some for the kind, else in nnbridge's."""
    if reason.kind is Why.DYNAMIC_SHAPE and " for " in reason.found:
        shape, _, tensor = reason.found.rpartition(" for ")
        values = {"tensor_name": tensor, "name": "", "kind": node.operator}
        return line("ort-no-shape" if shape == "None" else "ort-dynamic", **values)
    if reason.kind is Why.FEATURE_LEVEL and reason.found.isdigit():
        required = reason.rule.rpartition(" ")[2]
        return line("ort-api-level", found=_api(reason.found), kind=node.operator, expected=_api(required))
    return PhoneLine(f"{reason.operation or f'node {node.index} {node.operator}'}: the provider {_required(reason)}")


def _api(level: str) -> str:
    """A feature level in NNAPI's numbers: 27 to 31, then 1000006 and so on."""
    number = int(level) if level.isdigit() else 0
    return str(26 + number if number <= 5 else 1_000_000 + number)


# -- NNAPI ---------------------------------------------------------------------------------------------------------------


def _nnapi(planned: Planned) -> Iterator[PhoneLine]:
    for part in handed_parts(planned.model, None):
        yield from _compiled(planned, part)


def _compiled(planned: Planned, part: HandedPart) -> Iterator[PhoneLine]:
    """The decisions of one NNAPI model: each device that cannot do an operation, and the device that gets it."""
    compilation = planned.compilation
    devices = [device.name for device in compilation.devices if device.kind != "host"]
    try:
        plan = compilation.plan
    except RefusalError:
        plan = None
    placements = {p.operation: p for p in (compilation.placements if plan is None else plan.placements)}
    yield line("partition", index=0, count=len(devices), operations=len(part.operations))
    used = []
    for index, (i, kind) in enumerate(zip(part.operations, part.types, strict=True)):
        placement = placements.get(i)
        if placement is None:
            continue
        yield from _refused(placement, kind, index)
        if placement.device is None:
            yield line("no-driver", operation=kind)
            return
        name = INTERPRETER.name if placement.interpreted else placement.answers[placement.device].device
        number = -1 if placement.interpreted else placement.device
        used.append((number, name))
        yield line("placed", operation=kind, index=index, number=number, device=name)
    if plan is None:
        return
    if len(set(used)) == 1 and used[0][0] >= 0:
        yield line("one-device", number=used[0][0], device=used[0][1])
        yield line("compiled", device=used[0][1])
    elif used:
        yield PhoneLine(BY_NAME["compiled"].forms[1].text, BY_NAME["compiled"].tag, BY_NAME["compiled"].level)
    if plan.fallback is not None:
        yield line("cpu-fallback")
        yield PhoneLine(f"the whole model goes to NNAPI's CPU: {plan.fallback}")


def _refused(placement: Placement, kind: str, index: int) -> Iterator[PhoneLine]:
    for answer in placement.answers:
        if answer.reason is None or answer.device == HOST_NAME:
            continue
        if answer.reason.kind is not Why.PARTITIONS:
            yield line("device-refused", device=answer.device, operation=kind, index=index)
        yield PhoneLine(f"operation {placement.operation} {kind}: {answer.device} {_required(answer.reason)}")
