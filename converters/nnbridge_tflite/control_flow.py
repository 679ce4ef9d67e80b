"""Operators that call subgraphs: IF and WHILE as NNAPI's or the host's, calls written out, initialisation run at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from nnbridge.converters.draft import Step, Unmappable, Value
from nnbridge.converters.inspection import Mapped
from nnbridge.errors import ConversionError, NnapiError, Reason
from nnbridge.types import OperandCode, OperationCode
from nnbridge_tflite.assemble import body
from nnbridge_tflite.evaluation import element_type, evaluated
from nnbridge_tflite.extension import extension_code, options_value
from nnbridge_tflite.graph import ELEMENT_TYPES, Operator, Subgraph
from nnbridge_tflite.host import HOST
from nnbridge_tflite.subgraphs import (
    DEAD,
    FOLDED,
    HANDLERS,
    HOST_MAPPING,
    INLINED,
    STATE,
    WIDE,
    Handler,
    SubgraphConversion,
)
from nnbridge_tflite.variables import Key, Variables, outlives_bodies

INT64 = next(code for code, element in ELEMENT_TYPES.items() if element.name == "INT64")

ROUNDS = 4
"""How often a loop's bodies are converted until the dimensions that change are open."""


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Register what becomes of operators."""

    def register(function: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(names, function))
        return function

    return register


# -- variables and tables --------------------------------------------------------------------------------------------


@handles("VAR_HANDLE")
def var_handle(c: SubgraphConversion, operator: Operator) -> Mapped:
    """A variable's handle, known by container and name."""
    options = operator.options
    return _handle(c, operator, ("variable", options.get("container") or "", options.get("shared_name") or ""))


@handles("HASHTABLE")
def hashtable(c: SubgraphConversion, operator: Operator) -> Mapped:
    """A table's handle, known by number."""
    return _handle(c, operator, ("table", operator.options.get("table_id") or 0))


def _handle(c: SubgraphConversion, operator: Operator, key: Key) -> Mapped:
    c.handles[operator.outputs[0]] = key
    return Mapped(operator.index, operator.name, FOLDED)


def _key(c: SubgraphConversion, operator: Operator) -> Key | None:
    """The variable or table that an operator's handle stands for; None for a handle of unknown origin."""
    return c.handles.get(operator.inputs[0])


def _refused(c: SubgraphConversion, operator: Operator, reason: Reason) -> Mapped:
    """An operation that the host refuses when it runs; handles are none of its operands."""
    given = tuple(c.values.value(i) for i in operator.inputs if not c.is_handle(i))
    out = c.values.fresh_output(operator.outputs[0])
    name = f"{operator.index}: {operator.name}"
    c.draft.add(Step(extension_code(operator.code), (*given, options_value(b"{}")), (out,), name, HOST_MAPPING))
    c.values.commit(operator.outputs[0], out)
    return Mapped(operator.index, operator.name, HOST_MAPPING, (reason,))


def _named(c: SubgraphConversion, operator: Operator) -> Key:
    key = _key(c, operator)
    if key is None:
        label = c.graph.tensors[operator.inputs[0]].label
        raise ConversionError(Reason("a handle of a variable or a table", label, operator.label))
    return key


@handles("READ_VARIABLE")
def read_variable(c: SubgraphConversion, operator: Operator) -> Mapped:
    """The variable's present value."""
    key = _key(c, operator)
    if key is None or c.variables.held(key) is None:
        return _refused(c, operator, Reason("a variable that was assigned before it is read", "none yet", operator.label))
    c.values.commit(operator.outputs[0], c.variables.read(key))
    return Mapped(operator.index, operator.name, STATE)


@handles("ASSIGN_VARIABLE")
def assign_variable(c: SubgraphConversion, operator: Operator) -> Mapped:
    """The variable's value from now on."""
    c.variables.assign(_named(c, operator), c.values.value(operator.inputs[1]))
    return Mapped(operator.index, operator.name, STATE)


