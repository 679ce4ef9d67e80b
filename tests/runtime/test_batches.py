"""Batches: inputs that hold more samples than the model takes, and reading ahead of computing."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nnbridge import Compilation, Execution, InputError, Model, ModelBuilder, load
from nnbridge.inputs import read_ahead
from nnbridge.model import State
from nnbridge.runtime.batches import Batches
from nnbridge.types import OperandCode, OperationCode
from tests.commands import call
from tests.conftest import MODELS
from tests.counting import calls
from tests.graphs import unary_chain

KERNELS = pytest.mark.parametrize("kernels", ["reference", "auto"])
DIGITS = MODELS / "digits_int8.tflite"


def batches(model: Model, kernels: str = "auto") -> Batches:
    """Batches of a model on the CPU."""
    compilation = Compilation.create(model, [], kernels=kernels)
    compilation.finish()
    return Batches(compilation)


def digits(count: int) -> tuple[str, np.ndarray]:
    """The name of the classifier's input, and random images."""
    model = load(DIGITS)
    operand = model.main.operands[model.main.inputs[0]]
    return operand.name, np.random.default_rng(0).integers(-128, 128, (count, *operand.dims[1:])).astype(np.int8)


@KERNELS
@pytest.mark.parametrize("count", [1, 2, 7])
def test_a_batch_is_answered_as_its_samples_are_one_by_one(kernels: str, count: int) -> None:
    name, images = digits(count)
    found = batches(load(DIGITS), kernels)
    compilation = Compilation.create(load(DIGITS), [], kernels=kernels)
    compilation.finish()
    single = [Execution(compilation).run({name: images[k : k + 1]}) for k in range(count)]
    for _ in range(2):
        for output, value in found.run({name: images}).items():
            np.testing.assert_array_equal(value, np.concatenate([answer[output] for answer in single]))


def test_what_has_no_more_samples_is_shared_by_all() -> None:
    builder = ModelBuilder("sum")
    x, y = (builder.add_operand(OperandCode.TENSOR_FLOAT32, (1, 3), name=name) for name in "xy")
    none = builder.add_operand(OperandCode.INT32)
    builder.set_operand_value(none, 0)
    z = builder.add_operand(OperandCode.TENSOR_FLOAT32, (1, 3), name="z")
    builder.add_operation(OperationCode.ADD, [x, y, none], [z])
    builder.identify_inputs_and_outputs([x, y], [z])
    found = batches(builder.finish()).run({"x": np.arange(6, dtype=np.float32).reshape(2, 3), "y": np.ones((1, 3), np.float32)})
    assert found["z"].tolist() == [[1, 2, 3], [4, 5, 6]]


def test_open_dimensions_are_computed_at_once() -> None:
    found = batches(unary_chain(OperationCode.RELU, dims=(0, 2))).run({"x": np.array([[-1, 2], [3, -4]], np.float32)})
    assert found["y"].tolist() == [[0, 2], [3, 0]]


@pytest.mark.parametrize("shape", [(3, 4), (2, 5), (0, 4), (4,)])
def test_what_is_no_multiple_of_the_models_batch_is_refused(shape: tuple[int, ...]) -> None:
    rule = "x: expected shape [2, 4], or a multiple along the first axis, found"
    with pytest.raises(InputError, match=re.escape(f"{rule} {list(shape)}")):
        batches(unary_chain(OperationCode.RELU, dims=(2, 4))).run({"x": np.zeros(shape, np.float32)})


def test_a_model_with_states_is_refused() -> None:
    stateful = replace(unary_chain(OperationCode.RELU), states=(State(0, 0),))
    with pytest.raises(InputError, match="a model without states"):
        batches(stateful)


def test_a_missing_input_is_named() -> None:
    with pytest.raises(InputError, match="none for x"):
        batches(unary_chain(OperationCode.RELU)).run({})


def test_read_ahead_has_the_same_items_and_reads_no_further_than_asked() -> None:
    read: list[int] = []

    def items() -> Iterator[int]:
        for k in range(20):
            read.append(k)
            yield k

    ahead = read_ahead(items(), 3)
    assert next(ahead) == 0
    time.sleep(0.05)
    assert len(read) <= 6
    assert list(ahead) == list(range(1, 20))


def test_items_are_read_while_others_are_computed() -> None:
    second_read = threading.Event()

    def items() -> Iterator[int]:
        yield 1
        second_read.set()
        yield 2

    ahead = read_ahead(items(), 1)
    next(ahead)
    assert second_read.wait(5)


def test_what_reading_raises_comes_in_its_place() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise InputError("damaged")

    ahead = read_ahead(items())
    assert next(ahead) == 1
    with pytest.raises(InputError, match="damaged"):
        next(ahead)


def test_a_reader_ends_with_its_iterator() -> None:
    ahead = read_ahead(iter(range(100)), 1)
    next(ahead)
    ahead.close()
    deadline = time.monotonic() + 5
    while any(thread.name == "nnbridge-reader" for thread in threading.enumerate()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not [thread for thread in threading.enumerate() if thread.name == "nnbridge-reader"]


def test_an_array_of_several_batches_is_a_data_set_and_batch_changes_no_answer(tmp_path: Path) -> None:
    name, images = digits(5)
    np.save(tmp_path / "images.npy", images)
    answers = []
    for options in ([], ["--batch", "2"]):
        stored = tmp_path / f"answers{len(options)}.npz"
        arguments = ["run", str(DIGITS), "--input", str(tmp_path / "images.npy"), "--samples", str(stored), "--json", *options]
        result = call(*arguments)
        assert result.exit_code == 0, result.output
        json.loads(result.stdout)
        with np.load(stored) as file:
            answers.append({key: file[key] for key in file.files})
    assert len(answers[0][f"input:{name}"]) == 5
    for key, value in answers[0].items():
        np.testing.assert_array_equal(value, answers[1][key])


def test_cost_grows_linearly_with_the_batch() -> None:
    found = batches(load(DIGITS))

    def cost(count: int) -> int:
        name, images = digits(count)
        return calls(lambda: found.run({name: images}))

    assert cost(64) <= 4 * cost(16)
