"""Checks of Android's validators on operands, operations and whole models, and the feature level that each needs.

Answers are data: a :class:`Verdict` with the level, or with the :class:`~nnbridge.errors.Reason` of a refusal.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import field, replace
from functools import lru_cache
from typing import TypeAlias

from nnbridge.errors import Reason, Why
from nnbridge.extensions import TYPES
from nnbridge.model import ChannelQuant, Location, Model, Operand, Operation, Subgraph
from nnbridge.operations import definition
from nnbridge.operations.call import Arg, Call, NeedsValue
from nnbridge.operations.control_flow import check_control_flow, has_unknown_boundary
from nnbridge.operations.declaration import OperationDef
from nnbridge.operations.evaluate import make_call
from nnbridge.operations.matching import Match, match
from nnbridge.records import dataclass
from nnbridge.types import (
    CONTROL_FLOW,
    TYPE_FACTS,
    WRITTEN,
    FeatureLevel,
    Lifetime,
    OperandCode,
    OperationCode,
    is_extension,
    operation_name,
    type_name,
)

MAX_TENSOR_BYTES = 2**32 - 1
_WITHOUT_LOCATION = (Lifetime.TEMPORARY_VARIABLE, Lifetime.SUBGRAPH_INPUT, Lifetime.SUBGRAPH_OUTPUT, Lifetime.NO_VALUE)
_NOWHERE = Location()
_NO_VALUE = Lifetime.NO_VALUE
OperandKind: TypeAlias = "tuple[int, tuple[int, ...], float, int, int | None, bool, bool]"
"""What validation reads of an operand: type, dims, scale, zero point, channel dimension, present, constant."""
_VERDICTS = "verdicts"
_EXTENSION_NAME = re.compile(r"[a-z0-9_]*\.[a-z0-9_.]*")


@dataclass(frozen=True, slots=True)
class Verdict:
    """A feature level, or a refusal. ``runtime_only``: no driver may get it, whatever its level."""

    level: int = FeatureLevel.LEVEL_1
    reason: Reason | None = None
    runtime_only: bool = False
    match: Match | None = field(default=None, compare=False)
    """The signature that one operation fits."""

    @property
    def valid(self) -> bool:
        """True unless refused."""
        return self.reason is None


def check_operand_type(code: int, dims: Sequence[int], scale: float, zero_point: int) -> Reason | None:
    """Check an operand's type as ``addOperand`` does: unknown types, scalars with dimensions, bad quantisation and tensors too
    large are refused."""
    check = _type_fault if is_extension(code) else _cached_type_fault
    return check(code, tuple(dims), scale, zero_point)


def _type_fault(code: int, dims: tuple[int, ...], scale: float, zero_point: int) -> Reason | None:
    if is_extension(code):
        name = type_name(code)
        declared = TYPES.operand_type(code)
        if declared is None:
            return Reason("an operand type of a registered extension", TYPES.readable(code), kind=Why.INPUT_TYPE)
        if scale != 0 or zero_point != 0:
            return Reason("scale 0 and zero point 0 for an extension type", f"{scale}, {zero_point}", operand=name)
        tensor, size = declared.is_tensor, declared.byte_size
    elif code not in TYPE_FACTS:
        return Reason("a known operand type", type_name(code), kind=Why.INPUT_TYPE)
    else:
        name, facts = type_name(code), TYPE_FACTS[code]
        tensor, size = facts.tensor, facts.size
        if facts.scale == "positive" and not (scale > 0 and math.isfinite(scale)):
            return Reason("a scale above 0", str(scale), operand=name, kind=Why.QUANTISATION_PARAMETERS)
        if facts.scale == "zero" and scale != 0:
            return Reason("scale 0", str(scale), operand=name, kind=Why.QUANTISATION_PARAMETERS)
        low, high = facts.zero_points
        # addOperand does not look at the zero point of TENSOR_INT32; finish does (nnapi V11).
        if facts.scale in ("zero", "positive") and not low <= zero_point <= high:
            return Reason(f"a zero point from {low} to {high}", str(zero_point), operand=name, kind=Why.QUANTISATION_PARAMETERS)
    if not tensor and len(dims) > 0:
        return Reason("no dimensions for a scalar", str(list(dims)), operand=name)
    if not dims:
        return None
    if not 0 <= min(dims) <= max(dims) <= MAX_TENSOR_BYTES:
        return Reason("dimensions from 0 to 2**32 - 1", str(list(dims)), operand=name)
    if math.prod(dims if all(dims) else filter(None, dims)) * size > MAX_TENSOR_BYTES:
        return Reason("a tensor of at most 2**32 - 1 bytes", str(list(dims)), operand=name, kind=Why.OPERAND_SIZE)
    return None


_cached_type_fault = lru_cache(maxsize=4096)(_type_fault)


def byte_size(operand: Operand) -> int | None:
    """Bytes of an operand's value; None while dimensions are not known, 0 for types without a size."""
    if is_extension(operand.type):
        declared = TYPES.operand_type(operand.type)
        if declared is None:
            return None
        tensor, size = declared.is_tensor, declared.byte_size
    else:
        facts = TYPE_FACTS[operand.type]
        tensor, size = facts.tensor, facts.size
    if not tensor:
        return size
    if not operand.dims or 0 in operand.dims:
        return None
    return math.prod(operand.dims) * size


