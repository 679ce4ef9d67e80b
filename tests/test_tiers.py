"""Kernels of the CPU executor: the default tier, requests for another one, and what happens where there is none."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from nnbridge import Compilation, Execution, InputError, Model, ModelBuilder, load
from nnbridge.compare import seeded_inputs
from nnbridge.cpu import compiled
from nnbridge.cpu.executor import Executor
from nnbridge.cpu.settings import Settings, Tier, current, preparing
from nnbridge.storage import save
from nnbridge.types import OperandCode, OperationCode
from tests.commands import call
from tests.conftest import MODELS
from tests.graphs import unary_chain

U8 = OperandCode.TENSOR_QUANT8_ASYMM
SMALL = unary_chain(OperationCode.RELU, OperationCode.RELU6)


def has_compiler() -> None:
    """Skip the test where there are no compiled kernels."""
    if (reason := compiled.unavailable()) is not None:
        pytest.skip(reason)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """llvmlite cannot be imported."""
    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    compiled.unavailable.cache_clear()
    yield
    compiled.unavailable.cache_clear()


def test_the_default_is_compiled_where_there_is_a_compiler() -> None:
    has_compiler()
    assert current().kernels == "auto"
    assert Executor(SMALL).kernels is Tier.COMPILED


def test_the_environment_names_another_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNBRIDGE_KERNELS", "reference")
    assert Executor(SMALL).kernels is Tier.REFERENCE


def test_a_compilation_decides_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNBRIDGE_KERNELS", "compiled")
    compilation = Compilation.create(SMALL, [], kernels="reference", threads=3)
    assert compilation.settings == Settings("reference", 3)


def test_what_is_prepared_inside_computes_as_the_compilation_says() -> None:
    with preparing(Settings("reference", 2)):
        executor = Executor(SMALL)
    assert (executor.kernels, executor.threads) == (Tier.REFERENCE, 2)


@pytest.mark.parametrize("kernels", ["fast", ""])
def test_unknown_kernels_are_refused(kernels: str) -> None:
    with pytest.raises(InputError, match="auto, reference, compiled"):
        Compilation.create(SMALL, [], kernels=kernels)


def test_an_unknown_word_in_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNBRIDGE_KERNELS", "fast")
    with pytest.raises(InputError, match="NNBRIDGE_KERNELS"):
        Compilation.create(SMALL, [])


@pytest.mark.parametrize("threads", [0, -1, 257])
def test_threads_are_1_to_256(threads: int) -> None:
    with pytest.raises(InputError, match="1 to 256 threads"):
        Compilation.create(SMALL, []).threads = threads


@pytest.mark.parametrize("kernels", ["auto", "compiled"])
def test_without_llvmlite_the_reference_tier_computes_and_it_is_said_once(
    kernels: str, broken: None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "nnbridge"), preparing(Settings(kernels)):
        executors = [Executor(SMALL) for _ in range(3)]
    assert [executor.kernels for executor in executors] == [Tier.REFERENCE] * 3
    assert len([message for message in caplog.messages if "llvmlite" in message]) == 1


def test_observing_changes_no_bit_and_sees_every_operation() -> None:
    rng = np.random.default_rng(0)
    model, x = quantised(), rng.integers(0, 256, (1, 5, 5, 8), np.uint8)
    compilation = Compilation.create(model, [])
    compilation.finish()
    seen: dict[int, np.ndarray] = {}
    execution = Execution(compilation)
    execution.observer = lambda plan, step, device, subgraph, operand, value: seen.update({operand: value.copy()})
    observed, plain = execution.run([x]), Execution(compilation).run([x])
    outputs = {i for operation in model.main.operations for i in operation.outputs}
    assert outputs <= seen.keys()
    assert all(np.array_equal(observed[name], plain[name]) for name in plain)
    # The reference kernels' values on the way are the same.
    reference = Compilation.create(model, [], kernels="reference")
    reference.finish()
    by_reference: dict[int, np.ndarray] = {}
    execution = Execution(reference)
    execution.observer = lambda plan, step, device, subgraph, operand, value: by_reference.update({operand: value.copy()})
    execution.run([x])
    assert all(np.array_equal(seen[i], by_reference[i]) for i in outputs)


def quantised() -> Model:
    """RELU, PAD, MAX_POOL_2D on bytes."""
    builder = ModelBuilder("quantised")

    def tensor(*dims: int) -> int:
        return builder.add_operand(U8, dims, scale=0.5, zero_point=100)

    def number(value: int) -> int:
        index = builder.add_operand(OperandCode.INT32)
        builder.set_operand_value(index, value)
        return index

    x, relu, padded, pooled = tensor(1, 5, 5, 8), tensor(1, 5, 5, 8), tensor(1, 6, 6, 8), tensor(1, 3, 3, 8)
    pads = builder.add_operand(OperandCode.TENSOR_INT32, (4, 2))
    builder.set_operand_value(pads, np.array([[0, 0], [1, 0], [0, 1], [0, 0]], np.int32))
    builder.add_operation(OperationCode.RELU, [x], [relu])
    builder.add_operation(OperationCode.PAD, [relu, pads], [padded])
    builder.add_operation(OperationCode.MAX_POOL_2D, [padded, *map(number, (2, 2, 2, 2, 2, 0))], [pooled])
    builder.identify_inputs_and_outputs([x], [pooled])
    return builder.finish()


IMPORTS_NO_COMPILER = """
import sys
from click.testing import CliRunner
from nnbridge.cli.commands import cli
for arguments in {commands!r}:
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, (arguments, result.output, result.exception)
    assert "llvmlite" not in sys.modules, arguments
