"""Operators that call subgraphs: IF and WHILE as NNAPI's or the host's, calls written out, initialisation run at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from nnbridge.converters.assembly import DraftedModel
from nnbridge.converters.declaration import Option
from nnbridge.converters.draft import Step, Unmappable, Value
from nnbridge.converters.inspection import Mapped
from nnbridge.converters.mapping import MappingKind
from nnbridge.errors import ConversionError, NnapiError, Reason, Stage, Why, first_line
from nnbridge.records import dataclass
from nnbridge.types import OperandCode, OperationCode
from nnbridge_tflite.declaration import NO_SUBGRAPHS, TfliteOperator, inputs, outputs
from nnbridge_tflite.host.codes import TENSORS
from nnbridge_tflite.host.running import element_type
from nnbridge_tflite.loads import Prepare, PreparedOperator, passing, requires, single, typed
from nnbridge_tflite.passes.assembly import subgraph_model
from nnbridge_tflite.passes.conversion import Conversion
from nnbridge_tflite.passes.states import Key, Variables, outlives_bodies, variable_name
from nnbridge_tflite.read.graph import Operator, TfliteSubgraph


def inlined(c: Conversion, operator: Operator, number: int, arguments: Sequence[int]) -> Mapped:
    callee = c.callee(number, operator, c.draft, c.variables)
    callee.check_interface(main=False)
    require_counts(callee, operator, arguments)
    for inner, outer in zip(callee.graph.inputs, arguments, strict=True):
        pass_value(c, callee, outer, inner)
    callee.convert()
    callee.report()
    for inner, outer in zip(callee.graph.outputs, operator.outputs, strict=True):
        pass_value(callee, c, inner, outer)
    return Mapped(operator.index, operator.name, MappingKind.INLINED)


def pass_value(source: Conversion, target: Conversion, index: int, to: int) -> None:
    """Hand on a tensor's value, or what it stands for."""
    if not pass_handle(source, target, index, to):
        target.values.adopt(to, source.values.value(index), source.values.constant(index))


def pass_handle(source: Conversion, target: Conversion, index: int, to: int) -> bool:
    """Hand on what a resource tensor stands for; False for other tensors."""
    if not target.is_handle(to):
        return False
    if index in source.handles:
        target.handles[to] = source.handles[index]
    return True


def require_counts(callee: Conversion, operator: Operator, arguments: Sequence[int]) -> None:
    for what, inner, outer in (("inputs", callee.graph.inputs, arguments), ("outputs", callee.graph.outputs, operator.outputs)):
        if len(inner) != len(outer):
            raise ConversionError(Reason(f"{len(outer)} {what} of subgraph {callee.number}", str(len(inner)), operator.label))
    if any(i < 0 for i in arguments):
        raise ConversionError(Reason("every input", "an omitted one", operator.label))


ROUNDS = 4
"""How often a loop's bodies are converted until the dimensions that change are open."""
_VARIABLE = (-1,)
"""In the place of a tensor's index."""
_BRANCHES = ("then_subgraph_index", "else_subgraph_index")


def _stated(name: str) -> Prepare:
    return requires(f"the option {name}", lambda node: node.operator.options.get(name) is not None, lambda node: "none")


def _tests(node: PreparedOperator) -> bool:
    """True if the graph of a loop's condition has an output, which is a scalar or the only element of a vector."""
    test, found = node.runs("cond_subgraph_index"), node.results_of("cond_subgraph_index")
    if test is None or len(test.inputs) != len(node.operator.inputs) or len(test.outputs) != 1:
        return False
    return found is None or (found[0][0] == "BOOL" and found[0][1] in (None, (), (1,)))


def _hands_on(node: PreparedOperator) -> bool:
    """True if a loop's body has outputs of its inputs' types."""
    found = node.results_of("body_subgraph_index") or ()
    return all(
        node.graph.tensors[i].type.name == type for i, (type, _) in zip(node.operator.inputs, found, strict=False) if i >= 0
    )