@handles("HASHTABLE_IMPORT")
def hashtable_import(c: SubgraphConversion, operator: Operator) -> Mapped:
    """A table's contents, if they are constant numbers."""
    listed = [c.values.value(i) for i in operator.inputs[1:]]
    if all(c.values.constant(i) is not None for i in operator.inputs[1:]):
        c.context.tables.setdefault(_named(c, operator), (listed[0], listed[1]))
        return Mapped(operator.index, operator.name, FOLDED)
    return Mapped(operator.index, operator.name, FOLDED, (Reason("a table of constant numbers", "another", operator.label),))


@handles("HASHTABLE_FIND")
def hashtable_find(c: SubgraphConversion, operator: Operator) -> Mapped:
    """A look-up on the host, which gets the table in the handle's place."""
    table = c.context.tables.get(_key(c, operator))
    if table is None:
        return _refused(c, operator, Reason("a table of numbers", "strings, or a table without contents", operator.label))
    query, default = (c.values.value(i) for i in operator.inputs[1:])
    out = c.values.fresh_output(operator.outputs[0])
    out.dims = query.dims
    inputs = (*table, query, default, options_value(b"{}"))
    c.draft.add(Step(extension_code(operator.code), inputs, (out,), f"{operator.index}: {operator.name}", HOST_MAPPING))
    c.values.commit(operator.outputs[0], out)
    return Mapped(operator.index, operator.name, HOST_MAPPING)


@handles("HASHTABLE_SIZE")
def hashtable_size(c: SubgraphConversion, operator: Operator) -> Mapped:
    """The number of a table's keys."""
    table = c.context.tables.get(_key(c, operator))
    if table is None:
        return _refused(c, operator, Reason("a table of numbers", "strings, or a table without contents", operator.label))
    c.values.fold(operator.outputs[0], np.array([table[0].dims[0]], np.int64))
    return Mapped(operator.index, operator.name, FOLDED)


@handles("MULTINOMIAL", "RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM")
def random_numbers(c: SubgraphConversion, operator: Operator) -> Mapped:
    """Draws on the host; of a stream that seeds name, the place is kept from run to run."""
    reasons = [Reason("an operator that NNAPI can express", operator.name, operator.label)]
    if not any(operator.options.get(name) for name in ("seed", "seed2")):
        return c.host(operator, reasons)
    key = (c.number, f"operator {operator.index}")
    c.variables.begin(key, Value(extension_code(INT64), (1,), name=f"{operator.name} {key[1]}", data=np.zeros(1, np.int64)))
    return c.host(operator, reasons, key)


# -- calls -----------------------------------------------------------------------------------------------------------


@handles("CALL_ONCE")
def call_once(c: SubgraphConversion, operator: Operator) -> Mapped:
    """The subgraph that initialises variables and tables, run now: what it assigns is what variables start as."""
    number = int(operator.options.get("init_subgraph_index") or 0)
    reasons: tuple[Reason, ...] = ()
    if number not in c.context.initialised:
        c.context.initialised.add(number)
        variables = Variables()
        callee = c.callee(number, operator, c.draft.inner(), variables)
        callee.check_interface(main=False)
        callee.convert()
        callee.report()
        try:
            arrays = evaluated(callee.draft.steps, [variables.now[key] for key in variables.changed], HOST.operations)
        except (ValueError, IndexError, TypeError, ArithmeticError, KeyError, NnapiError) as error:
            reasons = (Reason("an initialisation that can be computed", str(error), operator.label),)
            arrays = []
        for key, array in zip(variables.changed, arrays, strict=False):
            value = variables.now[key]
            c.variables.begin(key, replace(value, name=_name(key), data=array.reshape(value.dims), region=None))
    return Mapped(operator.index, operator.name, FOLDED, reasons)


def _name(key: Key) -> str:
    return "/".join(str(part) for part in key[1:] if part != "") if isinstance(key, tuple) else str(key)


@handles("CALL")
def call(c: SubgraphConversion, operator: Operator) -> Mapped:
    """The subgraph in the operator's place."""
    return _inlined(c, operator, int(operator.options.get("subgraph") or 0), operator.inputs)


