"""The example extension and its driver: counterparts of FibonacciExtensionTest.cpp, and the driver in another process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from examples.fibonacci import EXAMPLE_FIBONACCI, EXAMPLE_INT64, EXAMPLE_TENSOR_QUANT64_ASYMM, NAME, PARAMS

from nnbridge import devices, storage
from nnbridge.builder import ModelBuilder
from nnbridge.devices.device import Device
from nnbridge.errors import BadDataError, OpFailedError
from nnbridge.extensions import TYPES
from nnbridge.model import Model
from nnbridge.runtime.compilation import Compilation, supported_operations
from nnbridge.runtime.execution import Execution
from nnbridge.types import OperandCode, OperationCode
from tests.conftest import REPOSITORY

FIRST_TEN = [1, 1, 2, 3, 5, 8, 13, 21, 34, 55]
FLOAT = OperandCode.TENSOR_FLOAT32


@pytest.fixture(params=["examples.fibonacci:FIBONACCI", "process:examples.fibonacci:FIBONACCI"], ids=["here", "process"])
def fibonacci(request: pytest.FixtureRequest) -> Device:
    """The driver in this process, and in one of its own."""
    return devices.device(request.param)


@dataclass
class Kind:
    """An operand's type."""

    code: int
    dims: tuple[int, ...] = ()
    data: bytes | None = field(default=None)


def int64() -> Kind:
    return Kind(TYPES.code(NAME, EXAMPLE_INT64))


def quant64(n: int, scale: float, zero_point: int) -> Kind:
    return Kind(TYPES.code(NAME, EXAMPLE_TENSOR_QUANT64_ASYMM), (n,), PARAMS.pack(scale, zero_point))


def fibonacci_model(inputs: list[Kind], outputs: list[Kind], *, number: int = EXAMPLE_FIBONACCI, nops: bool = False) -> Model:
    """The operation, between two additions of zeros with ``nops``."""
    builder = ModelBuilder()

    def add(kind: Kind) -> int:
        index = builder.add_operand(kind.code, kind.dims)
        if kind.data is not None:
            builder.set_operand_extension_data(index, kind.data)
        return index

    def nop(kind: Kind, source: int, target: int) -> None:
        zeros, none = builder.add_operand(kind.code, kind.dims), builder.add_operand(OperandCode.INT32)
        builder.set_operand_value(zeros, np.zeros(kind.dims, np.float32))
        builder.set_operand_value(none, 0)
        builder.add_operation(OperationCode.ADD, [source, zeros, none], [target])

    given, made = [add(k) for k in inputs], [add(k) for k in outputs]
    first, last = ([add(inputs[0])], [add(outputs[0])]) if nops else (given, made)
    if nops:
        nop(inputs[0], first[0], given[0])
    builder.add_operation(TYPES.code(NAME, number), given, made)
    if nops:
        nop(outputs[0], made[0], last[0])
    builder.identify_inputs_and_outputs(first, last)
    return builder.finish()


def compiled(model: Model, fibonacci: Device) -> Compilation:
    compilation = Compilation.create_for_devices(model, [fibonacci, devices.cpu()])
    compilation.finish()
    return compilation


def asked(model: Model, fibonacci: Device) -> list[bool]:
    return supported_operations(model, [fibonacci, devices.cpu()])


# -- FibonacciExtensionTest.cpp ----------------------------------------------------------------------------------------


def test_model_with_extension_operand_types(fibonacci: Device) -> None:
    model = fibonacci_model([int64()], [quant64(10, 0.5, 10)])
    assert asked(model, fibonacci) == [True]
    outputs = Execution(compiled(model, fibonacci)).run([np.array(10, np.int64)])
    assert outputs["output0"].tolist() == [int(f / 0.5) + 10 for f in FIRST_TEN]


def test_model_with_temporaries(fibonacci: Device) -> None:
    model = fibonacci_model([Kind(FLOAT, (1,))], [Kind(FLOAT, (10,))], nops=True)
    assert asked(model, fibonacci) == [True, True, True]
    compilation = compiled(model, fibonacci)
    assert [compilation.plan.device_of(i).kind for i in range(3)] == ["cpu", "device", "cpu"]
    assert Execution(compilation).run([np.array([10], np.float32)])["output0"].tolist() == FIRST_TEN


