"""Kinds of files that TFLite does not load, a file or two of each, and its neighbours that it loads: LiteRT is the judge."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnbridge
from tests.commands import call
from tests.differential import Fork
from tests.tflite.files import TfliteBuilder
from tests.tflite.loading import litert_refusal, refusal

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
SIZES = np.array([[0, 0], [0, 0]], np.int32)


def single(
    operator: str, shapes: list[Any], options: dict[str, Any] | None = None, *, version: int = 1, out: tuple[int, ...] = ()
) -> bytes:
    """A file of one float operator: inputs are shapes, or arrays of constants."""
    file, given = TfliteBuilder(), []
    inputs = []
    for one in shapes:
        inputs.append(file.tensor(one) if isinstance(one, tuple) else file.constant(one))
        given += [inputs[-1]] if isinstance(one, tuple) else []
    y = file.tensor(out)
    file.operator(operator, inputs, [y], options, version)
    return file.content(given or inputs[:1], [y])


def typed_out(operator: str, inputs: list[Any], options: dict[str, Any] | None, type: str) -> bytes:
    """A float operator whose first output is stated with another type."""
    file = TfliteBuilder()
    given = [file.tensor(one) if isinstance(one, tuple) else file.constant(one) for one in inputs]
    outputs = [file.tensor((), type), *([file.tensor((), "int32")] if operator == "TOPK_V2" else [])]
    file.operator(operator, given, outputs, options)
    return file.content([i for i, one in zip(given, inputs, strict=True) if isinstance(one, tuple)], outputs)


def sixteen(operator: str, scale: float, activation: int) -> bytes:
    """An operator of 16-bit numbers, with this scale of its output; 0 for none."""
    file = TfliteBuilder()
    x, y = file.tensor((4,), "int16", scale=1.0), file.tensor((4,), "int16", scale=scale)
    file.operator(operator, [x, x], [y], {"fused_activation_function": activation, "pot_scale_int16": False}, 3)
    return file.content([x], [y])


def variable(dims: tuple[int, ...], *, assigned: bool) -> bytes:
    """A variable whose handle has these dimensions, read or written."""
    file = TfliteBuilder()
    x, handle, y = file.tensor((2,)), file.tensor(dims, "resource"), file.tensor((2,))
    file.operator("VAR_HANDLE", [], [handle], {"container": "", "shared_name": "v"})
    if assigned:
        file.operator("ASSIGN_VARIABLE", [handle, x], [], {})
        file.operator("RELU", [x], [y])
    else:
        file.operator("READ_VARIABLE", [handle], [y], {})
    return file.content([x], [y])


def pool(width: int, padding: int) -> bytes:
    window = {"filter_width": width, "filter_height": 1, "stride_w": 1, "stride_h": 1, "padding": padding}
    return single("MAX_POOL_2D", [(1, 3, 3, 1)], window)


def convolution(operator: str, dilation: int, padding: int) -> bytes:
    options = {"stride_w": 1, "stride_h": 1, "padding": padding, "dilation_w_factor": dilation, "dilation_h_factor": 1}
    more = {"stride_d": 1, "dilation_d_factor": 1} if operator == "CONV_3D" else {"depth_multiplier": 1}
    options |= more if operator != "CONV_2D" else {}
    filter = np.ones((1, 1, 5, 1, 1) if operator == "CONV_3D" else (1, 1, 5, 1), np.float32)
    inputs = [(1, 2, 3, 3, 1) if operator == "CONV_3D" else (1, 3, 3, 1), filter]
    return single(operator, inputs if operator == "CONV_3D" else [*inputs, np.zeros(1, np.float32)], options)


def slice_(begin: int, size: int, out: tuple[int, ...] = ()) -> bytes:
    return single("SLICE", [(3,), np.int32([begin]), np.int32([size])], {}, out=out)


def changed(model: bytes, before: bytes, after: bytes) -> bytes:
    assert model.count(before) == 1
    return model.replace(before, after)


def multiplied(factors: Any, one: Any) -> tuple[TfliteBuilder, int]:
    """A file with the product of two constants, which MUL's kernel computes when it is prepared, and its tensor."""
    file = TfliteBuilder()
    product = file.tensor((), str(np.asarray(factors).dtype))
    file.operator("MUL", [file.constant(factors), file.constant(one)], [product], {"fused_activation_function": 0})
    return file, product


