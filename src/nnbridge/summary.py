"""A plan in one sentence: what is handed to NNAPI, what the devices accept of it, and where the rest runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, field
from types import MappingProxyType
from typing import Any

from nnbridge.converters.delegation import CLIENTS, FAILS_BUILDING, PhoneVerdict, Refusal, refusal_of, stage_of
from nnbridge.converters.inspection import ON_NNAPI, Mapped
from nnbridge.cost import driver_multiply_adds, multiply_adds
from nnbridge.errors import Reason, Stage, Why, counted
from nnbridge.extensions import readable_operation
from nnbridge.records import dataclass
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.partition_limits import delegated_partitions
from nnbridge.runtime.placement import Placement
from nnbridge.runtime.plan import Plan
from nnbridge.source import SourceOperator

CLIENT_NAMES = {**{mapping: client.name for mapping, client in CLIENTS.items()}, "wide": "nnbridge"}
BEFORE_NNAPI = "before-nnapi"
"""In place of a mapping, where the devices look at the file's own operators."""
_OWN_CPU = {"delegate": "TFLite's CPU", "provider": "ONNX Runtime's CPU", BEFORE_NNAPI: "TFLite's CPU"}
_NNAPI_CPU, _HOST = "NNAPI's CPU", "the host"
_PLACE_KEYS = {
    _OWN_CPU["delegate"]: "tflite_cpu",
    _OWN_CPU["provider"]: "onnx_runtime_cpu",
    _NNAPI_CPU: "nnapi_cpu",
    _HOST: "host",
}
"""Where operators run without a device → the key of their count."""
_FASTER = "declared figures below those of NNAPI's CPU"
_FEW = 3
"""Kinds of operators that a judgement names."""
_MANY_PARTITIONS = 10
"""From here on a judgement warns: each partition copies its tensors in and out. TFLite's own limit is 3."""


def who_refuses(reason: Reason, mapping: str) -> str:
    """The name of what refuses an operator of a file under a mapping."""
    if reason.stage is Stage.LOADING and mapping in CLIENTS:
        return CLIENTS[mapping].runtime
    return CLIENT_NAMES.get(mapping, "NNAPI")