def _refused(*arguments: list[Kind], number: int = EXAMPLE_FIBONACCI) -> Callable[[Device], None]:
    def check(fibonacci: Device) -> None:
        model = fibonacci_model(*arguments, number=number)
        assert asked(model, fibonacci) == [False]
        with pytest.raises(BadDataError, match="a device that supports the operation"):
            compiled(model, fibonacci)

    return check


ONE = Kind(FLOAT, (1,))


def test_invalid_input_type(fibonacci: Device) -> None:
    _refused([Kind(OperandCode.TENSOR_INT32, (1,))], [ONE])(fibonacci)


def test_invalid_output_type(fibonacci: Device) -> None:
    _refused([ONE], [Kind(OperandCode.TENSOR_INT32, (1,))])(fibonacci)


@pytest.mark.parametrize("n", [-1, 0, 1.5, np.inf, np.nan, 93])
def test_invalid_input_value(fibonacci: Device, n: float) -> None:
    model = fibonacci_model([ONE], [ONE])
    assert asked(model, fibonacci) == [True]
    compilation = compiled(model, fibonacci)
    with pytest.raises(OpFailedError):
        Execution(compilation).run([np.array([n], np.float32)])


def test_invalid_num_inputs(fibonacci: Device) -> None:
    _refused([ONE, ONE], [ONE])(fibonacci)


def test_invalid_num_outputs(fibonacci: Device) -> None:
    _refused([ONE], [ONE, ONE])(fibonacci)


def test_invalid_operation(fibonacci: Device) -> None:
    _refused([ONE], [ONE], number=EXAMPLE_FIBONACCI + 1)(fibonacci)


# -- and more ----------------------------------------------------------------------------------------------------------


def test_an_output_of_another_length_than_n_is_refused(fibonacci: Device) -> None:
    compilation = compiled(fibonacci_model([ONE], [Kind(FLOAT, (4,))]), fibonacci)
    with pytest.raises(OpFailedError, match="as declared"):
        Execution(compilation).run([np.array([5], np.float32)])


def test_an_output_of_open_length_reports_n(fibonacci: Device) -> None:
    compilation = compiled(fibonacci_model([ONE], [Kind(FLOAT, (0,))]), fibonacci)
    assert Execution(compilation).run([np.array([5], np.float32)])["output0"].tolist() == FIRST_TEN[:5]


def test_parameters_of_another_size_are_refused_by_the_driver(fibonacci: Device) -> None:
    wrong = Kind(TYPES.code(NAME, EXAMPLE_TENSOR_QUANT64_ASYMM), (1,), b"short")
    _refused([int64()], [wrong])(fibonacci)


def test_a_saved_model_names_the_extension(fibonacci: Device, tmp_path: Path) -> None:
    model = fibonacci_model([int64()], [quant64(10, 1.0, 0)])
    storage.save(model, tmp_path / "f.nnapi")
    loaded = storage.load(tmp_path / "f.nnapi")
    assert loaded.extensions == {NAME: TYPES.prefix(NAME)}
    assert Execution(compiled(loaded, fibonacci)).run([np.array(10, np.int64)])["output0"].tolist() == FIRST_TEN


def test_a_saved_model_of_a_vendor_can_be_inspected_with_its_driver(tmp_path: Path) -> None:
    saved = tmp_path / "f.nnapi"
    devices.device("examples.fibonacci:FIBONACCI")
    storage.save(fibonacci_model([int64()], [quant64(10, 1.0, 0)]), saved)
    command = [sys.executable, "-c", "from nnbridge.cli import main; main()", "inspect", str(saved)]
    environment = {**os.environ, "COLUMNS": "80"}
    alone = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (alone.returncode, alone.stdout) == (2, "")
    assert alone.stderr == (
        f"nnbridge: {saved}: expected a driver among the devices (--device) whose extension has each operand type, "
        f"found none with {NAME}#{EXAMPLE_INT64}\n"
    )
    with_driver = [*command, "--device", "examples.fibonacci:FIBONACCI"]
    printed = subprocess.run(with_driver, env=environment, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert f"│{NAME}#{EXAMPLE_FIBONACCI}" in printed.stdout