def _initialises(node: PreparedOperator) -> bool:
    first = node.runs("init_subgraph_index")
    return first is not None and first is not node.graphs[0] and not first.inputs and not first.outputs


IF = TfliteOperator(
    "IF",
    "One of two subgraphs.",
    inputs("condition", "arguments?*"),
    outputs("results?*"),
    options=(
        Option("then_subgraph_index", 0, "run if the condition holds"),
        Option("else_subgraph_index", 0, "run if it does not"),
    ),
    delegate=NO_SUBGRAPHS,
    effects=True,
    control="if",
    bodies=_BRANCHES,
    loads=(typed(0, "BOOL"), single(0), passing(*_BRANCHES, inputs_from=1)),
)
WHILE = TfliteOperator(
    "WHILE",
    "A subgraph repeated while another one holds.",
    inputs("values*"),
    outputs("results*"),
    options=(
        Option("cond_subgraph_index", 0, "computes whether the body is run once more"),
        Option("body_subgraph_index", 0, "computes the next values"),
    ),
    delegate=NO_SUBGRAPHS,
    effects=True,
    control="while",
    bodies=("body_subgraph_index",),
    loads=(
        requires("as many outputs as inputs", lambda node: len(node.operator.outputs) == len(node.operator.inputs)),
        requires("a graph of the inputs and one output of BOOL as cond_subgraph_index", _tests),
        passing("body_subgraph_index"),
        requires(
            "another graph as body_subgraph_index",
            lambda node: node.option("cond_subgraph_index") != node.option("body_subgraph_index"),
        ),
        requires("a body whose outputs have the types of its inputs", _hands_on, kind=Why.OUTPUT_TYPE),
    ),
)
STABLEHLO_WHILE = TfliteOperator(
    "STABLEHLO_WHILE",
    WHILE.summary,
    WHILE.inputs,
    WHILE.outputs,
    WHILE.options,
    delegate=NO_SUBGRAPHS,
    control="while",
    bodies=WHILE.bodies,
    versions=None,
)
CALL = TfliteOperator(
    "CALL",
    "A subgraph.",
    inputs("arguments?*"),
    outputs("results?*"),
    options=(Option("subgraph", 0, "its index"),),
    delegate=NO_SUBGRAPHS,
    effects=True,
    versions=None,
)
STABLEHLO_COMPOSITE = TfliteOperator(
    "STABLEHLO_COMPOSITE",
    "An operator that a subgraph decomposes.",
    CALL.inputs,
    CALL.outputs,
    options=(
        Option("name", "", "of the operator"),
        Option("decomposition_subgraph_index", 0, "the subgraph that runs in its place"),
        Option("composite_attributes", (), "of the operator; not read"),
        Option("composite_attributes_format", 0, "a flexbuffer"),
        Option("version", 0, "of the operator"),
    ),
    delegate=NO_SUBGRAPHS,
    effects=True,
    bodies=("decomposition_subgraph_index",),
    loads=(_stated("name"), _stated("composite_attributes"), passing("decomposition_subgraph_index")),
)
CALL_ONCE = TfliteOperator(
    "CALL_ONCE",
    "A subgraph that initialises variables and tables, before the first run.",
    (),
    (),
    options=(Option("init_subgraph_index", 0, "its index"),),
    delegate=NO_SUBGRAPHS,
    effects=True,
    refusal="a subgraph that is run at conversion",
    loads=(
        requires(
            "another graph, without inputs and outputs, as init_subgraph_index",
            _initialises,
            lambda node: node.option("init_subgraph_index"),
        ),
    ),
)