@dataclass(frozen=True)
class Summary:
    """Counts of the file's operators; of operations where the file is a saved model. Those that are folded do not count.

    ``merged`` are operators that became part of another's operations, which count nowhere else.
    """

    devices: tuple[str, ...]
    """The drivers that were offered the model."""
    android: str
    mapping: str
    unit: str
    operators: int
    merged: int
    handed_over: int
    partitions: int
    """Groups in which they are handed over."""
    accepted: int
    """Operators of which a driver supports every operation."""
    limited: int
    """Of these, operators beyond the limit on partitions."""
    on_device: int
    elsewhere: dict[str, int]
    """Where the others run."""
    fallback: bool = False
    refusal: str = ""
    """Where the phone fails with its client, in one sentence."""
    graphs: str = ""
    """Of a file with several graphs, the operators and partitions of all of them, in words."""
    of_graphs: tuple[int, int] = (0, 0)
    """The same as numbers where only devices get them: operators of all graphs, and those of them that are delegated."""
    elsewhere_names: dict[str, int] = field(default_factory=dict)
    """The operators that no device runs, by name, most frequent first."""
    obstacle: str = ""
    """The rule that most operators without a device break."""
    used: tuple[str, ...] = ()
    """The drivers that run something."""
    work_share: float | None = None
    """The devices' share of the multiply-adds; None where there are none."""
    release: str = ""
    """The release of the app's runtime, where it is not the newest."""
    refused: str = ""
    """The refusal in short."""
    claimed: int = 0
    """Operators that the client hands over where a model of them cannot be built: ``handed_over`` for ``--json``."""
    device_partitions: int = 0
    """Partitions that the devices take of what is handed over."""
    foreign: int = 0
    """Operators that no device takes and the app's runtime has no kernel of: they run nowhere unless the app adds one."""
    otherwise: int = 0
    """Operators that would be handed over if the delegate allowed dynamic dimensions, where TFLite refuses it without."""

    @property
    def sentence(self) -> str:
        """All of it in one sentence."""
        rest = [f"with allow_dynamic_dimensions: {self.otherwise:,} of {counted(self.operators, self.unit)}"] * bool(
            self.otherwise
        )
        # A session of ONNX Runtime is one: without it, and where its runs fail, nothing runs anywhere.
        nothing_runs = bool(self.refusal) and self.mapping == "provider"
        places = {} if nothing_runs else self.elsewhere
        without = _WITHOUT.get(self.mapping, "") if self.refusal and not self.handed_over else ""
        rest += [f"{without}{count:,} {'runs' if count == 1 else 'run'} on {place}" for place, count in places.items()]
        if self.foreign and not nothing_runs:
            rest.append(f"{self.foreign:,} {'has' if self.foreign == 1 else 'have'} no kernel in TFLite")
        if self.mapping == BEFORE_NNAPI:
            share = f"{self.accepted:,} of {counted(self.operators, self.unit)}"
            text = f"On {', '.join(self.devices)}, without NNAPI: {share} {'is' if self.operators == 1 else 'are'} accepted"
            text += f" in {counted(self.partitions, 'partition')}" if self.accepted else ""
            return "; ".join(part for part in (text, self.refusal, ", ".join(rest)) if part)
        client = CLIENT_NAMES[self.mapping].replace("'s", f" {self.release}'s" if self.release else "'s", 1)
        if self.refusal and (nothing_runs or not self.handed_over):
            return f"On {', '.join(self.devices) or _NNAPI_CPU}, {self.android}: {'; '.join([self.refusal, *rest])}"
        if self.graphs:
            counts = f"On {', '.join(self.devices) or _NNAPI_CPU}, {self.android}: {client}: {self.graphs}"
            return "; ".join(part for part in (counts, self.refusal) if part)
        groups = f" in {counted(self.partitions, 'partition')}" if self.handed_over else ""
        text = f"On {', '.join(self.devices) or _NNAPI_CPU}, {self.android}: "
        text += f"{client} hands over {self.handed_over:,} of {counted(self.operators, self.unit)}{groups}"
        if self.devices:
            text += (
                f", the device accepts {self.accepted:,}" if len(self.devices) == 1 else f", the devices accept {self.accepted:,}"
            )
            cut = self.accepted and self.device_partitions not in (0, self.partitions)
            text += f" in {counted(self.device_partitions, 'partition')}" if cut else ""
            text += f", {self.limited:,} of them left out by the limit on partitions" if self.limited else ""
        if self.fallback:
            return f"{text}; the whole model falls back to {_NNAPI_CPU}"
        return "; ".join(part for part in (text, ", ".join(rest), self.refusal) if part)

    @property
    def host(self) -> str:
        """The name of what computes the operators that are not handed over."""
        return _OWN_CPU.get(self.mapping, _HOST)

    @property
    def judgement(self) -> str:
        """The figures in short, where devices were asked or the phone refuses the file."""
        if self.refused:
            return self.refused
        if not self.devices or self.fallback or not self.operators:
            return ""
        if self.graphs:
            operators, delegated = self.of_graphs
            if not operators:
                return ""
            share = f"{delegated:,} of {counted(operators, self.unit)}" if delegated else f"No {self.unit}"
            return f"{share} of the file's graphs {'run' if delegated > 1 else 'runs'} on {' and '.join(self.devices)}"
        names, left = " and ".join(self.used or self.devices), self.operators - self.on_device
        kinds = ", ".join(name if count == 1 else f"{name} ({count:,})" for name, count in self.elsewhere_names.items())
        work = "" if self.work_share is None else f" ({_percent(self.work_share)} of the multiply-adds)"
        if not self.on_device:
            text = f"No {self.unit} runs on {names}" + (f"; required: {self.obstacle}" if self.obstacle else "")
        elif not left:
            all_of = f"All {self.operators:,} {self.unit}s run" if self.operators > 1 else f"The {self.unit} runs"
            text = f"{all_of} on {names}, in {counted(self.device_partitions, 'partition')}"
        elif len(self.elsewhere_names) <= _FEW:
            rest = "" if self.work_share is None else f" ({_percent(1 - self.work_share)} of the multiply-adds)"
            text = f"Runs on {names} except {counted(left, self.unit)}{rest}: {kinds}"
        else:
            text = f"{self.on_device:,} of {counted(self.operators, self.unit)}{work} run on {names}"
        slow = self.on_device and self.device_partitions > _MANY_PARTITIONS
        return f"{text}; {self.device_partitions:,} partitions are probably slower than the CPU" if slow else text

    @property
    def lines(self) -> tuple[str, ...]:
        """The first lines for a reader: the judgement, then the figures."""
        figures = "" if self.judgement and self.judgement in self.sentence else self.sentence
        return tuple(f"{line}." for line in (self.judgement, figures) if line)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        # `elsewhere` is by names with blanks, as in the last release; its numbers are added up, so that no others may be in it.
        places = {_PLACE_KEYS[place]: count for place, count in self.elsewhere.items()}
        counts = {**asdict(self), "handed_over": self.handed_over or self.claimed}
        return {"judgement": self.judgement, "sentence": self.sentence, **counts, "elsewhere_places": places}