@handles("STABLEHLO_COMPOSITE")
def composite(c: SubgraphConversion, operator: Operator) -> Mapped:
    """The decomposition in the operator's place."""
    return _inlined(c, operator, int(operator.options.get("decomposition_subgraph_index") or 0), operator.inputs)


def _inlined(c: SubgraphConversion, operator: Operator, number: int, arguments: Sequence[int]) -> Mapped:
    callee = c.callee(number, operator, c.draft, c.variables)
    callee.check_interface(main=False)
    _require_counts(callee, operator, arguments)
    for inner, outer in zip(callee.graph.inputs, arguments, strict=True):
        if not _pass_handle(c, callee, outer, inner):
            callee.values.adopt(inner, c.values.value(outer), c.values.constant(outer))
    callee.convert()
    callee.report()
    for inner, outer in zip(callee.graph.outputs, operator.outputs, strict=True):
        if not _pass_handle(callee, c, inner, outer):
            c.values.adopt(outer, callee.values.value(inner), callee.values.constant(inner))
    return Mapped(operator.index, operator.name, INLINED)


def _pass_handle(source: SubgraphConversion, target: SubgraphConversion, index: int, to: int) -> bool:
    """Hand on what a resource tensor stands for; False for other tensors."""
    if not target.is_handle(to):
        return False
    if index in source.handles:
        target.handles[to] = source.handles[index]
    return True


def _require_counts(callee: SubgraphConversion, operator: Operator, arguments: Sequence[int]) -> None:
    for what, inner, outer in (("inputs", callee.graph.inputs, arguments), ("outputs", callee.graph.outputs, operator.outputs)):
        if len(inner) != len(outer):
            raise ConversionError(Reason(f"{len(outer)} {what} of subgraph {callee.number}", str(len(inner)), operator.label))
    if any(i < 0 for i in arguments):
        raise ConversionError(Reason("every input", "an omitted one", operator.label))


# -- control flow ----------------------------------------------------------------------------------------------------


@handles("IF")
def branch(c: SubgraphConversion, operator: Operator) -> Mapped:
    """One of two subgraphs; what is constant outside is constant in them."""
    numbers = [int(operator.options.get(f"{name}_subgraph_index") or 0) for name in ("then", "else")]
    arguments = operator.inputs[1:]
    condition = c.values.constant(operator.inputs[0])
    if condition is not None and condition.size == 1:
        return _inlined(c, operator, numbers[0 if condition.reshape(-1)[0] else 1], arguments)
    passed = [k for k in _plain(c, arguments) if c.values.constant(arguments[k]) is None]
    dims = {k: c.values.value(arguments[k]).dims for k in passed}
    bodies = [_converted(c, operator, number, arguments, dims) for number in numbers]
    keys, changed = _keys(c, bodies)
    changed = [key for key in changed if outlives_bodies(key)]
    wanted = _wanted(c, bodies[0], operator)
    if not wanted and not changed:
        return Mapped(operator.index, operator.name, DEAD)
    made = [[*(b.values.value(b.graph.outputs[k]) for k in wanted), *(b.variables.now[key] for key in changed)] for b in bodies]
    models = [_model(b, _taken(b, passed, keys), out) for b, out in zip(bodies, made, strict=True)]
    outs = [c.values.fresh_output(operator.outputs[k]) for k in wanted] + [bodies[0].variables.now[key].like() for key in changed]
    for out, a, b in zip(outs, *made, strict=True):
        out.dims = _common(a.dims, b.dims)
    inputs = [c.values.value(arguments[k]) for k in passed] + [_outside(c, key) for key in keys]
    step = Step(OperationCode.IF, (c.values.value(operator.inputs[0]), *models, *inputs), tuple(outs))
    return _emitted(c, operator, step, changed, [operator.outputs[k] for k in wanted], bodies)


def _wanted(c: SubgraphConversion, made: SubgraphConversion, operator: Operator) -> list[int]:
    """Places of outputs that something reads; what handles stand for is handed on."""
    read = {i for other in c.graph.operators for i in other.inputs} | set(c.graph.outputs)
    plain = []
    for k, (inner, outer) in enumerate(zip(made.graph.outputs, operator.outputs, strict=True)):
        if not _pass_handle(made, c, inner, outer) and outer in read:
            plain.append(k)
    return plain


