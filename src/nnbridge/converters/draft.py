"""The model while it is being drafted: values and operations that can still be taken back.

Each operation is validated and its output shapes are computed when it is emitted, by the declarations in
:mod:`nnbridge.operations`, so what is not expressible at the chosen feature level is known before anything is built.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from nnbridge.budget import ConversionBudget, conversion_budget
from nnbridge.errors import NnapiError, Reason, Stage, Why
from nnbridge.extensions import OPTIONS_TYPE, TYPES
from nnbridge.model import ChannelQuant, Location, Model, Operand, Operation, Pool, Source, Subgraph, float32
from nnbridge.operations import definition
from nnbridge.operations.call import Arg, Call, NeedsValue
from nnbridge.operations.evaluate import resolve
from nnbridge.operations.matching import match
from nnbridge.operations.validation import (
    OperandKind,
    Verdict,
    check_operand_type,
    validate_model,
    validate_operation,
    verdict_of,
)
from nnbridge.records import dataclass
from nnbridge.types import (
    CONTROL_FLOW,
    MAX_SIZE_OF_IMMEDIATELY_COPIED_VALUES,
    TYPE_FACTS,
    FeatureLevel,
    Lifetime,
    OperandCode,
    OperationCode,
    is_extension,
)

_RELATIVE_SCALE_ERROR = 1e-5
_TENSORS = frozenset(code for code, facts in TYPE_FACTS.items() if facts.tensor)
_LAST_TYPE = max(TYPE_FACTS)
_SMALL = MAX_SIZE_OF_IMMEDIATELY_COPIED_VALUES
Key: TypeAlias = "tuple[Any, ...]"
_TRIED_SIZES = (7, 11)
"""Two sizes for an open dimension; what depends on it comes out differently."""


class Unmappable(Exception):
    """An operator, in the form that was tried, is not expressible in NNAPI."""

    def __init__(self, reason: Reason, stage: Stage = Stage.OWN) -> None:
        super().__init__(str(reason))
        self.reason = replace(reason, kind=reason.kind or Why.OPERAND_VALUE, stage=reason.stage or stage)


@dataclass(frozen=True, slots=True)
class Region:
    """A constant's place in a mapped file or another pool: bytes."""

    pool: Pool
    offset: int
    length: int


@dataclass(eq=False, slots=True)
class Value:
    """An operand to be: its type, and for constants where the value lies."""

    type: int
    dims: tuple[int, ...] = ()
    scale: float = 0.0
    zero_point: int = 0
    channel_quant: ChannelQuant | None = None
    """Scales are numbers of float32."""
    name: str = ""
    source_type: str = ""
    """The element type in the file where the operand's is another."""
    data: npt.NDArray[Any] | None = None
    """The value of a constant."""
    region: Region | None = None
    """Where the constant lies, if that place may serve the model as it is."""
    omitted: bool = False
    open_dims: tuple[int, ...] = ()
    """The dimensions while only a run can know them, where the file says which those are."""
    model: Model | None = None
    """The finished model that a MODEL operand stands for."""
    _scalar: tuple[Arg, OperandKind, Key] | None = field(default=None, init=False, repr=False)
    """What :meth:`arg`, :meth:`kind` and :meth:`key` return of a scalar, which is never changed; equal ones share it."""

    @property
    def constant(self) -> bool:
        """True if the value is known."""
        return self.data is not None

    @property
    def rank(self) -> int:
        """Number of dimensions as NNAPI counts them: a scalar of a file has 1."""
        return len(self.dims)

    @property
    def extension(self) -> bool:
        """True for a type that NNAPI does not have."""
        return is_extension(self.type)

    def like(self, **changes: Any) -> Value:
        """A new value with this one's type and quantisation, without its constant."""
        own = {"type": self.type, "dims": self.dims, "scale": self.scale, "zero_point": self.zero_point}
        return Value(**{**own, **changes})

    @property
    def scalar(self) -> bytes | None:
        """The content of a scalar that :meth:`Draft.scalar` made, which has no name."""
        if self._scalar is None:
            return None
        content: bytes = self._scalar[2][-1][1]
        return content

    def scaled(self, scale: float) -> Value:
        """The same value read with another scale and zero point 0; several times faster than ``dataclasses.replace``."""
        return Value(
            self.type,
            self.dims,
            scale,
            0,
            self.channel_quant,
            self.name,
            self.source_type,
            self.data,
            self.region,
            self.omitted,
            self.open_dims,
            self.model,
        )

    def arg(self, *, large: bool = True) -> Arg:
        """The value as shape rules see it; without ``large``, of large constants not the numbers."""
        if self._scalar is not None:
            return self._scalar[0]
        scale, data = float32(self.scale), self.data
        seen = data if large or data is None or data.nbytes <= _SMALL else None
        return Arg(self.type, self.dims, scale, self.zero_point, self.channel_quant, seen, not self.omitted, data is not None)

    def kind(self) -> OperandKind:
        """The properties of the operand that validation reads."""
        if self._scalar is not None:
            return self._scalar[1]
        channel_dim = None if self.channel_quant is None else self.channel_quant.channel_dim
        present = not self.omitted or self.constant
        return self.type, self.dims, float32(self.scale), self.zero_point, channel_dim, present, self.constant

    def key(self) -> Key:
        """All that a shape rule and validation can see of the value, but for the numbers of large constants."""
        if self._scalar is not None:
            return self._scalar[2]
        quant, data = self.channel_quant, self.data
        content = data if data is None else (data.shape, data.tobytes() if data.nbytes <= _SMALL else None)
        channel_dim = None if quant is None else quant.channel_dim
        return self.type, self.dims, self.scale, self.zero_point, channel_dim, self.omitted, content

    def operand(self) -> Operand:
        """The operand that the model gets."""
        lifetime = Lifetime.NO_VALUE if self.omitted else Lifetime.TEMPORARY_VARIABLE
        if self.constant:
            lifetime = Lifetime.CONSTANT_REFERENCE
        return Operand(self.type, self.dims, float32(self.scale), self.zero_point, self.channel_quant, lifetime, name=self.name)