def _percent(share: float) -> str:
    """A share in words that never round to all or nothing."""
    if 0 < share < 0.001 or 0.999 < share < 1:
        return "less than 0.1 %" if share < 0.5 else "more than 99.9 %"
    return f"{share * 100:.3g} %"


def _work_share(plan: Plan) -> float | None:
    """The devices' share of a plan's multiply-adds; None where there are none."""
    models = [source.model for source in plan.partition.sources]
    total = sum(multiply_adds(model, operation) or 0 for model in models for operation in model.main.operations)
    return driver_multiply_adds(plan) / total if total else None


def summarise(
    compilation: Compilation,
    mapped: Sequence[Mapped],
    mapping: str,
    android: str,
    left: Mapping[int, Reason] | None = None,
    verdict: PhoneVerdict | None = None,
    foreign: Collection[tuple[int, int]] = (),
) -> Summary:
    """The counts of a plan.

    ``mapped``: the outcome of each operator of the file; ``android``: the phone's version; ``left``: operators that the devices
    do not get, which stay with the app's runtime, None where NNAPI's CPU takes them; ``verdict``: the phone's on a file with
    several graphs, whose bodies are no operations of the plan; ``foreign``: operators that the app's runtime has no kernel of.
    """
    drivers = {share.device for share in compilation.shares()}
    found = operator_outcomes(compilation, mapped, left or {})
    refused_on = _NNAPI_CPU if left is None else _OWN_CPU["delegate"]
    places = {_HOST: _OWN_CPU.get(mapping, _HOST), "refused": refused_on, "limited": refused_on, "slower": _NNAPI_CPU}
    elsewhere: dict[str, int] = {}
    # The client hands over what NNAPI's CPU fails to run, too; nnbridge does not, and shows it on the host.
    failing = {one.key for one in mapped if stage_of(one) is Stage.RUNNING and found.get(one.key) == _HOST}
    unknown = {key for key, outcome in found.items() if outcome in places and key in foreign}
    for key, outcome in found.items():
        if outcome in places and key not in unknown:
            place = _NNAPI_CPU if key in failing else places[outcome]
            elsewhere[place] = elsewhere.get(place, 0) + 1
    refusal = refusal_of(mapped, mapping)
    counts = Counter(found.values())
    merged = counts.pop("", 0)
    mapped_for_nnapi = counts.total() - counts[_HOST]
    main = next((graph for graph in verdict.graphs if graph.subgraph == 0), None) if verdict and verdict.created else None
    several = verdict if verdict is not None and verdict.created and len(verdict.graphs) > 1 else None
    # Without NNAPI's CPU the delegate hands over what the devices take, and no more.
    handed = mapped_for_nnapi + len(failing) - (0 if left is None else counts["refused"] + counts["limited"])
    return Summary(
        tuple(share.device for share in compilation.shares()),
        android,
        mapping,
        "operator" if mapped else "operation",
        counts.total(),
        merged,
        handed,
        handed_groups(compilation) if main is None else len(main.groups),  # Operators on variables, which NNAPI has not, cut.
        mapped_for_nnapi - counts["refused"],
        counts["limited"],
        counts["device"],
        {} if refusal is not None and refusal.stage is Stage.LOADING else elsewhere,
        compilation.plan.fallback is not None and bool(drivers),
        "" if refusal is None else refusal.sentence,
        "" if several is None else several.counts,
        (0, 0) if several is None or left is None else several.totals,
        _names(compilation, mapped, [key for key, outcome in found.items() if outcome not in ("", "device")]),
        _obstacle(mapped, left or {}, counts["slower"]),
        _used(compilation),
        _work_share(compilation.plan),
        refused="" if refusal is None else refusal.judgement,
        claimed=refusal.taken if refusal is not None and refusal.stage in FAILS_BUILDING else 0,
        device_partitions=_device_partitions(compilation.plan),
        foreign=len(unknown),
    )