def operand_level(operand: Operand) -> int:
    """The feature level that an operand needs by itself: its type's, and 3 for a tensor of unknown rank."""
    return _level(operand.type, operand.dims)


def _level(code: int, dims: tuple[int, ...]) -> int:
    if is_extension(code):
        return FeatureLevel.LEVEL_3
    facts = TYPE_FACTS[code]
    return max(facts.since, FeatureLevel.LEVEL_3) if facts.tensor and not dims else facts.since


def validate_operation(
    operation: Operation,
    operands: Sequence[Operand],
    model: Model | None = None,
    subgraph: Subgraph | None = None,
) -> Verdict:
    """One operation against its declaration. ``model`` and ``subgraph`` are needed for IF and WHILE only.

    Networks repeat the same few kinds of operations, and each stage validates what it gets: verdicts are cached. Those that
    involve an extension are not, as the prefix in its code may come to stand for another one.
    """
    inputs, outputs = (tuple([_kind(operands[i]) for i in side]) for side in (operation.inputs, operation.outputs))
    return with_bodies(verdict_of(operation.type, inputs, outputs), operation, model, subgraph)


def with_bodies(verdict: Verdict, operation: Operation, model: Model | None, subgraph: Subgraph | None) -> Verdict:
    """The verdict with what the bodies of IF and WHILE add to it."""
    if operation.type not in CONTROL_FLOW or model is None or subgraph is None or not verdict.valid:
        return verdict
    reason = check_control_flow(model, subgraph, operation)
    # Only operations whose models are set have a boundary.
    unknown = reason is None and operation.type == OperationCode.WHILE and has_unknown_boundary(model, subgraph, operation)
    return replace(verdict, reason=reason, runtime_only=unknown)


def verdicts_of(subgraph: Subgraph) -> Sequence[Verdict]:
    """Each operation against its declaration, bodies of IF and WHILE apart; computed once where no operand is an extension's."""
    found: Sequence[Verdict] | None = subgraph.known.get(_VERDICTS)
    if found is None:
        kinds = [_kind(operand) for operand in subgraph.operands]
        found = [
            verdict_of(o.type, tuple([kinds[i] for i in o.inputs]), tuple([kinds[i] for i in o.outputs]))
            for o in subgraph.operations
        ]
        if not is_extension(max([kind[0] for kind in kinds], default=0)):
            subgraph.known[_VERDICTS] = found
    return found


def state_verdicts(subgraph: Subgraph, found: Sequence[Verdict]) -> None:
    """Accept the result of :func:`verdicts_of` from a client that knows it of the very same operands, of which none is an
    extension's."""
    subgraph.known[_VERDICTS] = found


