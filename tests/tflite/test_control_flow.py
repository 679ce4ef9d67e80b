"""Several subgraphs: IF, WHILE, calls, variables and tables, against LiteRT."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from nnbridge import devices, storage
from nnbridge.converters import ConversionOptions
from nnbridge.errors import ConversionError, MissedDeadlineTransientError, NnapiError
from nnbridge.file import ModelFile
from nnbridge.model import Model
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.runtime.states import States
from nnbridge.types import OperationCode
from tests.tflite.agreement import Array, converted, differences, litert, run
from tests.tflite.files import TfliteBuilder

F, I32, B = "float32", "int32", "bool"
SHAPE = (2, 3)


def _unary(main: TfliteBuilder, name: str, shape: tuple[int, ...] = SHAPE) -> int:
    """A subgraph of one operator."""
    body = main.beside()
    x, y = body.tensor(shape), body.tensor(shape)
    body.operator(name, [x], [y], {})
    return main.add(body, [x], [y])


def _if(folder: Path, then: str, otherwise: str) -> Path:
    main = TfliteBuilder()
    condition, x, y = main.tensor((), B, name="condition"), main.tensor(SHAPE, name="x"), main.tensor(SHAPE, name="y")
    options = {"then_subgraph_index": _unary(main, then), "else_subgraph_index": _unary(main, otherwise)}
    main.operator("IF", [condition, x], [y], options)
    return main.write(folder / "m.tflite", [condition, x], [y])


def _condition(main: TfliteBuilder, limit: int, shape: tuple[int, ...] = SHAPE) -> int:
    """count < limit, over (count, x)."""
    test = main.beside()
    count, x, answer = test.tensor((), I32), test.tensor(shape), test.tensor((), B)
    test.operator("LESS", [count, test.constant(limit, I32)], [answer], {})
    return main.add(test, [count, x], [answer])


def _loop(folder: Path, operator: str = "ABS", limit: int = 3) -> Path:
    """count, x = 0, x; while count < limit: count, x = count + 1, operator(x) + x."""
    main = TfliteBuilder()
    body = main.beside()
    count, x = body.tensor((), I32), body.tensor(SHAPE)
    more, made, y = body.tensor((), I32), body.tensor(SHAPE), body.tensor(SHAPE)
    body.operator("ADD", [count, body.constant(1, I32)], [more], {"fused_activation_function": 0})
    body.operator(operator, [x], [made], {})
    body.operator("ADD", [made, x], [y], {"fused_activation_function": 0})
    start, x0 = main.constant(0, I32), main.tensor(SHAPE, name="x")
    outs = [main.tensor((), I32, name="n"), main.tensor(SHAPE, name="y")]
    options = {"cond_subgraph_index": _condition(main, limit), "body_subgraph_index": main.add(body, [count, x], [more, y])}
    main.operator("WHILE", [start, x0], outs, options)
    return main.write(folder / "m.tflite", [x0], outs)


def _codes(model: Model) -> list[int]:
    return [operation.type for operation in model.main.operations]


def _agrees(path: Path, mapping: str, calls: int = 1) -> Model:
    for seed in (0, 1, 2):
        found, placements = differences(path, seed, calls=calls)
        assert max(found) < 1e-6
        assert mapping in [p.mapping for p in placements]
    return converted(path)[0]


def test_if_of_nnapis_operations_is_nnapis_if(tmp_path: Path) -> None:
    model = _agrees(_if(tmp_path, "ABS", "NEG"), "wide")
    assert _codes(model) == [OperationCode.IF]


def test_if_with_a_host_operation_runs_on_the_host(tmp_path: Path) -> None:
    path = _if(tmp_path, "ROUND", "NEG")
    _agrees(path, "host")
    _, placements = converted(path)
    assert "bodies with only NNAPI operations" in str(placements[0].reasons[0])


def test_if_is_the_hosts_under_the_delegate_mapping_and_below_level_4(tmp_path: Path) -> None:
    path = _if(tmp_path, "ABS", "NEG")
    for options in ({"mapping": "delegate"}, {"feature_level": 3}):
        found, placements = differences(path, **options)
        assert (max(found), placements[0].mapping) == (0, "host")


def test_while_of_nnapis_operations_is_nnapis_while(tmp_path: Path) -> None:
    model = _agrees(_loop(tmp_path), "wide")
    assert OperationCode.WHILE in _codes(model)


@pytest.mark.parametrize("limit", [0, 1, 4])
def test_while_with_a_host_operation_runs_on_the_host(limit: int, tmp_path: Path) -> None:
    _agrees(_loop(tmp_path, "ROUND", limit), "host")


def test_saved_control_flow_answers_the_same(tmp_path: Path) -> None:
    x = np.array([[-1.4, 2.6, 0.0], [3.5, -0.5, 1.0]], np.float32)
    for operator in ("ABS", "ROUND"):
        model, _ = converted(_loop(tmp_path, operator))
        storage.save(model, tmp_path / "m.nnapi")
        loaded = storage.load(tmp_path / "m.nnapi")
        for ours, theirs in zip(run(model, {"x": x}), run(loaded, {"x": x}), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_a_loop_on_the_host_keeps_to_its_time(tmp_path: Path) -> None:
    model, _ = converted(_loop(tmp_path, "ROUND", 2**31 - 1))
    compilation = Compilation.create(model, [])
    compilation.finish()
    execution = Execution(compilation)
    execution.set_loop_timeout(20_000_000)
    with pytest.raises(MissedDeadlineTransientError, match="a loop that ends within 20000000 ns"):
        execution.run({"x": np.zeros(SHAPE, np.float32)})


@pytest.mark.parametrize("operator", ["ABS", "ROUND"])
def test_control_flow_answers_the_same_beside_drivers(operator: str, tmp_path: Path) -> None:
    model, _ = converted(_loop(tmp_path, operator))
    inputs = {"x": np.array([[-1.4, 2.6, 0.0], [3.5, -0.5, 1.0]], np.float32)}
    compilation = Compilation.create(model, [devices.device("nnapi-sample_float_fast"), devices.device("nnapi-sample_minimal")])
    compilation.finish()
    for ours, theirs in zip(Execution(compilation).run(inputs).values(), run(model, inputs), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_value_that_grows_in_a_loop_has_open_dimensions(tmp_path: Path) -> None:
    main = TfliteBuilder()
    test, body = main.beside(), main.beside()
    count, x, answer = test.tensor((), I32), test.tensor((1, 2)), test.tensor((), B)
    test.operator("LESS", [count, test.constant(3, I32)], [answer], {})
    tested = main.add(test, [count, x], [answer])
    count, x, more, y = body.tensor((), I32), body.tensor((1, 2)), body.tensor((), I32), body.tensor((2, 2))
    body.operator("ADD", [count, body.constant(1, I32)], [more], {"fused_activation_function": 0})
    body.operator("CONCATENATION", [x, body.constant(np.ones((1, 2)), F)], [y], {"axis": 0, "fused_activation_function": 0})
    options = {"cond_subgraph_index": tested, "body_subgraph_index": main.add(body, [count, x], [more, y])}
    start, x0 = main.constant(0, I32), main.tensor((1, 2), name="x")
    outs = [main.tensor((), I32, name="n"), main.tensor((1, 2), shape_signature=[-1, 2], name="y")]
    main.operator("WHILE", [start, x0], outs, options)
    path = main.write(tmp_path / "m.tflite", [x0], outs)
    model, _ = converted(path)
    [_, grown] = run(model, {"x": np.array([[5, 6]], np.float32)})
    assert grown.tolist() == [[5, 6], [1, 1], [1, 1], [1, 1]]
    assert model.main.operands[model.own_outputs[1]].dims == (0, 2)


def test_what_a_loop_hands_through_stays_outside(tmp_path: Path) -> None:
    main = TfliteBuilder()
    test, body = main.beside(), main.beside()
    values = [test.tensor((), I32), test.tensor(SHAPE), test.tensor((), I32)]
    answer = test.tensor((), B)
    test.operator("LESS", [values[0], values[2]], [answer], {})
    tested = main.add(test, values, [answer])
    count, x, limit = body.tensor((), I32), body.tensor(SHAPE), body.tensor((), I32)
    more = body.tensor((), I32)
    body.operator("ADD", [count, body.constant(1, I32)], [more], {"fused_activation_function": 0})
    options = {"cond_subgraph_index": tested, "body_subgraph_index": main.add(body, [count, x, limit], [more, x, limit])}
    start, x0, most = main.constant(0, I32), main.tensor(SHAPE, name="x"), main.tensor((), I32, name="limit")
    outs = [main.tensor((), I32, name="n"), main.tensor(SHAPE, name="y"), main.tensor((), I32, name="m")]
    main.operator("WHILE", [start, x0, most], outs, options)
    model = _agrees(main.write(tmp_path / "m.tflite", [x0, most], outs), "wide")
    loop = next(o for o in model.main.operations if o.type == OperationCode.WHILE)
    assert len(loop.outputs) == 1


def test_calls_are_written_out(tmp_path: Path) -> None:
    main = TfliteBuilder()
    x, y, z = main.tensor(SHAPE, name="x"), main.tensor(SHAPE), main.tensor(SHAPE, name="z")
    negate = _unary(main, "NEG")
    main.operator("CALL", [x], [y], {"subgraph": negate})
    main.operator("CALL", [y], [z], {"subgraph": negate})
    model, placements = converted(main.write(tmp_path / "m.tflite", [x], [z]))
    assert _codes(model) == [OperationCode.NEG] * 2
    assert [p.mapping for p in placements] == ["inlined"] * 2
    values = np.array([[1, 2, 3], [-4, 5, 6]], np.float32)
    assert run(model, {"x": values})[0].tolist() == values.tolist()


def _counter(folder: Path, start: float | None) -> Path:
    """total += x, kept in a variable that may be initialised; answers the total."""
    main = TfliteBuilder()
    x, y = main.tensor((2,), name="x"), main.tensor((2,), name="y")
    options = {"container": "", "shared_name": "total"}
    if start is not None:
        first = main.beside()
        handle = first.tensor((), "RESOURCE")
        first.operator("VAR_HANDLE", [], [handle], options)
        first.operator("ASSIGN_VARIABLE", [handle, first.constant([start, start], F)], [], {})
        main.operator("CALL_ONCE", [], [], {"init_subgraph_index": main.add(first, [], [])})
    handle, total = main.tensor((), "RESOURCE"), main.tensor((2,))
    main.operator("VAR_HANDLE", [], [handle], options)
    main.operator("READ_VARIABLE", [handle], [total], {})
    main.operator("ADD", [total, x], [y], {"fused_activation_function": 0})
    main.operator("ASSIGN_VARIABLE", [handle, y], [], {})
    return main.write(folder / "m.tflite", [x], [y])


@pytest.mark.parametrize("calls", [1, 3])
def test_variables_go_on_from_run_to_run(calls: int, tmp_path: Path) -> None:
    model = _agrees(_counter(tmp_path, 2.5), "state", calls)
    assert States(model).values["total"].tolist() == [2.5, 2.5]


def test_a_variable_that_nothing_has_assigned_is_refused_when_it_is_read(tmp_path: Path) -> None:
    model, placements = converted(_counter(tmp_path, None))
    assert "assigned before it is read" in str(next(p for p in placements if p.operator == "READ_VARIABLE").reasons[0])
    with pytest.raises(NnapiError, match=r"READ_VARIABLE.*assigned before it is read"):
        run(model, {"x": np.zeros(2, np.float32)})


def _counting_body(main: TfliteBuilder, amount: float) -> int:
    """A subgraph over (x,): total += amount * x; answers x."""
    body = main.beside()
    x, y, handle = body.tensor((2,)), body.tensor((2,)), body.tensor((), "RESOURCE")
    total, part, new = (body.tensor((2,)) for _ in range(3))
    body.operator("VAR_HANDLE", [], [handle], {"container": "", "shared_name": "total"})
    body.operator("READ_VARIABLE", [handle], [total], {})
    body.operator("MUL", [x, body.constant([amount], F)], [part], {"fused_activation_function": 0})
    body.operator("ADD", [total, part], [new], {"fused_activation_function": 0})
    body.operator("ASSIGN_VARIABLE", [handle, new], [], {})
    body.operator("NEG", [x], [y], {})
    return main.add(body, [x], [y])


@pytest.mark.parametrize("calls", [1, 2])
def test_bodies_assign_variables(calls: int, tmp_path: Path) -> None:
    main = TfliteBuilder()
    condition, x, y = main.tensor((), B, name="condition"), main.tensor((2,), name="x"), main.tensor((2,), name="y")
    options = {"container": "", "shared_name": "total"}
    first = main.beside()
    handle = first.tensor((), "RESOURCE")
    first.operator("VAR_HANDLE", [], [handle], options)
    first.operator("ASSIGN_VARIABLE", [handle, first.constant([1.0, 2.0], F)], [], {})
    main.operator("CALL_ONCE", [], [], {"init_subgraph_index": main.add(first, [], [])})
    branches = {"then_subgraph_index": _counting_body(main, 10), "else_subgraph_index": _unary(main, "ABS", (2,))}
    main.operator("IF", [condition, x], [y], branches)
    handle, total = main.tensor((), "RESOURCE"), main.tensor((2,), name="total")
    main.operator("VAR_HANDLE", [], [handle], options)
    main.operator("READ_VARIABLE", [handle], [total], {})
    path = main.write(tmp_path / "m.tflite", [condition, x], [y, total])
    model, _ = converted(path)
    for truth in (True, False):
        inputs: dict[str, Array] = {"condition": np.array([truth]), "x": np.array([0.5, 1], np.float32)}
        for ours, theirs in zip(run(model, inputs, calls), litert(path, list(inputs.values()), calls=calls), strict=True):
            np.testing.assert_allclose(ours, theirs.reshape(ours.shape), rtol=1e-6)


def test_a_table_of_integers_is_looked_up_on_the_host(tmp_path: Path) -> None:
    main = TfliteBuilder()
    first = main.beside()
    options = {"table_id": 7, "key_dtype": 4, "value_dtype": 4}
    handle = first.tensor((1,), "RESOURCE")
    first.operator("HASHTABLE", [], [handle], options)
    first.operator("HASHTABLE_IMPORT", [handle, first.constant([3, 5], "int64"), first.constant([30, 50], "int64")], [], {})
    main.operator("CALL_ONCE", [], [], {"init_subgraph_index": main.add(first, [], [])})
    handle, query = main.tensor((1,), "RESOURCE"), main.tensor((3,), "int64", name="x")
    found, size = main.tensor((3,), "int64", name="y"), main.tensor((1,), "int64", name="n")
    main.operator("HASHTABLE", [], [handle], options)
    main.operator("HASHTABLE_FIND", [handle, query, main.constant([-1], "int64")], [found], {})
    main.operator("HASHTABLE_SIZE", [handle], [size], {})
    model, placements = converted(main.write(tmp_path / "m.tflite", [query], [found, size]))
    assert [p.mapping for p in placements] == ["folded", "folded", "host", "folded"]
    answers = run(model, {"x": np.array([5, 4, 3], np.int64)})
    assert [a.tolist() for a in answers] == [[50, -1, 30], [2]]


def test_a_subgraph_that_calls_itself_is_refused(tmp_path: Path) -> None:
    main = TfliteBuilder()
    x, y = main.tensor(SHAPE, name="x"), main.tensor(SHAPE, name="y")
    main.operator("CALL", [x], [y], {"subgraph": 0})
    with pytest.raises(ConversionError, match="do not call themselves"):
        converted(main.write(tmp_path / "m.tflite", [x], [y]))


def test_calls_that_multiply_are_refused(tmp_path: Path) -> None:
    main = TfliteBuilder()
    number = _unary(main, "NEG")
    for _ in range(14):
        body = main.beside()
        tensors = [body.tensor(SHAPE) for _ in range(3)]
        for a, b in itertools.pairwise(tensors):
            body.operator("CALL", [a], [b], {"subgraph": number})
        number = main.add(body, tensors[:1], tensors[-1:])
    x, y = main.tensor(SHAPE, name="x"), main.tensor(SHAPE, name="y")
    main.operator("CALL", [x], [y], {"subgraph": number})
    with pytest.raises(ConversionError, match="fewer calls of subgraphs"):
        converted(main.write(tmp_path / "m.tflite", [x], [y]))


def _nested(folder: Path, inner: str) -> Path:
    """count, x = 0, x; while count < 4: x = inner(x) if count < 2 else -x; count += 1."""
    main = TfliteBuilder()
    body = main.beside()
    count, x = body.tensor((), I32), body.tensor(SHAPE)
    more, early, y = body.tensor((), I32), body.tensor((), B), body.tensor(SHAPE)
    body.operator("ADD", [count, body.constant(1, I32)], [more], {"fused_activation_function": 0})
    body.operator("LESS", [count, body.constant(2, I32)], [early], {})
    branches = {"then_subgraph_index": _unary(main, inner), "else_subgraph_index": _unary(main, "NEG")}
    body.operator("IF", [early, x], [y], branches)
    options = {"cond_subgraph_index": _condition(main, 4), "body_subgraph_index": main.add(body, [count, x], [more, y])}
    start, x0 = main.constant(0, I32), main.tensor(SHAPE, name="x")
    outs = [main.tensor((), I32, name="n"), main.tensor(SHAPE, name="y")]
    main.operator("WHILE", [start, x0], outs, options)
    return main.write(folder / "m.tflite", [x0], outs)


@pytest.mark.parametrize(("inner", "mapping"), [("SQUARE", "wide"), ("ROUND", "host")])
def test_control_flow_inside_control_flow_agrees(inner: str, mapping: str, tmp_path: Path) -> None:
    _agrees(_nested(tmp_path, inner), mapping)


@pytest.mark.parametrize("calls", [1, 2])
def test_a_cell_in_a_loop_keeps_its_state_from_turn_to_turn_alone(calls: int, tmp_path: Path) -> None:
    main = TfliteBuilder()
    body = main.beside()
    shape = (1, 2)
    count, x, more, y = body.tensor((), I32), body.tensor(shape), body.tensor((), I32), body.tensor(shape)
    body.operator("ADD", [count, body.constant(1, I32)], [more], {"fused_activation_function": 0})
    weights = [body.constant(w, F) for w in ([[0.5, 0], [1, 2]], [[1, 0], [0.25, 1]], [0.1, -0.2])]
    body.operator("RNN", [x, *weights, body.tensor(shape, is_variable=True)], [y], {"fused_activation_function": 0})
    tested = _condition(main, 3, shape)
    options = {"cond_subgraph_index": tested, "body_subgraph_index": main.add(body, [count, x], [more, y])}
    start, x0 = main.constant(0, I32), main.tensor(shape, name="x")
    outs = [main.tensor((), I32, name="n"), main.tensor(shape, name="y")]
    main.operator("WHILE", [start, x0], outs, options)
    _agrees(main.write(tmp_path / "m.tflite", [x0], outs), "wide", calls)


def test_each_signature_is_a_model_with_the_variables_that_it_uses(tmp_path: Path) -> None:
    path = _counter(tmp_path, 2.5)
    assert len(converted(path)[0].states) == 1
    main = TfliteBuilder()
    x, y, z = main.tensor((2,), name="x"), main.tensor((2,), name="y"), main.tensor((2,), name="z")
    main.operator("NEG", [x], [y], {})
    main.operator("CALL", [y], [z], {"subgraph": _counting_body(main, 1)})
    assert converted(main.write(tmp_path / "n.tflite", [x], [z]))[0].states == ()


@pytest.mark.parametrize("calls", [1, 2])
def test_a_cell_in_a_branch_starts_anew_each_time(calls: int, tmp_path: Path) -> None:
    main = TfliteBuilder()
    body = main.beside()
    x, y = body.tensor((1, 2)), body.tensor((1, 2))
    weights = [body.constant(w, F) for w in ([[0.5, 0], [1, 2]], [[1, 0], [0.25, 1]], [0.1, -0.2])]
    body.operator("RNN", [x, *weights, body.tensor((1, 2), is_variable=True)], [y], {"fused_activation_function": 0})
    branches = {"then_subgraph_index": main.add(body, [x], [y]), "else_subgraph_index": _unary(main, "NEG", (1, 2))}
    condition, x0 = main.tensor((), B, name="condition"), main.tensor((1, 2), name="x")
    outs = [main.tensor((1, 2), name="y"), main.tensor((1, 2), name="z")]
    for out in outs:
        main.operator("IF", [condition, x0], [out], branches)
    path = main.write(tmp_path / "m.tflite", [condition, x0], outs)
    inputs: dict[str, Array] = {"condition": np.array([True]), "x": np.array([[1, 2]], np.float32)}
    # 0.5 * 1 + 0.1 and 1 * 1 + 2 * 2 - 0.2.
    for answer in (*run(converted(path)[0], inputs, calls), *litert(path, list(inputs.values()), calls=calls)):
        np.testing.assert_allclose(answer, [[0.6, 4.8]], rtol=1e-6)


@pytest.mark.parametrize(("operator", "place"), [("ABS", "delegate"), ("ROUND", "host")])
def test_inspection_reports_the_outcome_of_operators_in_bodies(operator: str, place: str, tmp_path: Path) -> None:
    _, placements = ModelFile(_loop(tmp_path, operator), ConversionOptions()).converted
    inner = [(p.subgraph, p.operator, p.mapping) for p in placements if p.subgraph]
    assert inner == [(1, "LESS", place), (2, "ADD", place), (2, operator, place), (2, "ADD", place)]


def test_what_nobody_reads_of_an_if_is_not_made(tmp_path: Path) -> None:
    main = TfliteBuilder()
    numbers = []
    for name, answer in (("ABS", True), ("NEG", False)):
        body = main.beside()
        x, y = body.tensor(SHAPE), body.tensor(SHAPE)
        body.operator(name, [x], [y], {})
        numbers.append(main.add(body, [x], [y, body.constant(answer, B)]))
    condition, x, y = main.tensor((), B, name="condition"), main.tensor(SHAPE, name="x"), main.tensor(SHAPE, name="y")
    options = dict(zip(("then_subgraph_index", "else_subgraph_index"), numbers, strict=True))
    main.operator("IF", [condition, x], [y, main.tensor((), B)], options)
    model = _agrees(main.write(tmp_path / "m.tflite", [condition, x], [y]), "wide")
    assert [len(operation.outputs) for operation in model.main.operations] == [1]
    assert [len(subgraph.operations) for subgraph in model.referenced] == [1, 1]