@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """A drafted operation."""

    code: int
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    name: str = ""
    mapping: str = ""
    source: Source | None = None


StepKinds: TypeAlias = "tuple[tuple[OperandKind, ...], tuple[OperandKind, ...]]"


@dataclass(frozen=True, slots=True)
class Checked:
    """The findings of drafting an operation."""

    outputs: tuple[tuple[tuple[int, ...], float], ...]
    """Dimensions and scale that each output got."""
    inferred: bool
    """True if all outputs are as NNAPI computes them."""
    kinds: StepKinds
    """The inputs and outputs of that time."""
    verdict: Verdict


_CHECKED: dict[Key, Checked] = {}
"""Operations that were accepted, by all that this depends on: networks repeat the same few."""
_MOST_CHECKED = 4096


def kinds_of(step: Step) -> StepKinds:
    """The properties of an operation's inputs and outputs that validation reads."""
    return tuple([value.kind() for value in step.inputs]), tuple([value.kind() for value in step.outputs])


class Draft:
    """Operations in run order, and constants that operations share."""

    def __init__(self, feature_level: int, budget: ConversionBudget | None = None) -> None:
        self.feature_level = feature_level
        self._budget = budget or conversion_budget()
        self.steps: list[Step] = []
        self.checked: dict[Step, Checked] = {}
        self._shared: dict[Any, Value] = {}

    def inner(self) -> Draft:
        """The draft of a body, which spends from this one's budget."""
        return Draft(self.feature_level, self._budget)

    def spend(self, elements: int) -> None:
        """Account for constants that the file does not hold, before they are made; a file asks for a bounded amount."""
        self._budget.elements.spend(elements)

    def place(self, operators: int, where: str) -> None:
        """Account for operators before they are placed."""
        self._budget.operations.spend(operators, where)

    # -- constants --------------------------------------------------------------------------------------------------

    def scalar(self, type: OperandCode, value: float) -> Value:
        """A scalar constant: an operand of its own for each use, as Android's delegate and ONNX Runtime's provider add them.

        Some drivers refuse operations that name an operand twice.
        """
        key = (type, value)
        if key not in self._shared:
            like = self._shared[key] = Value(type, data=np.array(value, TYPE_FACTS[type].dtype))
            like._scalar = like.arg(), like.kind(), like.key()
        made = Value(type, data=self._shared[key].data)
        made._scalar = self._shared[key]._scalar
        return made

    def ints(self, values: Sequence[int], dims: tuple[int, ...] | None = None) -> Value:
        """A TENSOR_INT32 constant; Unmappable for numbers that 32 bits do not hold."""
        key = (OperandCode.TENSOR_INT32, tuple(values), dims)
        if key not in self._shared:
            try:
                array = np.array(values, np.int32)
            except OverflowError as error:
                raise Unmappable(Reason("numbers of 32 bits", str(list(values)))) from error
            shape = (len(array),) if dims is None else dims
            self._shared[key] = Value(OperandCode.TENSOR_INT32, shape, data=array.reshape(shape))
        return self._shared[key]

    def omitted(self, type: int) -> Value:
        """An optional operand without a value."""
        dims = (0,) if not is_extension(type) and TYPE_FACTS[type].tensor else ()
        # NNAPI requires parameters of a quantised operand even where it has no value.
        scale = 1.0 if not is_extension(type) and TYPE_FACTS[type].scale == "positive" else 0.0
        return Value(type, dims, scale, omitted=True)

    # -- operations -------------------------------------------------------------------------------------------------

    def add(self, step: Step) -> None:
        """Append an operation whose outputs get the dimensions that NNAPI computes; Unmappable if it is not valid."""
        self._budget.operations.spend(1, step.name)
        if step.code in CONTROL_FLOW:
            _check_control_flow(step, self.feature_level)
        elif not is_extension(step.code):
            self._check(step)
        self.steps.append(step)

    def _check(self, step: Step) -> None:
        for value in step.inputs:
            if value.data is not None and value.data.size == 0:
                name, empty = OperationCode(step.code).name, str(list(value.dims))
                raise Unmappable(Reason("constants with elements", empty, name, value.name, kind=Why.OPERAND_SIZE))
        key = _key_of(step)
        found = None if key is None else _CHECKED.get(key)
        if found is None:
            found = self._checked(step, large=key is None)
            if key is not None and found is not None and found.inferred:
                if len(_CHECKED) >= _MOST_CHECKED:
                    _CHECKED.clear()
                _CHECKED[key] = found
            found = found or self._checked(step, large=True)
            assert found is not None, "the numbers of large constants are all that can be missing"
        else:
            for value, (dims, scale) in zip(step.outputs, found.outputs, strict=True):
                value.dims, value.scale = dims, scale
        if found.verdict.level > self.feature_level:
            name = OperationCode(step.code).name
            raise Unmappable(
                Reason(f"feature level {found.verdict.level} at least", str(self.feature_level), name, kind=Why.FEATURE_LEVEL),
                Stage.DEVICE,
            )
        self.checked[step] = found

    def _checked(self, step: Step, *, large: bool) -> Checked | None:
        """The findings for an operation, or Unmappable; None if they depend on numbers of large constants, which are not read."""
        inferred = self._resolve(step, large=large)
        if inferred is None:
            return None
        inputs, outputs = kinds_of(step)
        for type, dims, scale, zero_point, *_ in outputs:
            broken = check_operand_type(type, dims, scale, zero_point)
            if broken is not None:
                raise Unmappable(replace(broken, operation=OperationCode(step.code).name), Stage.BUILDING)
        verdict = verdict_of(step.code, inputs, outputs)
        if verdict.reason is not None:
            raise Unmappable(verdict.reason, Stage.BUILDING)
        return Checked(tuple([(value.dims, value.scale) for value in step.outputs]), inferred, (inputs, outputs), verdict)

    def _resolve(self, step: Step, *, large: bool) -> bool | None:
        """Fill in the outputs' dimensions, and insist on the quantisation that NNAPI lays down for them; True if all is known.

        This comes before validation, because the dimensions that a file declares for computed tensors may be stale. None where
        a value would have to be read without ``large``.
        """
        declared = definition(step.code)
        assert declared is not None
        args, outs = [value.arg(large=large) for value in step.inputs], [value.arg() for value in step.outputs]
        found = match(declared, [a.type for a in args], [a.type for a in outs])
        if isinstance(found, Reason):
            raise Unmappable(found, Stage.BUILDING)
        if [arg for arg in args if arg.present and _open(arg)]:
            tried = _open_dims(Call(declared, found.signature, tuple(args), tuple(outs)))
            for i, value in enumerate(step.outputs):
                value.dims = tried[i] if tried is not None else value.open_dims or (0,) * len(value.dims)
            return False
        try:
            resolved = resolve(Call(declared, found.signature, tuple(args), tuple(outs)))
        except NeedsValue:
            if not large:
                return None
            for value in step.outputs:
                value.dims = value.open_dims or value.dims
            return False
        except NnapiError as error:
            # NNAPI computes dimensions when it runs a model; what it checks while one is built comes first.
            built = verdict_of(step.code, *kinds_of(step)).reason
            if built is not None:
                raise Unmappable(built, Stage.BUILDING) from error
            raise Unmappable(error.reason, Stage.RUNNING) from error
        for value, arg in zip(step.outputs, resolved, strict=True):
            _require_same_quantisation(declared.name, value, arg)
            value.dims = arg.dims if min(arg.dims, default=0) >= 0 else tuple(max(d, 0) for d in arg.dims)
        return all(
            min(arg.dims, default=0) > 0 and (float32(value.scale), value.zero_point) == (arg.scale, arg.zero_point)
            for value, arg in zip(step.outputs, resolved, strict=True)
        )