def _device_partitions(plan: Plan) -> int:
    return sum(plan.devices[step.device].kind == "device" for step in plan.steps)


def _obstacle(mapped: Sequence[Mapped], left: Mapping[int, Reason], slower: int) -> str:
    """The rule that most operators break; those that devices accept and do not run break that on their declared figures."""
    reasons = [reason for outcome in mapped for reason in outcome.reasons[:1]] + [*left.values()]
    rules = Counter(reason.rule for reason in reasons) + Counter({_FASTER: slower})
    return next((rule for rule, _ in rules.most_common(1)), "")


def _used(compilation: Compilation) -> tuple[str, ...]:
    devices = [compilation.plan.devices[step.device] for step in compilation.plan.steps]
    return tuple(dict.fromkeys(device.name for device in devices if device.kind == "device"))


def _names(compilation: Compilation, mapped: Sequence[Mapped], keys: Sequence[tuple[int, int]]) -> dict[str, int]:
    """The names of operators, most frequent first; of operations where the file is a saved model."""
    if mapped:
        named = {outcome.key: outcome.operator for outcome in mapped}
        return dict(Counter(named[key].removeprefix("CUSTOM:") for key in keys if key in named).most_common())
    models = [source.model for source in compilation.plan.partition.sources]
    return dict(Counter(readable_operation(models[s], models[s].main.operations[i]) for s, i in keys).most_common())


def summarise_claims(
    compilation: Compilation,
    operators: Sequence[SourceOperator],
    claims: Mapping[str, Sequence[bool]],
    android: str,
    foreign: Collection[int] = (),
    failures: Mapping[str, Reason] = MappingProxyType({}),
    refusal: Refusal | None = None,
) -> Summary:
    """The counts of a plan whose devices look at the file's operators: device → whether it accepts each of them.

    ``foreign``: indices of operators that TFLite has no kernel of; ``failures``: devices that fail with the whole file;
    ``refusal``: the app's runtime does not load it.
    """
    failed = next(((device, reason.operation) for device, reason in failures.items()), None)
    sentence = "{} fails with the whole file at {}".format(*failed) if failed else ""
    judgement = "The file does not run with {}: it fails at {}".format(*failed) if failed else ""
    supported = [any(each) for each in zip(*claims.values(), strict=True)]
    accepted = sum(supported)
    partitions = _device_partitions(compilation.plan)
    counts = (len(supported), 0, accepted, partitions, accepted, 0, accepted)
    left = [operator for operator, ok in zip(operators, supported, strict=True) if not ok]
    unknown = sum(operator.index in foreign for operator in left)
    elsewhere = {_OWN_CPU["delegate"]: len(left) - unknown} if unknown < len(left) else {}
    names = dict(Counter(operator.name.removeprefix("CUSTOM:") for operator in left).most_common())
    share = _work_share(compilation.plan)
    return Summary(
        tuple(claims),
        android,
        BEFORE_NNAPI,
        "operator",
        *counts,
        elsewhere,
        elsewhere_names=names,
        used=_used(compilation),
        work_share=share,
        refusal=sentence if refusal is None else refusal.sentence,
        refused=judgement if refusal is None else refusal.judgement,
        device_partitions=partitions,
        foreign=unknown,
    )