"""


def test_commands_that_run_nothing_import_no_compiler(tmp_path: Path) -> None:
    model = MODELS / "digits_int8.tflite"
    commands = [
        ["plan", str(model)],
        ["inspect", str(model)],
        ["devices"],
        ["convert", str(model), "-o", str(tmp_path / "converted.nnapi")],
    ]
    code = IMPORTS_NO_COMPILER.format(commands=commands)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_the_option_kernels_holds_for_one_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.delenv("NNBRIDGE_KERNELS", raising=False)
    save(SMALL, path := tmp_path / "small.nnapi")
    for kernels in ("reference", "compiled"):
        result = call("run", path, "--seed", "0", "--kernels", kernels, "--threads", "2")
        assert result.exit_code == 0, result.output
        assert current().kernels == "auto"


@pytest.mark.parametrize("kernels", ["reference", "auto"])
def test_answers_do_not_depend_on_the_number_of_threads(kernels: str) -> None:
    model = load(MODELS / "digits_float32.tflite")
    inputs = seeded_inputs(model, 0)
    answers = []
    for threads in (1, 2, 3):
        compilation = Compilation.create(model, [], kernels=kernels, threads=threads)
        compilation.finish()
        answers.append(Execution(compilation).run(inputs))
    for name, first in answers[0].items():
        assert all(np.array_equal(first, other[name]) for other in answers[1:])


def test_executions_in_several_threads_share_a_compilation() -> None:
    model = load(MODELS / "digits_int8.tflite")
    compilation = Compilation.create(model, [], threads=2)
    compilation.finish()
    samples = [seeded_inputs(model, seed) for seed in range(4)]
    expected = [Execution(compilation).run(sample) for sample in samples]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda k: Execution(compilation).run(samples[k % 4]), range(200)))
    for k, outputs in enumerate(found):
        assert all(np.array_equal(outputs[name], value) for name, value in expected[k % 4].items())


def test_stated_threads_hold_for_blas() -> None:
    threadpoolctl = pytest.importorskip("threadpoolctl")

    def counts() -> set[int]:
        return {pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"}

    with threadpoolctl.threadpool_limits():
        before = counts()
        Compilation.create(SMALL, []).finish()
        assert counts() == before
        Compilation.create(SMALL, [], threads=1).finish()
        assert counts() <= {1}