def _key_of(step: Step) -> Key | None:
    """The key of an operation in :data:`_CHECKED`; None where a dimension is open or a type may come to mean another."""
    values = (*step.inputs, *step.outputs)
    for value in values:
        if value._scalar is None and (value.type > _LAST_TYPE or (not value.omitted and _is_open(value.type, value.dims))):
            return None
    return step.code, len(step.inputs), *[value.key() for value in values]


def _is_open(type: int, dims: tuple[int, ...]) -> bool:
    return 0 in dims if dims else type in _TENSORS


def _open(arg: Arg) -> bool:
    """True for a tensor of which a dimension or the rank is not known."""
    return _is_open(arg.type, arg.dims)


def _open_dims(call: Call) -> list[tuple[int, ...]] | None:
    """Output dimensions while some of the inputs' are open: those that come out the same whatever stands there.

    None where the operation cannot be tried, because a rank is not known or no number fits.
    """
    found = []
    for size in _TRIED_SIZES:
        if any(arg.present and _open(arg) and not arg.dims for arg in call.args):
            return None
        args = (arg.replace(dims=tuple(d or size for d in arg.dims)) if arg.present else arg for arg in call.args)
        try:
            found.append([arg.dims for arg in resolve(replace(call, args=tuple(args)))])
        except (NnapiError, NeedsValue):
            return None
    return [tuple(max(a, 0) if a == b else 0 for a, b in zip(*dims, strict=True)) for dims in zip(*found, strict=True)]