def computed_axis(operator: str, axis: Any, shape: tuple[int, ...] = (2, 4)) -> bytes:
    """Parts along an axis that is computed when the file is prepared."""
    file, product = multiplied(axis, np.ones((), np.asarray(axis).dtype))
    x, parts = file.tensor(shape), [file.tensor(()), file.tensor(())]
    inputs = [product, x] if operator == "SPLIT" else [x, file.constant(np.int32([1, 1])), product]
    file.operator(operator, inputs, parts, {"num_splits": 2})
    return file.content([x], parts)


def parts(sizes: Any, axis: Any, count: int = 2) -> bytes:
    """SPLIT_V to so many parts: sizes and axis are arrays that the file stores, or dimensions of what the run gives."""
    file = TfliteBuilder()
    x, outputs = file.tensor((4, 3)), [file.tensor(()) for _ in range(count)]
    numbers = [file.tensor(one, "int32") if isinstance(one, tuple) else file.constant(one) for one in (sizes, axis)]
    file.operator("SPLIT_V", [x, *numbers], outputs, {"num_splits": count})
    given = [i for i, one in zip(numbers, (sizes, axis), strict=True) if isinstance(one, tuple)]
    return file.content([x, *given], outputs)


def transposed(operator: str, shape: Any, *, computed: bool = False, stated: tuple[int, ...] | None = None) -> bytes:
    """A transposed convolution to a shape that the file stores, that is computed when it is prepared, or given by the run."""
    array = np.asarray(shape)
    file, dims = multiplied(array, np.ones((), array.dtype)) if computed else (TfliteBuilder(), -1)
    if stated is not None:
        dims = file.tensor(stated, str(array.dtype))
    elif not computed:
        dims = file.constant(array)
    deep = operator == "CONV_3D_TRANSPOSE"
    x, y = file.tensor((1, 2, 2, 2, 1) if deep else (1, 2, 2, 1)), file.tensor(())
    filter = file.constant(np.ones((2, 2, 2, 1, 1) if deep else (1, 2, 2, 1), np.float32))
    options = {"padding": 1, "stride_w": 2, "stride_h": 2} | ({"stride_d": 2} if deep else {})
    options |= {f"dilation_{a}_factor": 1 for a in "dhw"} if deep else {}
    file.operator(operator, [dims, filter, x], [y], options)
    return file.content([x] if stated is None else [dims, x], [y])


def branch(operator: str, counts: tuple[int, int]) -> bytes:
    """An IF whose bodies are one operator each, of so many inputs, with a condition that the file stores."""
    outer = TfliteBuilder()
    x, y = outer.tensor((3,)), outer.tensor((3,))
    outer.operator("IF", [outer.constant(np.bool_(True)), x], [y], {"then_subgraph_index": 1, "else_subgraph_index": 2})
    for count in counts:
        inner = TfliteBuilder()
        a, b = inner.tensor((3,)), inner.tensor((3,))
        inner.operator(operator, [a] * count, [b], {})
        outer.others.append(inner.graph([a], [b], f"body{len(outer.others)}"))
        outer.codes.append(inner.codes[0])
        inner.operators[0]["opcode_index"] = len(outer.codes) - 1
    return outer.content([x], [y])