def operator_outcomes(
    compilation: Compilation, mapped: Sequence[Mapped], left: Mapping[int, Reason] = MappingProxyType({})
) -> dict[tuple[int, int], str]:
    """The outcome of each operator of the file, by its subgraph and index: one of :data:`_ORDER`.

    ``left``: operators of the main graph that the devices do not get, with the reasons.
    """
    drivers = {share.device for share in compilation.shares()}
    found = {m.key: outcome for m in mapped if (outcome := _of_file(m)) is not None}
    for key, placement, host in _operations(compilation):
        if mapped and key not in found:
            continue  # an operator that a body holds, or that was added at conversion
        own = _HOST if host else _outcome(compilation, placement, drivers)
        found[key] = max(found.get(key, ""), own, key=_ORDER.index)
    main = next((key[0] for key in found if key[1] in left), 0)
    return found | {(main, i): "limited" if why.kind is Why.PARTITIONS else "refused" for i, why in left.items()}


def refusal_kinds(compilation: Compilation, mapped: Sequence[Mapped]) -> dict[tuple[int, int], frozenset[Why]]:
    """The kinds of reasons why operators of the file are not on the drivers: the importer's for those of the host, the
    drivers' for others."""
    drivers = {share.device for share in compilation.shares()}
    found = {m.key: {r.kind for r in m.reasons} for m in mapped if m.mapping == "host"}
    for key, (_, placement), host in _operations(compilation):
        if not host:
            reasons = [a.reason for a in placement.answers if a.device in drivers and a.reason is not None]
            found.setdefault(key, set()).update(reason.kind for reason in reasons)
    return {key: frozenset(kind for kind in kinds if kind is not None) for key, kinds in found.items()}


def handed_groups(compilation: Compilation) -> int:
    """The number of groups of operations that are handed to NNAPI, whatever devices make of them."""
    main = compilation.model.main
    return len(delegated_partitions(main, [operation.mapping != "host" for operation in main.operations]))


_WITHOUT = {"delegate": "without the delegate ", BEFORE_NNAPI: "without it "}
"""How a sentence begins on what runs where a client that fails is left out."""
_ORDER = ("", "device", "slower", "limited", "refused", _HOST)
"""Outcomes of an operator: the last one among those of its operations. Empty: it became part of another."""


def _of_file(outcome: Mapped) -> str | None:
    """An operator's outcome before devices are asked; None for one that nothing runs."""
    return "" if outcome.mapping in ON_NNAPI else _HOST if outcome.mapping == "host" else None


def _operations(compilation: Compilation) -> Iterator[tuple[tuple[int, int], tuple[int, Placement], bool]]:
    """Each operation's operator in the file (or itself), its placement in its source, and whether the host runs it."""
    for source, placement in compilation.plan.placed():
        operation = compilation.plan.partition.sources[source].model.main.operations[placement.operation]
        at = operation.source
        key = (source, placement.operation) if at is None else at.key
        yield key, (source, placement), operation.mapping == "host"


def _outcome(compilation: Compilation, placed: tuple[int, Placement], drivers: set[str]) -> str:
    source, placement = placed
    answers = [answer for answer in placement.answers if answer.device in drivers]
    if any(a.reason is not None and a.reason.kind is Why.PARTITIONS for a in answers):
        return "limited"
    if not any(answer.supported for answer in answers):
        return "refused"
    return "device" if compilation.plan.device_of(placement.operation, source).kind == "device" else "slower"