def _require_same_quantisation(operation: str, value: Value, computed: Arg) -> None:
    """An operation that hands on its input's parameters, or fixed ones, cannot serve a tensor that declares others.

    A scale that is a rounding away becomes the computed one, because executions insist on it for model outputs.
    """
    if not value.scale or not computed.scale:
        return
    close = abs(value.scale - computed.scale) <= _RELATIVE_SCALE_ERROR * computed.scale
    if not close or value.zero_point != computed.zero_point:
        found = f"{value.scale:.6g}, {value.zero_point}"
        raise Unmappable(
            Reason(
                f"an output with scale {computed.scale:.6g} and zero point {computed.zero_point}",
                found,
                operation,
                value.name,
                Why.QUANTISATION_PARAMETERS,
            )
        )
    value.scale = computed.scale


def options_value(extension: str, text: bytes) -> Value:
    """The operand that holds the options of a host extension's operation."""
    code = TYPES.code(extension, OPTIONS_TYPE.number)
    return Value(code, (len(text),), data=np.frombuffer(text, np.uint8))


def _check_control_flow(step: Step, feature_level: int) -> None:
    """IF and WHILE against the models that they refer to, which are in their operands."""
    values = list({id(v): v for v in (*step.inputs, *step.outputs)}.values())
    index = {id(v): i for i, v in enumerate(values)}
    models = [v.model for v in values if v.model is not None]
    operands: list[Operand] = []
    bodies: list[Subgraph] = []
    for value in values:
        operand = value.operand()
        if value.model is not None:
            operand = replace(operand, lifetime=Lifetime.SUBGRAPH, location=Location(offset=len(bodies)))
            bodies.append(value.model.main)
        operands.append(operand)
    operation = Operation(step.code, tuple(index[id(v)] for v in step.inputs), tuple(index[id(v)] for v in step.outputs))
    main = Subgraph(tuple(operands), (operation,), (), ())
    verdict = validate_operation(operation, operands, Model(main, tuple(bodies)), main)
    name = OperationCode(step.code).name
    if verdict.reason is not None:
        raise Unmappable(verdict.reason)
    hosted = next(
        (o.name or m.operation_name(o) for m in models for s in m.subgraphs() for o in s.operations if is_extension(o.type)), None
    )
    if hosted is not None:
        raise Unmappable(Reason("bodies with only NNAPI operations", hosted, name, kind=Why.OPERATOR))
    level = max([verdict.level, FeatureLevel.LEVEL_4, *(validate_model(m).level for m in models)])
    if level > feature_level:
        raise Unmappable(Reason(f"feature level {level} at least", str(feature_level), name, kind=Why.FEATURE_LEVEL))
