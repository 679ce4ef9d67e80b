"""Programs as a whole: what they cover, views, arenas, threads."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from nnbridge.builder import ModelBuilder
from nnbridge.cpu.executor import Executor
from nnbridge.cpu.settings import Tier
from nnbridge.errors import NnapiError
from nnbridge.model import Model
from nnbridge.types import OperandCode, OperationCode
from tests.compiled.hybrid import Hybrid, compile_model
from tests.compiled.models import F32, I8, U8, assert_same, random_data


class Chain:
    """A model of operations after one another on 8-bit or float32 operands."""

    def __init__(self, kind: OperandCode, dims: tuple[int, ...]) -> None:
        self.kind, self.builder = kind, ModelBuilder("chain")
        self.first = self.tensor(dims)

    def tensor(self, dims: tuple[int, ...]) -> int:
        parameters = {} if self.kind == F32 else {"scale": 0.1, "zero_point": 3}
        return self.builder.add_operand(self.kind, dims, **parameters)

    def constant(self, kind: OperandCode, value: object, dims: tuple[int, ...] = ()) -> int:
        index = self.builder.add_operand(kind, dims)
        self.builder.set_operand_value(index, value)
        return index

    def add(self, code: OperationCode, inputs: list[int], dims: tuple[int, ...]) -> int:
        out = self.tensor(dims)
        self.builder.add_operation(code, inputs, [out])
        return out

    def finish(self, *outputs: int) -> Model:
        self.builder.identify_inputs_and_outputs([self.first], list(outputs))
        return self.builder.finish()


def diamond(kind: OperandCode) -> Model:
    """Two branches of one input that are joined, reshaped and returned with one of the branches."""
    chain = Chain(kind, (1, 4, 6))
    none = chain.constant(OperandCode.INT32, 0)
    left = chain.add(OperationCode.RELU, [chain.first], (1, 4, 6))
    right = chain.add(OperationCode.ADD, [chain.first, left, none], (1, 4, 6))
    axis = chain.constant(OperandCode.INT32, 1)
    joined = chain.add(OperationCode.CONCATENATION, [left, right, axis], (1, 8, 6))
    shape = chain.constant(OperandCode.TENSOR_INT32, np.array([2, 24], np.int32), (2,))
    flat = chain.add(OperationCode.RESHAPE, [joined, shape], (2, 24))
    return chain.finish(flat, right)


@pytest.mark.parametrize("kind", [F32, U8, I8], ids=lambda kind: kind.name)
def test_joined_operands_are_written_in_place(kind: OperandCode) -> None:
    model = diamond(kind)
    hybrid = Hybrid(model)
    (program,) = hybrid.plan.programs
    assert program.operations == (0, 1, 2, 3)
    assert not [step for step in program.steps if step.variant.kernel == "move"]
    x = random_data(np.random.default_rng(0), kind, (1, 4, 6))
    for expected, found in zip(hybrid.reference([x]), hybrid.run([x]), strict=True):
        assert_same(found, expected)


def test_what_nothing_reads_is_not_computed() -> None:
    chain = Chain(U8, (1, 4))
    chain.add(OperationCode.LOGISTIC, [chain.first], (1, 4))
    read = chain.add(OperationCode.RELU, [chain.first], (1, 4))
    (program,) = compile_model(chain.finish(read)).programs
    assert [step.variant.kernel for step in program.steps] == ["transfer", "clamp_bytes", "transfer"]


def test_operations_without_a_kernel_divide_programs() -> None:
    chain = Chain(F32, (1, 4))
    first = chain.add(OperationCode.RELU, [chain.first], (1, 4))
    middle = chain.add(OperationCode.SIN, [first], (1, 4))
    last = chain.add(OperationCode.TANH, [middle], (1, 4))
    model = chain.finish(last)
    hybrid = Hybrid(model)
    assert [program.operations for program in hybrid.plan.programs] == [(0,), (2,)]
    assert hybrid.plan.left == {1: "requires a compiled kernel, found none"}
    x = random_data(np.random.default_rng(0), F32, (1, 4))
    assert_same(hybrid.run([x])[0], hybrid.reference([x])[0])


def test_parameters_that_only_the_run_knows_are_left_to_the_reference() -> None:
    builder = ModelBuilder("activation")
    x, y = builder.add_operand(F32, (1, 4)), builder.add_operand(F32, (1, 4))
    activation = builder.add_operand(OperandCode.INT32)
    builder.add_operation(OperationCode.ADD, [x, x, activation], [y])
    builder.identify_inputs_and_outputs([x, activation], [y])
    plan = compile_model(builder.finish())
    assert plan.programs == ()
    assert plan.left == {0: "requires constant parameters"}


@pytest.mark.parametrize("scales", [(1e-38, 1e30, 1e-30), (3e38, 3e38, 1e-38), (1e-45, 1e-45, 3e38)], ids=str)
def test_absurd_scales_are_computed_or_left(scales: tuple[float, float, float]) -> None:
    for code in (OperationCode.ADD, OperationCode.MUL):
        builder = ModelBuilder("scales")
        a, b, y = (builder.add_operand(U8, (1, 4), scale=scale, zero_point=3) for scale in scales)
        none = builder.add_operand(OperandCode.INT32)
        builder.set_operand_value(none, 0)
        try:
            builder.add_operation(code, [a, b, none], [y])
        except NnapiError:
            continue
        builder.identify_inputs_and_outputs([a, b], [y])
        hybrid = Hybrid(builder.finish())
        if hybrid.plan.programs:
            data = [random_data(np.random.default_rng(k), U8, (1, 4)) for k in range(2)]
            assert_same(hybrid.run(data)[0], hybrid.reference(data)[0])


def test_a_quantised_copy_of_equal_parameters_is_no_step() -> None:
    builder = ModelBuilder("requantised")
    x = builder.add_operand(U8, (1, 8), scale=0.5, zero_point=131)
    real = builder.add_operand(F32, (1, 8))
    signed = builder.add_operand(I8, (1, 8), scale=0.5, zero_point=3)
    y = builder.add_operand(I8, (1, 8), scale=0.5, zero_point=3)
    builder.add_operation(OperationCode.DEQUANTIZE, [x], [real])
    builder.add_operation(OperationCode.QUANTIZE, [real], [signed])
    builder.add_operation(OperationCode.RELU, [signed], [y])
    builder.identify_inputs_and_outputs([x], [y])
    hybrid = Hybrid(builder.finish())
    (program,) = hybrid.plan.programs
    assert [step.variant.kernel for step in program.steps] == ["transfer", "clamp_bytes", "transfer"]
    data = np.arange(120, 136, 2, dtype=np.uint8).reshape(1, 8)
    assert_same(hybrid.run([data])[0], hybrid.reference([data])[0])


def test_bound_programs_read_their_arrays_each_time() -> None:
    (program,) = compile_model(diamond(F32)).programs
    x = np.zeros((1, 4, 6), np.float32)
    outputs = [np.zeros(shape, dtype) for shape, dtype in program.shapes]
    run = program.bind([x], outputs)
    for value in (1.0, -2.0):
        x[:] = value
        run()
        relu = max(value, 0.0)
        assert {float(v) for v in outputs[program.outputs.index(3)].ravel()} == {relu + value}


def test_many_threads_share_a_program_and_helpers() -> None:
    chain = Chain(U8, (1, 64, 64, 32))
    none = chain.constant(OperandCode.INT32, 0)
    value = chain.first
    for _ in range(6):
        value = chain.add(OperationCode.ADD, [value, chain.first, none], (1, 64, 64, 32))
    hybrid = Hybrid(chain.finish(value))
    (program,) = hybrid.plan.programs
    assert program.shared
    rng = np.random.default_rng(0)
    inputs = [random_data(rng, U8, (1, 64, 64, 32)) for _ in range(3)]
    expected = [hybrid.run([x])[0] for x in inputs]
    wrong: list[int] = []

    def work(number: int, threads: int) -> None:
        out = np.zeros(*program.shapes[0])
        for k in range(40):
            at = (number + k) % 3
            out[:] = 0
            program.run([inputs[at]], [out], threads)
            if not np.array_equal(out, expected[at]):
                wrong.append(k)

    for threads in (1, 2, 4):
        workers = [threading.Thread(target=work, args=(number, threads)) for number in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert not wrong


def test_a_convolution_reads_the_border_that_an_earlier_program_made() -> None:
    # SIN has no compiled kernel: PAD lies in the program before it, the convolution in the one behind.
    chain = Chain(F32, (1, 4, 4, 2))
    border = chain.constant(OperandCode.TENSOR_INT32, np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32), (4, 2))
    padded = chain.add(OperationCode.PAD, [chain.first, border], (1, 6, 6, 2))
    weights, bias = (
        chain.constant(F32, np.ones((3, 3, 3, 2), np.float32), (3, 3, 3, 2)),
        chain.constant(F32, np.zeros(3, np.float32), (3,)),
    )
    numbers = [chain.constant(OperandCode.INT32, value) for value in (2, 1, 1, 0)]
    summed = chain.add(OperationCode.CONV_2D, [padded, weights, bias, *numbers], (1, 4, 4, 3))
    wave = chain.add(OperationCode.SIN, [padded], (1, 6, 6, 2))
    model, x = chain.finish(wave, summed), np.ones((1, 4, 4, 2), np.float32)
    assert len(compile_model(model).programs) == 2
    found = [Executor(model, kernels=tier).run([x]) for tier in (Tier.COMPILED, Tier.REFERENCE)]
    for ours, theirs in zip(*found, strict=True):
        assert_same(ours.value, theirs.value)


def test_what_takes_longer_to_copy_than_to_compute_is_left_to_numpy_unless_it_has_a_neighbour() -> None:
    def covered(rows: int, *codes: OperationCode) -> tuple[int, ...]:
        chain = Chain(F32, (rows, 1024))
        last = chain.first
        for code in codes:
            last = chain.add(code, [last], (rows, 1024))
        return compile_model(chain.finish(last)).covered

    assert covered(256, OperationCode.RELU) == ()
    assert covered(256, OperationCode.LOGISTIC) == (0,)
    assert covered(256, OperationCode.RELU, OperationCode.NEG) == (0, 1)
    assert covered(2, OperationCode.RELU) == (0,)


def test_rows_that_repeat_are_not_left_to_numpy() -> None:
    chain = Chain(F32, (256, 1024))
    none, row = chain.constant(OperandCode.INT32, 0), chain.constant(F32, np.ones(1024, np.float32), (1024,))
    out = chain.add(OperationCode.ADD, [chain.first, row, none], (256, 1024))
    assert compile_model(chain.finish(out)).covered == (0,)