@CALL_ONCE.handles
def call_once(c: Conversion, operator: Operator) -> Mapped:
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
            arrays = DraftedModel(callee.draft.steps, (), [variables.now[key] for key in variables.changed])(())
        except (ValueError, IndexError, TypeError, ArithmeticError, KeyError, NnapiError) as error:
            reasons = (Reason("an initialisation that can be computed", first_line(error), operator.label, kind=Why.OPERATOR),)
            arrays = []
        for key, array in zip(variables.changed, arrays, strict=False):
            value = variables.now[key]
            c.variables.begin(key, replace(value, name=variable_name(key), data=array.reshape(value.dims), region=None))
    return Mapped(operator.index, operator.name, MappingKind.FOLDED, reasons)


@CALL.handles
def call(c: Conversion, operator: Operator) -> Mapped:
    """The subgraph in the operator's place."""
    return inlined(c, operator, int(operator.options.get("subgraph") or 0), operator.inputs)


@STABLEHLO_COMPOSITE.handles
def composite(c: Conversion, operator: Operator) -> Mapped:
    """The decomposition in the operator's place."""
    return inlined(c, operator, int(operator.options.get("decomposition_subgraph_index") or 0), operator.inputs)


@IF.handles
def branch(c: Conversion, operator: Operator) -> Mapped:
    """One of two subgraphs; what is constant outside is constant in them."""
    numbers = [int(operator.options.get(f"{name}_subgraph_index") or 0) for name in ("then", "else")]
    arguments = operator.inputs[1:]
    condition = c.values.constant(operator.inputs[0])
    if condition is not None and condition.size == 1:
        return inlined(c, operator, numbers[0 if condition.reshape(-1)[0] else 1], arguments)
    passed = [k for k in _plain(c, arguments) if c.values.constant(arguments[k]) is None]
    dims = {k: c.values.value(arguments[k]).dims for k in passed}
    bodies = [_converted(c, operator, number, arguments, dims) for number in numbers]
    keys, changed = _keys(c, bodies)
    changed = [key for key in changed if outlives_bodies(key)]
    read = _read_outputs(c, bodies[0], operator)
    if not read and not changed:
        return Mapped(operator.index, operator.name, MappingKind.DEAD)
    results = [[*(b.values.value(b.graph.outputs[k]) for k in read), *(b.variables.now[key] for key in changed)] for b in bodies]
    models = [_model(b, _body_inputs(b, passed, keys), out) for b, out in zip(bodies, results, strict=True)]
    outs = [c.values.fresh_output(operator.outputs[k]) for k in read] + [bodies[0].variables.now[key].like() for key in changed]
    for out, a, b in zip(outs, *results, strict=True):
        out.dims = _common(a.dims, b.dims)
    inputs = [c.values.value(arguments[k]) for k in passed] + [_outside(c, key) for key in keys]
    step = Step(OperationCode.IF, (c.values.value(operator.inputs[0]), *models, *inputs), tuple(outs))
    at = [operator.inputs[0], *(arguments[k] for k in passed), *_VARIABLE * len(keys)]
    return _emitted(c, operator, step, changed, at, [operator.outputs[k] for k in read], bodies)


def _read_outputs(c: Conversion, callee: Conversion, operator: Operator) -> list[int]:
    """Positions of outputs that something reads; what handles stand for is passed on."""
    read = {i for other in c.graph.operators for i in other.inputs} | set(c.graph.outputs)
    plain = []
    for k, (inner, outer) in enumerate(zip(callee.graph.outputs, operator.outputs, strict=True)):
        if not pass_handle(callee, c, inner, outer) and outer in read:
            plain.append(k)
    return plain


@dataclass(frozen=True, slots=True)
class _Roles:
    """A loop's values, by position."""

    carried: Sequence[int]
    """The body computes the next one."""
    fixed: Sequence[int]
    """Passed through, and not known before the run. What is passed through and known is constant in the bodies."""


def _roles(c: Conversion, operator: Operator, body: TfliteSubgraph) -> _Roles:
    through = {k for k, (a, b) in enumerate(zip(body.inputs, body.outputs, strict=False)) if a == b}
    plain = _plain(c, operator.inputs)
    fixed = [k for k in plain if k in through and c.values.constant(operator.inputs[k]) is None]
    return _Roles([k for k in plain if k not in through], fixed)