@dataclass(frozen=True, slots=True)
class _Roles:
    """What becomes of a loop's values, by place."""

    carried: Sequence[int]
    """The body makes the next one."""
    fixed: Sequence[int]
    """Handed through, and not known before the run. What is handed through and known is constant in the bodies."""


def _roles(c: SubgraphConversion, operator: Operator, body: Subgraph) -> _Roles:
    through = {k for k, (a, b) in enumerate(zip(body.inputs, body.outputs, strict=False)) if a == b}
    plain = _plain(c, operator.inputs)
    fixed = [k for k in plain if k in through and c.values.constant(operator.inputs[k]) is None]
    return _Roles([k for k in plain if k not in through], fixed)


@handles("WHILE", "STABLEHLO_WHILE")
def loop(c: SubgraphConversion, operator: Operator) -> Mapped:
    """A subgraph repeated while another one says so; what the body hands through stays outside of the loop."""
    numbers = [int(operator.options.get(f"{name}_subgraph_index") or 0) for name in ("cond", "body")]
    roles = _roles(c, operator, c.subgraph(numbers[1], operator))
    test, again = _repeated(c, operator, numbers, roles)
    if test.variables.changed:
        name = _name(next(iter(test.variables.changed)))
        raise ConversionError(Reason("a condition that assigns no variable", name, operator.label))
    keys, changed = _keys(c, [test, again])
    # NNAPI wants the values that the body makes before the others.
    rest = [key for key in keys if key not in changed]
    made = [again.values.value(again.graph.outputs[k]) for k in roles.carried] + [again.variables.now[key] for key in changed]
    models = [
        _model(b, [*_taken(b, roles.carried, changed), *_taken(b, roles.fixed, rest)], out)
        for b, out in ((test, test.outputs()), (again, made))
    ]
    given = [[c.values.value(operator.inputs[k]) for k in places] for places in (roles.carried, roles.fixed)]
    held = [[_outside(c, key) for key in listed] for listed in (changed, rest)]
    outs = [c.values.fresh_output(operator.outputs[k]) for k in roles.carried] + [value.like(name="") for value in held[0]]
    for out, value in zip(outs, made, strict=True):
        out.dims = value.dims
    step = Step(OperationCode.WHILE, (*models, *given[0], *held[0], *given[1], *held[1]), tuple(outs))
    for k, i in enumerate(operator.outputs):
        if k not in roles.carried and not _pass_handle(c, c, operator.inputs[k], i):
            c.values.adopt(i, c.values.value(operator.inputs[k]), c.values.constant(operator.inputs[k]))
    return _emitted(c, operator, step, changed, [operator.outputs[k] for k in roles.carried], [test, again])


def _repeated(
    c: SubgraphConversion, operator: Operator, numbers: Sequence[int], roles: _Roles
) -> tuple[SubgraphConversion, SubgraphConversion]:
    """Condition and body, with those dimensions open that the body changes."""
    dims = {k: c.values.value(operator.inputs[k]).dims for k in (*roles.carried, *roles.fixed)}
    for _ in range(ROUNDS):
        test = _converted(c, operator, numbers[0], operator.inputs, dims, single=True)
        again = _converted(c, operator, numbers[1], operator.inputs, dims)
        made = {k: again.values.value(again.graph.outputs[k]).dims for k in roles.carried}
        merged = dims | {k: _common(dims[k], made[k]) for k in roles.carried}
        if merged == dims:
            return test, again
        dims = merged
    raise ConversionError(Reason("a loop whose values have a rank", "ranks that change", operator.label))


def _plain(c: SubgraphConversion, arguments: Sequence[int]) -> list[int]:
    """Places of arguments that are not handles."""
    return [k for k, i in enumerate(arguments) if i < 0 or not c.is_handle(i)]


