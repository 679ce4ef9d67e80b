"""Graphs that run other graphs, and those with variables and tables, drawn at random: types, dimensions and bodies."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tests.tflite.drawing import I32, I64, B, F, Rng, dims, pick
from tests.tflite.files import TfliteBuilder

UNARY = ("ABS", "NEG", "SQUARE", "RELU", "FLOOR", "ZEROS_LIKE")
RESOURCE = "RESOURCE"
NO_ACTIVATION = {"fused_activation_function": 0}


def structure(rng: Rng, number: int) -> bytes:
    """A file with one such structure; ``number`` chooses which, by turns."""
    return _STRUCTURES[number % len(_STRUCTURES)](rng)


def _unary(rng: Rng, main: TfliteBuilder, shape: Sequence[int], type: str = F, *, extra: int = 0) -> int:
    """A graph of one operator; sometimes of other dimensions than are passed."""
    body = main.beside()
    given = [body.tensor(shape if rng.random() < 0.9 else dims(rng, len(shape)), type) for _ in range(1 + extra)]
    y = body.tensor(shape, type)
    body.operator(pick(rng, *UNARY), [given[-1]], [y], {}, int(rng.integers(1, 3)))
    return main.add(body, given, [y])


def _branches(rng: Rng) -> bytes:
    main, shape, type = TfliteBuilder(), dims(rng, int(rng.integers(0, 4))), pick(rng, F, F, I32)
    condition = main.constant(True) if rng.random() < 0.2 else main.tensor(pick(rng, (), (1,)), B)
    x, y = main.tensor(shape, type), main.tensor(shape, type)
    numbers = [_unary(rng, main, shape, type) for _ in range(2)]
    main.operator("IF", [condition, x], [y], {"then_subgraph_index": numbers[0], "else_subgraph_index": numbers[1]})
    return main.content([x] if "buffer" in main.tensors[condition] else [condition, x], [y])


def _loop(rng: Rng) -> bytes:
    """While count < limit: count + 1, and a function of x, which may be joined to itself."""
    main, shape = TfliteBuilder(), dims(rng, int(rng.integers(1, 4)))
    test = main.beside()
    count, x, answer = test.tensor(pick(rng, (), ()), I32), test.tensor(shape), test.tensor((), B)
    test.operator("LESS", [count, test.constant(3, I32)], [answer], {})
    tested = main.add(test, [count, x], [answer])
    body = main.beside()
    count, x = body.tensor((), I32), body.tensor(shape)
    more, y = body.tensor((), I32), body.tensor(shape)
    body.operator("ADD", [count, body.constant(1, I32)], [more], NO_ACTIVATION)
    if rng.random() < 0.3:
        body.tensors[y]["shape"] = [2 * shape[0], *shape[1:]]
        body.operator("CONCATENATION", [x, x], [y], {"axis": 0, **NO_ACTIVATION})
    else:
        body.operator(pick(rng, *UNARY), [x], [y], {})
    options = {"cond_subgraph_index": tested, "body_subgraph_index": main.add(body, [count, x], [more, y])}
    start, x0 = main.constant(0, I32), main.tensor(shape)
    outs = [main.tensor((), I32), main.tensor(shape)]
    main.operator("WHILE", [start, x0], outs, options)
    if rng.random() < 0.5:
        outs[1], before = main.tensor(shape), outs[1]
        main.operator("ABS", [before], [outs[1]], {})
    return main.content([x0], outs)


def _variable(rng: Rng) -> bytes:
    """A variable that a graph of CALL_ONCE sets first, or none."""
    main, shape, type = TfliteBuilder(), dims(rng, int(rng.integers(0, 3))), pick(rng, F, F, I32, I64)
    options = {"container": "", "shared_name": "total"}
    x, y = main.tensor(shape, type), main.tensor(shape, type)
    if rng.random() < 0.7:
        first = main.beside()
        handle = first.tensor((), RESOURCE)
        first.operator("VAR_HANDLE", [], [handle], options)
        first.operator("ASSIGN_VARIABLE", [handle, first.constant(np.ones(shape, type))], [], {})
        main.operator("CALL_ONCE", [], [], {"init_subgraph_index": main.add(first, [], [])})
    handle, total = main.tensor((), RESOURCE), main.tensor(shape, type)
    main.operator("VAR_HANDLE", [], [handle], options)
    main.operator("READ_VARIABLE", [handle], [total], {})
    main.operator("ADD", [total, x], [y], NO_ACTIVATION)
    main.operator("ASSIGN_VARIABLE", [handle, y], [], {})
    return main.content([x], [y])


def _table(rng: Rng) -> bytes:
    main = TfliteBuilder()
    first = main.beside()
    options = {"table_id": 7, "key_dtype": pick(rng, 4, 4, 5), "value_dtype": pick(rng, 4, 4, 5)}
    handle = first.tensor((1,), RESOURCE)
    first.operator("HASHTABLE", [], [handle], options)
    first.operator("HASHTABLE_IMPORT", [handle, first.constant([3, 5], I64), first.constant([30, 50], I64)], [], {})
    main.operator("CALL_ONCE", [], [], {"init_subgraph_index": main.add(first, [], [])})
    handle, query = main.tensor((1,), RESOURCE), main.tensor(dims(rng, 1), I64)
    found, size = main.tensor((3,), I64), main.tensor((1,), I64)
    main.operator("HASHTABLE", [], [handle], options)
    main.operator("HASHTABLE_FIND", [handle, query, main.constant([-1], I64)], [found], {})
    main.operator("HASHTABLE_SIZE", [handle], [size], {})
    return main.content([query], [found, size])


def _called(rng: Rng) -> bytes:
    """CALL, or CALL_ONCE of a graph that computes."""
    main, shape = TfliteBuilder(), dims(rng, 2)
    x, y = main.tensor(shape), main.tensor(shape)
    number = _unary(rng, main, shape)
    if rng.random() < 0.5:
        main.operator("CALL", [x], [y], {"subgraph": number})
    else:
        main.operator("CALL_ONCE", [], [], {"init_subgraph_index": number})
        main.operator("ABS", [x], [y], {})
    return main.content([x], [y])


_STRUCTURES: Sequence[Callable[[Rng], bytes]] = (_branches, _loop, _variable, _table, _called)