@WHILE.handles
@STABLEHLO_WHILE.handles
def loop(c: Conversion, operator: Operator) -> Mapped:
    """A subgraph repeated while another one says so; what the body passes through stays outside of the loop."""
    numbers = [int(operator.options.get(f"{name}_subgraph_index") or 0) for name in ("cond", "body")]
    roles = _roles(c, operator, c.subgraph(numbers[1], operator))
    test, body = _repeated(c, operator, numbers, roles)
    if test.variables.changed:
        name = variable_name(next(iter(test.variables.changed)))
        raise ConversionError(Reason("a condition that assigns no variable", name, operator.label))
    keys, changed = _keys(c, [test, body])
    # NNAPI requires the values that the body computes before the others.
    rest = [key for key in keys if key not in changed]
    results = [body.values.value(body.graph.outputs[k]) for k in roles.carried] + [body.variables.now[key] for key in changed]
    models = [
        _model(b, [*_body_inputs(b, roles.carried, changed), *_body_inputs(b, roles.fixed, rest)], out)
        for b, out in ((test, test.outputs()), (body, results))
    ]
    passed = [[c.values.value(operator.inputs[k]) for k in indexes] for indexes in (roles.carried, roles.fixed)]
    held = [[_outside(c, key) for key in listed] for listed in (changed, rest)]
    outs = [c.values.fresh_output(operator.outputs[k]) for k in roles.carried] + [value.like(name="") for value in held[0]]
    for out, value in zip(outs, results, strict=True):
        out.dims = value.dims
    step = Step(OperationCode.WHILE, (*models, *passed[0], *held[0], *passed[1], *held[1]), tuple(outs))
    for k, i in enumerate(operator.outputs):
        if k not in roles.carried and not pass_handle(c, c, operator.inputs[k], i):
            c.values.adopt(i, c.values.value(operator.inputs[k]), c.values.constant(operator.inputs[k]))
    first, last = ([operator.inputs[k] for k in indexes] for indexes in (roles.carried, roles.fixed))
    at = [*first, *_VARIABLE * len(changed), *last, *_VARIABLE * len(rest)]
    return _emitted(c, operator, step, changed, at, [operator.outputs[k] for k in roles.carried], [test, body])


def _repeated(c: Conversion, operator: Operator, numbers: Sequence[int], roles: _Roles) -> tuple[Conversion, Conversion]:
    """Condition and body, with those dimensions open that the body changes."""
    dims = {k: c.values.value(operator.inputs[k]).dims for k in (*roles.carried, *roles.fixed)}
    for _ in range(ROUNDS):
        test = _converted(c, operator, numbers[0], operator.inputs, dims, single=True)
        body = _converted(c, operator, numbers[1], operator.inputs, dims)
        results = {k: body.values.value(body.graph.outputs[k]).dims for k in roles.carried}
        merged = dims | {k: _common(dims[k], results[k]) for k in roles.carried}
        if merged == dims:
            return test, body
        dims = merged
    raise ConversionError(Reason("a loop whose values have a rank", "ranks that change", operator.label))


def _plain(c: Conversion, arguments: Sequence[int]) -> list[int]:
    """Positions of arguments that are not handles."""
    return [k for k, i in enumerate(arguments) if i < 0 or not c.is_handle(i)]