def _converted(
    c: SubgraphConversion,
    operator: Operator,
    number: int,
    arguments: Sequence[int],
    dims: Mapping[int, tuple[int, ...]],
    *,
    single: bool = False,
) -> SubgraphConversion:
    """A body with inputs of these dimensions, by place; arguments without dimensions are known in it."""
    made = c.callee(number, operator, c.draft.inner(), Variables(c.variables))
    made.check_interface(main=False)
    if single and len(made.graph.outputs) != 1:
        raise ConversionError(Reason(f"one output of subgraph {number}", str(len(made.graph.outputs)), operator.label))
    _require_counts(made, replace(operator, outputs=operator.outputs[:1]) if single else operator, arguments)
    for k, (inner, outer) in enumerate(zip(made.graph.inputs, arguments, strict=True)):
        if _pass_handle(c, made, outer, inner):
            continue
        if k in dims:
            made.values.value(inner).dims = dims[k]
        else:
            made.values.adopt(inner, c.values.value(outer), c.values.constant(outer))
    made.convert()
    return made


def _taken(made: SubgraphConversion, places: Sequence[int], keys: Sequence[Key]) -> list[Value]:
    return [made.values.value(made.graph.inputs[k]) for k in places] + [made.variables.start(key) for key in keys]


def _keys(c: SubgraphConversion, bodies: Sequence[SubgraphConversion]) -> tuple[list[Key], list[Key]]:
    """The variables that bodies read or assign, and those that they assign."""
    changed = list(dict.fromkeys(key for b in bodies for key in b.variables.changed))
    for key in changed:
        if c.variables.held(key) is None:
            # Assigned in one body only, or later than it is read: nothing yet, as zeros.
            like = next(b.variables.now[key] for b in bodies if key in b.variables.changed)
            c.draft.spend(int(np.prod(like.dims)))
            dtype = like.data.dtype if like.data is not None else element_type(like)
            c.variables.begin(key, replace(like, name=_name(key), data=np.zeros(like.dims, dtype), region=None))
    keys = list(dict.fromkeys([key for b in bodies for key in b.variables.starts] + changed))
    for made in bodies:
        for key in keys:
            made.variables.read(key)
    return keys, changed


def _outside(c: SubgraphConversion, key: Key) -> Value:
    """What a body's variable holds before the operation of control flow."""
    return c.variables.read(key) if outlives_bodies(key) else c.variables.firsts[key]


def _model(made: SubgraphConversion, inputs: Sequence[Value], outputs: Sequence[Value]) -> Value:
    """The operand that stands for a body."""
    return Value(OperandCode.MODEL, model=body(made.graph.name or f"subgraph {made.number}", inputs, outputs, made.draft))


def _common(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """Dimensions that both have; others are open."""
    return tuple(m if m == n else 0 for m, n in zip(a, b, strict=True)) if len(a) == len(b) else ()


def _emitted(
    c: SubgraphConversion,
    operator: Operator,
    step: Step,
    changed: Sequence[Key],
    tensors: Sequence[int],
    bodies: Sequence[SubgraphConversion],
) -> Mapped:
    """Emit as NNAPI's operation if it can be, else as the host's with the same operands; outputs are tensors, then variables."""
    name = f"{operator.index}: {operator.name}"
    mapping, reasons = WIDE, []
    try:
        if c.context.options.mapping != WIDE:
            raise Unmappable(Reason("an operator that Android's delegate maps", operator.name, operator.label))
        c.draft.add(replace(step, name=name, mapping=WIDE))
    except Unmappable as error:
        mapping, reasons = HOST_MAPPING, [error.reason]
        inputs = (*step.inputs, options_value(b"{}"))
        c.draft.add(replace(step, code=extension_code(operator.code), inputs=inputs, name=name, mapping=HOST_MAPPING))
    for made in bodies:
        made.report(reasons[0] if mapping == HOST_MAPPING else None)
    for i, value in zip(tensors, step.outputs, strict=False):
        c.values.commit(i, value)
    for key, value in zip(changed, step.outputs[len(tensors) :], strict=True):
        if outlives_bodies(key):
            c.variables.assign(key, value)
    return Mapped(operator.index, operator.name, mapping, tuple(reasons))