def verdict_of(code: int, inputs: tuple[OperandKind, ...], outputs: tuple[OperandKind, ...]) -> Verdict:
    """One operation of these operands against its declaration, the bodies of IF and WHILE apart."""
    extended = is_extension(max([kind[0] for kind in inputs + outputs], default=0))
    return (_verdict if extended else _cached_verdict)(code, inputs, outputs)


def _kind(operand: Operand) -> OperandKind:
    quant = operand.channel_quant
    return (
        operand.type,
        operand.dims,
        operand.scale,
        operand.zero_point,
        None if quant is None else quant.channel_dim,
        operand.lifetime is not _NO_VALUE,
        operand.is_constant,
    )


def _arg(kind: OperandKind) -> Arg:
    code, dims, scale, zero_point, channel_dim, present, constant = kind
    quant = None if channel_dim is None else ChannelQuant((), channel_dim)
    return Arg(code, dims, scale, zero_point, quant, present=present, constant=constant)


def _verdict(code: int, input_kinds: tuple[OperandKind, ...], output_kinds: tuple[OperandKind, ...]) -> Verdict:
    level = max((_level(kind[0], kind[1]) for kind in (*input_kinds, *output_kinds)), default=1)
    if is_extension(code):
        return Verdict(max(level, FeatureLevel.LEVEL_3))
    if code == OperationCode.OEM_OPERATION:
        return Verdict(level)
    declared = definition(code)
    if declared is None:
        return Verdict(reason=Reason("a known operation", operation_name(code), kind=Why.OPERATOR))
    inputs, outputs = tuple(map(_arg, input_kinds)), tuple(map(_arg, output_kinds))
    found = match(declared, [a.type for a in inputs], [a.type for a in outputs])
    if isinstance(found, Reason):
        return Verdict(reason=found)
    call = make_call(declared, inputs, outputs, found)
    reason = _check_ranks(call) or next((r for check in declared.build_checks if (r := check(call))), None)
    if reason is not None:
        return Verdict(reason=reason)
    level = max(level, found.level, _rules_level(declared, call))
    return Verdict(level, match=found)


_cached_verdict = lru_cache(maxsize=4096)(_verdict)


def _check_ranks(call: Call) -> Reason | None:
    """The ranks that Android compares at build time; an unknown rank passes."""
    for declared, arg in zip(call.signature.expand(len(call.args)), call.args, strict=True):
        required = declared.rank
        if required is not None and required.build and arg.dims and not required.admits(arg.rank):
            return Reason(f"rank {required}", str(arg.rank), call.definition.name, declared.name, Why.RANK)
    return None


def _rules_level(declared: OperationDef, call: Call) -> int:
    level = 1
    for rule in declared.level_rules:
        try:
            raised = rule(call)
        except NeedsValue:
            continue
        if raised is not None:
            level = max(level, raised[0])
    return level


def validate_operand(operand: Operand, index: int, model: Model) -> Reason | None:
    """An operand of a finished model: type, quantisation, lifetime and the place of its value."""
    fault = (
        check_operand_type(operand.type, operand.dims, operand.scale, operand.zero_point)
        or _parameter_fault(operand)
        or _location_fault(operand, model)
    )
    return None if fault is None else replace(fault, operand=f"operand {index} {operand.name}".rstrip())


def _parameter_fault(operand: Operand) -> Reason | None:
    """The mistake in an operand's parameters for its type."""
    if operand.type == OperandCode.TENSOR_INT32 and (operand.zero_point != 0 or operand.scale < 0):
        return Reason("zero point 0 and a scale of at least 0", f"{operand.scale}, {operand.zero_point}")
    if (operand.type == OperandCode.MODEL) != (operand.lifetime is Lifetime.SUBGRAPH):
        return Reason("lifetime SUBGRAPH for MODEL operands only", operand.lifetime.name)
    if operand.type == OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL:
        if operand.channel_quant is None:
            return Reason("per-channel quantisation parameters", "none", kind=Why.QUANTISATION_TYPE)
    elif operand.channel_quant is not None:
        return Reason("no per-channel quantisation parameters", "some", kind=Why.QUANTISATION_TYPE)
    if operand.extension_data is not None and not is_extension(operand.type):
        return Reason("extension data of extension operands only", f"{len(operand.extension_data)} bytes")
    return None