def _converted(
    c: Conversion,
    operator: Operator,
    number: int,
    arguments: Sequence[int],
    dims: Mapping[int, tuple[int, ...]],
    *,
    single: bool = False,
) -> Conversion:
    """A body with inputs of these dimensions, by position; arguments without dimensions are known in it."""
    callee = c.callee(number, operator, c.draft.inner(), Variables(c.variables))
    callee.check_interface(main=False)
    if single and len(callee.graph.outputs) != 1:
        raise ConversionError(Reason(f"one output of subgraph {number}", str(len(callee.graph.outputs)), operator.label))
    require_counts(callee, replace(operator, outputs=operator.outputs[:1]) if single else operator, arguments)
    for k, (inner, outer) in enumerate(zip(callee.graph.inputs, arguments, strict=True)):
        if k in dims and not pass_handle(c, callee, outer, inner):
            callee.values.value(inner).dims = dims[k]
        elif k not in dims:
            pass_value(c, callee, outer, inner)
    callee.convert()
    return callee


def _body_inputs(callee: Conversion, indexes: Sequence[int], keys: Sequence[Key]) -> list[Value]:
    return [callee.values.value(callee.graph.inputs[k]) for k in indexes] + [callee.variables.start(key) for key in keys]


def _keys(c: Conversion, bodies: Sequence[Conversion]) -> tuple[list[Key], list[Key]]:
    """The variables that bodies read or assign, and those that they assign."""
    changed = list(dict.fromkeys(key for b in bodies for key in b.variables.changed))
    for key in changed:
        if c.variables.held(key) is None:
            # Assigned in one body only, or later than it is read: nothing yet, as zeros.
            like = next(b.variables.now[key] for b in bodies if key in b.variables.changed)
            c.draft.spend(int(np.prod(like.dims)))
            dtype = like.data.dtype if like.data is not None else element_type(like)
            c.variables.begin(key, replace(like, name=variable_name(key), data=np.zeros(like.dims, dtype), region=None))
    keys = list(dict.fromkeys([key for b in bodies for key in b.variables.starts] + changed))
    for callee in bodies:
        for key in keys:
            callee.variables.read(key)
    return keys, changed


def _outside(c: Conversion, key: Key) -> Value:
    """The value of a body's variable before the operation of control flow."""
    return c.variables.read(key) if outlives_bodies(key) else c.variables.firsts[key]


def _model(callee: Conversion, inputs: Sequence[Value], outputs: Sequence[Value]) -> Value:
    """The operand that stands for a body."""
    return Value(
        OperandCode.MODEL, model=subgraph_model(callee.graph.name or f"subgraph {callee.number}", inputs, outputs, callee.draft)
    )


def _common(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """Dimensions that both have; others are open."""
    return tuple(m if m == n else 0 for m, n in zip(a, b, strict=True)) if len(a) == len(b) else ()


def _emitted(
    c: Conversion,
    operator: Operator,
    step: Step,
    changed: Sequence[Key],
    read: Sequence[int],
    tensors: Sequence[int],
    bodies: Sequence[Conversion],
) -> Mapped:
    """Emit as NNAPI's operation if it can be, else as the host's with the same operands; outputs are tensors, then variables.

    ``read``: the tensors that are inputs.
    """
    mapping, reasons = MappingKind.WIDE, []
    try:
        if c.context.options.mapping != MappingKind.WIDE:
            reason = Reason("an operator that the delegate supports", operator.name, operator.label, kind=Why.OPERATOR)
            raise Unmappable(reason, Stage.DELEGATE)
        title = f"{operator.index}: {operator.name}"
        c.draft.add(replace(step, name=title, mapping=mapping, source=c.source(operator)))
    except Unmappable as error:
        mapping, reasons = MappingKind.HOST, [error.reason]
        at = {"inputs": list(read), "outputs": [*tensors, *_VARIABLE * len(changed)]}
        c.emit_host(operator, step.inputs, step.outputs, {TENSORS: at})
    for callee in bodies:
        callee.report(reasons[0] if mapping == MappingKind.HOST else None)
    for i, value in zip(tensors, step.outputs, strict=False):
        c.values.commit(i, value)
    for key, value in zip(changed, step.outputs[len(tensors) :], strict=True):
        if outlives_bodies(key):
            c.variables.assign(key, value)
    return Mapped(operator.index, operator.name, mapping, tuple(reasons))