def recurrent(rows: dict[int, int]) -> bytes:
    """An LSTM over a sequence of four cells, whose weights of these inputs have so many rows."""
    file, shapes = TfliteBuilder(), [(4, 2)] * 4 + [(4, 4)] * 4
    x, y = file.tensor((1, 3, 2)), file.tensor(())
    weights = [file.constant(np.ones((rows.get(i, a), b), np.float32)) for i, (a, b) in enumerate(shapes, 1)]
    biases = [file.constant(np.ones(4, np.float32)) for _ in range(4)]
    states = [file.tensor((1, 4), is_variable=True) for _ in range(2)]
    inputs = [x, *weights, -1, -1, -1, *biases, -1, -1, *states, -1, -1, -1, -1]
    file.operator("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, [y], {"fused_activation_function": 4, "time_major": False})
    return file.content([x], [y])


def gated(absent: tuple[int, ...]) -> bytes:
    """A bidirectional LSTM of two cells, without these inputs; the peepholes and projections are absent."""
    file, inputs = TfliteBuilder(), [0] * 48
    inputs[0] = x = file.tensor((3, 1, 2))
    for first in (1, 18):
        for i in range(17):
            weight = np.ones((2, 2) if i < 8 else 2, np.float32)
            inputs[first + i] = -1 if i in (8, 9, 10, 15, 16) or first + i in absent else file.constant(weight)
    for i in range(35, 39):
        inputs[i] = file.tensor((1, 2))
        file.tensors[inputs[i]]["is_variable"] = True
    inputs[39:] = [-1] * 9
    outputs = [file.tensor(()), file.tensor(())]
    options = {"fused_activation_function": 4, "time_major": True, "merge_outputs": False}
    file.operator("BIDIRECTIONAL_SEQUENCE_LSTM", inputs, outputs, options)
    return file.content([x], outputs)


ADD = single("ADD", [(1, 4), (1, 4)], {"fused_activation_function": 0})
FILES = {
    "as it should be": ADD,
    # what the file's verifier looks at
    "a string without an end": changed(ADD, b"test\0", b"test!"),
    "a string that ends early": changed(ADD, b"test\0", b"te\0t\0"),
    # dimensions of windows
    **{f"pool of {width}, {'SAME' if padding == 0 else 'VALID'}": pool(width, padding)
       for width in (3, 9, 65535, 65537, 2**31 - 1) for padding in (0, 1)},
    **{f"{operator} dilated by {d}, {'SAME' if padding == 0 else 'VALID'}": convolution(operator, d, padding)
       for operator in ("CONV_2D", "DEPTHWISE_CONV_2D", "CONV_3D") for d in (1, 16383, 16385) for padding in (0, 1)},
    # dimensions of outputs
    **{f"resized to {size}": single("RESIZE_NEAREST_NEIGHBOR", [(1, 2, 2, 1), np.int32(size)], {})
       for size in ((3, 3), (0, 3), (-1, 3), (2**31 - 1, 2**31 - 1))},
    **{f"BATCH_TO_SPACE_ND by {blocks}": single("BATCH_TO_SPACE_ND", [(4, 2, 2, 1), np.int32(blocks), SIZES])
       for blocks in ((2, 2), (2, -2), (-2, -2))},
    **{f"SPACE_TO_BATCH_ND by {blocks}": single("SPACE_TO_BATCH_ND", [(1, 4, 4, 1), np.int32(blocks), SIZES])
       for blocks in ((2, 2), (-2, 2), (-2, -2))},
    **{f"TILE by {n}": single("TILE", [(2, 3), np.int32([n, 1])]) for n in (0, 3, -1, 2**30)},
    **{f"PAD by {n}": single("PAD", [(2, 3), np.int32([[n, 0], [0, 0]])]) for n in (0, 3, -1, 2**31 - 1)},
    **{f"RESHAPE to {dims}": single("RESHAPE", [(2, 3), np.int32(dims)]) for dims in ((6,), (-1,), (-2, -3), (3, -2))},
    **{f"SLICE at {at} of {size}": slice_(at, size) for at in (-1, 0, 3, 4) for size in (-1, 0, 1)},
    "SLICE of other dimensions": slice_(0, 2, (1,)),
    # numbers beyond a constant's end, and numbers that a kernel computes when it is prepared
    **{f"{operator} along {list(np.ravel(axis))} of {np.asarray(axis).dtype}, computed": computed_axis(operator, axis)
       for operator in ("SPLIT", "SPLIT_V")
       for axis in (np.int32(0), np.int32(-2), np.int32(5), np.int64(0))},
    **{f"SPLIT of {rows} rows along no axis": single("SPLIT", [np.zeros(0, np.int32), (rows, 3)], {"num_splits": 1})
       for rows in (2, 3)},
    **{f"RESHAPE with new_shape of {n}": single("RESHAPE", [(2, 3), np.int32([6])], {"new_shape": [1] * n})
       for n in (1, 8, 9, 20)},
    **{f"RESHAPE by a new_shape of {n} only": single("RESHAPE", [(1, 1)], {"new_shape": [1] * n}) for n in (1, 8, 9)},
    **{f"SPLIT_V by {'given' if isinstance(sizes, tuple) else 'stored'} sizes {sizes} along {axis}": parts(sizes, axis)
       for sizes in ((0,), (2,), (3,), np.int32([]), np.int32([4]), np.int32([1, 3]), np.int32([1, 1, 2]), np.int32([9, -9]))
       for axis in ((), np.int32(0))},
    # output shapes of transposed convolutions
    **{f"TRANSPOSE_CONV to {shape} of {type.__name__}, {'computed' if computed else 'stored'}": transposed(
        "TRANSPOSE_CONV", np.array(shape, type), computed=computed)
       for shape in ((1, 4, 4, 1), (1, 9, 9, 1)) for type in (np.int32, np.int64) for computed in (False, True)},
    **{f"TRANSPOSE_CONV to {dims} numbers that the run gives": transposed("TRANSPOSE_CONV", np.int32(0), stated=dims)
       for dims in ((0,), (3,), (4,), (5,), (1, 4))},
    **{f"CONV_3D_TRANSPOSE to {shape}, {'computed' if computed else 'stored'}": transposed(
        "CONV_3D_TRANSPOSE", np.int32(shape), computed=computed)
       for shape in ((1, 4, 4, 4, 1), (1, 9, 9, 9, 1), (2, 4, 4, 4, 1), (1, 4, 4, 4, 2)) for computed in (False, True)},
    # operands of bodies, one of which no run reaches
    **{f"an IF of {operator} with {first} and {second} inputs": branch(operator, (first, second))
       for operator in ("ABS", "RELU", "TANH") for first in (1, 2) for second in (1, 2)},
    # gates without a bias
    **{f"a bidirectional LSTM without inputs {absent}": gated(absent)
       for absent in ((), (12,), (29,), (1, 5), (1, 5, 12), (18, 22), (18, 22, 29), (13,), (30,))},
    **{f"an LSTM whose input {i} has {n} rows": recurrent({i: n}) for i in range(1, 9) for n in (4, 8)},
    # options of other operators
    "ADD with options of CONV_2D": single("ADD", [(1, 4), (1, 4)]),
    **{f"{operator} without options": single(operator, inputs) for operator, inputs in (
        ("ADD", [(1, 4), (1, 4)]), ("SOFTMAX", [(1, 4)]), ("MAX_POOL_2D", [(1, 4, 4, 1)]), ("MIRROR_PAD", [(2, 3), SIZES]),
        ("CONCATENATION", [(1, 4), (1, 4)]), ("UNIQUE", [(4,)]))},
    # handles of variables
    **{f"a handle of {dims}, {'written' if assigned else 'read'}": variable(dims, assigned=assigned)
       for dims in ((), (1,), (1, 1), (2,), (0,)) for assigned in (True, False)},
    # types of outputs
    **{f"{operator} with an output of {type}, {options}": typed_out(operator, inputs, options, type)
       for operator, inputs, options in (
           ("TOPK_V2", [(2, 3), np.int32(1)], {}), ("SPLIT", [np.int32(0), (2, 3)], {"num_splits": 1}), ("RELU", [(2, 3)], None),
           *(("MUL", [(2, 3), (2, 3)], {"fused_activation_function": activation}) for activation in (0, 2)),
           *((name, [(2, 3), (2, 3)], {"fused_activation_function": 2}) for name in ("ADD", "SUB", "DIV")))
       for type in ("float32", "int64", "int8")},
    **{f"{operator} of 16 bits {'with' if scale else 'without'} a scale, activation {activation}":
       sixteen(operator, scale, activation)
       for operator in ("MUL", "SUB", "ADD") for scale in (0.0, 0.5, 1e-12) for activation in (0, 1, 3)},
}  # fmt: skip


@pytest.fixture(scope="module")
def litert() -> Iterator[Fork]:
    fork = Fork(litert_refusal)
    yield fork
    fork.close()


@pytest.mark.parametrize("name", FILES)
def test_a_file_loads_where_litert_loads_it(name: str, litert: Fork) -> None:
    try:
        (why,) = litert.run(FILES[name])
    except RuntimeError as error:
        why = str(error)
    assert bool(refusal(FILES[name])[0]) == bool(why), (why, refusal(FILES[name]))


@pytest.mark.parametrize("byte", range(0, 120, 4))
def test_a_changed_offset_is_refused_where_litert_refuses_it(byte: int, litert: Fork) -> None:
    for word in (0, 1, 2, struct.unpack_from("<I", ADD, byte)[0] + 4):
        model = ADD[:byte] + struct.pack("<I", word) + ADD[byte + 4 :]
        try:
            (why,) = litert.run(model)
        except RuntimeError as error:
            why = str(error)
        assert not why or refusal(model)[0], (word, why)


def test_the_place_in_the_file_that_the_verifier_refuses_comes_first(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(FILES["a string without an end"])
    sentence = (
        "TFLite does not load this file: description: TFLite requires a zero byte after a string (its file verifier), found 33."
    )
    assert call("plan", str(path)).stdout.startswith(sentence)
    assert call("inspect", str(path)).stdout.startswith(sentence)
    assert "a zero byte after a string (its file verifier)" in call("run", str(path), "--seed", "0").stderr
    assert nnbridge.run(path, seed=0, mapping="wide")["t2"].shape == (1, 4)


def with_options(name: str, table: dict[str, Any], path: Path) -> Path:
    """x + y with options of another operator's kind."""
    file = TfliteBuilder()
    x, y, out = (file.tensor((1, 4)) for _ in range(3))
    file.operator("ADD", [x, y], [out])
    code = {"Conv2DOptions": 1, "Pool2DOptions": 5}[name]
    file.operators[-1] |= {"builtin_options_type": code, "builtin_options": table}
    return file.write(path / "m.tflite", [x, y], [out])


def test_options_of_another_operator_are_ignored_as_tflite_ignores_them(tmp_path: Path) -> None:
    # As AddOptions it would be RELU6.
    path = with_options("Conv2DOptions", {"fused_activation_function": 3}, tmp_path)
    found = nnbridge.plan(path)
    data = np.float32([[-1, 2, 5, 9]])
    assert next(iter(found.run([data, data]).values())).tolist() == [[-2, 4, 10, 18]]
    sentence = "operator 0 ADD has Conv2DOptions, which are not its own: TFLite ignores them, and all its options are 0."
    assert sentence in call("plan", str(path)).stderr
    assert sentence in call("inspect", str(path)).stdout


def test_without_options_all_of_them_are_zero_as_in_litert(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(single("SOFTMAX", [(1, 4)], out=(1, 4)))
    (found,) = nnbridge.plan(path).run([np.float32([[1, 2, 3, 4]])]).values()
    assert found.tolist() == [[0.25, 0.25, 0.25, 0.25]]
    file = TfliteBuilder()
    x, y = file.tensor((2,), "int32"), file.tensor((3, 2))
    file.operator("ONE_HOT", [x, *(file.constant(one) for one in (np.int32(3), np.float32(1), np.float32(0)))], [y])
    (found,) = nnbridge.plan(file.write(path, [x], [y])).run([np.int32([1, 2])]).values()
    assert found.tolist() == [[0, 0], [1, 0], [0, 1]]  # of axis 0, where the schema's default is -1


def test_operators_of_a_composite_are_prepared_with_the_dimensions_that_it_passes(litert: Fork) -> None:
    for states in ((2, 4), (5, 4)):
        inner, outer = TfliteBuilder(), TfliteBuilder()
        shapes = ((2, 3, 3), (4, 3), (4, 4), (4,), (2, 4))
        inside = [inner.tensor(shape) for shape in shapes]
        out = inner.tensor(())
        inner.operator("UNIDIRECTIONAL_SEQUENCE_RNN", inside, [out], {"time_major": False})
        # The bias is computed: its dimensions are those of what it is computed from.
        passed = [outer.tensor(shape) for shape in (*shapes[:4], states)]
        outer.tensors[passed[4]]["is_variable"] = True
        bias, whole = outer.tensor((4,)), outer.tensor(())
        outer.operator("ADD", [passed[3], passed[3]], [bias], {"fused_activation_function": 0})
        called = {"name": "rnn", "decomposition_subgraph_index": 1, "version": 1, "composite_attributes": np.zeros(1, np.uint8)}
        outer.operator("STABLEHLO_COMPOSITE", [*passed[:3], bias, passed[4]], [whole], called)
        outer.others = [inner.graph(inside, [out], "inner")]
        outer.codes.append(inner.codes[0])
        inner.operators[0]["opcode_index"] = len(outer.codes) - 1
        model = outer.content(passed[:4], [whole])
        try:
            (why,) = litert.run(model)
        except RuntimeError as error:
            why = str(error)
        assert bool(why) == bool(refusal(model)[0]) == (states != (2, 4)), (why, refusal(model))


EMPTY = np.zeros(0, np.int32)
KNOWN = {"begin_mask": 0, "end_mask": 0, "ellipsis_mask": 0, "new_axis_mask": 0, "shrink_axis_mask": 0}
EMPTY_CONSTANTS = {
    "SCATTER_ND": single("SCATTER_ND", [np.int32([[1], [0]]), (2,), EMPTY], {}),
    "SUM": single("SUM", [(2, 3), EMPTY], {"keep_dims": False}),
    "TILE": single("TILE", [(2,), EMPTY]),
    "PAD": single("PAD", [(2,), np.zeros((0, 2), np.int32)]),
    "TRANSPOSE": single("TRANSPOSE", [(2, 3), EMPTY]),
    "SLICE": single("SLICE", [(2,), EMPTY, EMPTY], {}),
    "STRIDED_SLICE": single("STRIDED_SLICE", [(2,), np.int32([0]), np.int32([1]), EMPTY], KNOWN),
    "FILL": single("FILL", [EMPTY, np.float32(1)], {}),
    "RESIZE_BILINEAR": single("RESIZE_BILINEAR", [(1, 2, 2, 1), EMPTY], {}, version=1),
    "REVERSE_V2": single("REVERSE_V2", [(2,), EMPTY], {}),
    "BROADCAST_TO": single("BROADCAST_TO", [(2,), EMPTY], version=2),
    "EXPAND_DIMS": single("EXPAND_DIMS", [(2,), EMPTY]),
}


@pytest.mark.parametrize("name", EMPTY_CONSTANTS)
def test_a_constant_without_elements_is_refused_where_litert_refuses_it(name: str, litert: Fork) -> None:
    try:
        (why,) = litert.run(EMPTY_CONSTANTS[name])
    except RuntimeError as error:
        why = str(error)
    assert bool(refusal(EMPTY_CONSTANTS[name])[0]) == bool(why), (why, refusal(EMPTY_CONSTANTS[name]))