def _location_fault(operand: Operand, model: Model) -> Reason | None:
    """The mistake in the place of an operand's value."""
    at = operand.location
    if operand.lifetime is Lifetime.SUBGRAPH and not (0 <= at.offset < len(model.referenced) and at.pool == at.length == 0):
        return Reason("an index of a referenced subgraph", f"{at.offset} of {len(model.referenced)}")
    if operand.lifetime in _WITHOUT_LOCATION and at != _NOWHERE:
        return Reason("no location for an operand without value", f"{at.offset}+{at.length}")
    return _constant_fault(operand, model) if operand.is_constant else None


def _constant_fault(operand: Operand, model: Model) -> Reason | None:
    """The mistake in the size or the place of a constant."""
    at = operand.location
    size = byte_size(operand)
    oem = operand.type in (OperandCode.OEM_SCALAR, OperandCode.TENSOR_OEM_BYTE)
    if size is None and (operand.is_tensor or not is_extension(operand.type)):
        return Reason("known, non-zero dimensions of a constant", str(list(operand.dims)))
    if size is not None and not oem and operand.location.length != size:
        return Reason(f"a constant of {size} bytes", f"{operand.location.length}")
    copied = operand.lifetime is Lifetime.CONSTANT_COPY
    if copied and at.pool != 0:
        return Reason("pool 0 for a value that was copied", str(at.pool))
    if not copied and not 0 <= at.pool < len(model.pools):
        return Reason("a pool of the model", str(at.pool))
    capacity = len(model.operand_values) if copied else len(model.pools[at.pool])
    if at.offset < 0 or at.offset + at.length > capacity:
        return Reason(f"a place inside {capacity} bytes", f"{at.offset}+{at.length}")
    return None


@lru_cache(maxsize=4096)
def _plain_size(code: int, dims: tuple[int, ...], scale: float, zero_point: int, lifetime: Lifetime) -> int:
    """Bytes that the value of a plain operand takes, 0 if it has none; -1 for one that is not, or at fault whatever its place."""
    alone = Model(Subgraph((), (), (), ()))
    operand = Operand(code, dims, scale, zero_point, None, Lifetime.TEMPORARY_VARIABLE)
    plain = code in TYPE_FACTS and code not in (OperandCode.MODEL, OperandCode.OEM_SCALAR, OperandCode.TENSOR_OEM_BYTE)
    if not plain or lifetime is Lifetime.SUBGRAPH or validate_operand(operand, 0, alone) is not None:
        return -1
    if lifetime in _WITHOUT_LOCATION:
        return 0
    return byte_size(operand) or -1


def is_sound(operand: Operand, small: int, pools: Sequence[int]) -> bool:
    """True if nothing is wrong with a plain operand, in a fraction of the time that :func:`validate_operand` takes.

    ``small``, ``pools``: bytes of the values that were copied, and of each pool.
    """
    if operand.channel_quant is not None or operand.extension_data is not None:
        return False
    at, lifetime = operand.location, operand.lifetime
    size = _plain_size(operand.type, tuple(operand.dims), operand.scale, operand.zero_point, lifetime)
    if size <= 0:
        return size == 0 and (at is _NOWHERE or at == _NOWHERE)
    if at.length != size or at.offset < 0:
        return False
    if lifetime is Lifetime.CONSTANT_COPY:
        return at.pool == 0 and at.offset + size <= small
    return 0 <= at.pool < len(pools) and at.offset + size <= pools[at.pool]


def validate_model(model: Model) -> Verdict:
    """A finished model, subgraph by subgraph; the level is the highest that anything in it needs."""
    for name in model.extensions:
        if not _EXTENSION_NAME.fullmatch(name):
            return Verdict(reason=Reason("an extension name of lower-case letters, digits, '.' and '_'", repr(name)))
    if len(set(model.extensions.values())) != len(model.extensions):
        return Verdict(reason=Reason("a prefix of its own for each extension", str(dict(model.extensions))))
    if (cycle := _cycle(model)) is not None:
        return Verdict(reason=Reason("referenced subgraphs without a cycle", f"subgraph {cycle} in itself"))
    level: int = FeatureLevel.LEVEL_4 if model.referenced else FeatureLevel.LEVEL_1
    runtime_only = False
    for subgraph in model.subgraphs():
        verdict = _validate_subgraph(subgraph, model)
        if not verdict.valid:
            return verdict
        level = max(level, verdict.level)
        runtime_only |= verdict.runtime_only
    return Verdict(level, None, runtime_only)


def _cycle(model: Model) -> int | None:
    """A referenced subgraph that contains itself (fact V3)."""
    inner = [
        {o.location.offset for o in s.operands if o.lifetime is Lifetime.SUBGRAPH and o.location.offset < len(model.referenced)}
        for s in model.referenced
    ]
    # Subgraphs none of whose bodies remain are removed until none is left or a cycle remains.
    open_ = set(range(len(inner)))
    while finished := {i for i in open_ if not inner[i] & open_}:
        open_ -= finished
    return min(open_, default=None)


def _validate_subgraph(subgraph: Subgraph, model: Model) -> Verdict:
    if not subgraph.operands or not subgraph.operations:
        return Verdict(reason=Reason("at least one operand and one operation", "none"))
    small, pools = len(model.operand_values), list(map(len, model.pools))
    for i, operand in enumerate(subgraph.operands):
        reason = None if is_sound(operand, small, pools) else validate_operand(operand, i, model)
        if reason is not None:
            return Verdict(reason=reason)
    reason = _check_indexes(subgraph) or _check_interface(subgraph) or _check_run_order(subgraph)
    if reason is not None:
        return Verdict(reason=reason)
    level, runtime_only = 1, False
    for operation, verdict in zip(subgraph.operations, verdicts_of(subgraph), strict=True):
        verdict = with_bodies(verdict, operation, model, subgraph)
        if not verdict.valid:
            return verdict
        level, runtime_only = max(level, verdict.level), runtime_only or verdict.runtime_only
    for i in (*subgraph.inputs, *subgraph.outputs):
        level = max(level, operand_level(subgraph.operands[i]))
    return Verdict(level, None, runtime_only)


def _check_indexes(subgraph: Subgraph) -> Reason | None:
    count = len(subgraph.operands)
    for operation in subgraph.operations:
        wrong = next((i for i in (*operation.inputs, *operation.outputs) if not 0 <= i < count), None)
        if wrong is not None:
            return Reason(f"operand indexes below {count}", str(wrong), operation_name(operation.type))
    return None


def _check_interface(subgraph: Subgraph) -> Reason | None:
    for listed, lifetime in ((subgraph.inputs, Lifetime.SUBGRAPH_INPUT), (subgraph.outputs, Lifetime.SUBGRAPH_OUTPUT)):
        named = {i for i, operand in enumerate(subgraph.operands) if operand.lifetime is lifetime}
        if len(set(listed)) != len(listed) or set(listed) != named:
            return Reason(f"each {lifetime.name} listed once", f"listed {list(listed)}, declared {sorted(named)}")
    return None


def _check_run_order(subgraph: Subgraph) -> Reason | None:
    """Every operand is written once, before it is read."""
    known = {i for i, operand in enumerate(subgraph.operands) if operand.lifetime not in WRITTEN}
    for operation in subgraph.operations:
        for i in operation.inputs:
            if i not in known:
                rule = "an operand that was written before it is read"
                return Reason(rule, f"operand {i}", operation_name(operation.type))
        for i in operation.outputs:
            if i in known:
                return Reason("an operand that is written once", f"operand {i}", operation_name(operation.type))
            known.add(i)
    missing = sorted(set(range(len(subgraph.operands))) - known)
    return Reason("a value for every operand, or an operation that writes it", f"operand {missing[0]}") if missing else None
