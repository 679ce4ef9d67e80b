"""The delegate's options: Android's names and defaults, each with its effect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from nnbridge import delegate
from nnbridge.cli.commands import cli
from nnbridge.converters.delegation import Part
from nnbridge.delegate import kernel as kernels
from nnbridge.delegate.delegating import Delegate
from nnbridge.delegate.options import READERS, REFUSED, DelegateOptions, parse
from nnbridge.devices.cpu import CpuPreparedModel
from nnbridge.devices.device import PreparedModel, PrepareModelConfig, Request, Result
from nnbridge.errors import InputError
from nnbridge.model import Model
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.types import OperationCode
from tests.conftest import REPOSITORY
from tests.delegate.interpreters import SHAPE, answer, graph, interpreter, needs
from tests.graphs import unary_chain
from tests.runtime.drivers import Driver

needs()

X = np.ones(SHAPE, np.float32)


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[Compilation]:
    """The compilations that delegates finish."""
    found: list[Compilation] = []
    finish = Compilation.finish

    def finished(compilation: Compilation) -> Any:
        found.append(compilation)
        return finish(compilation)

    monkeypatch.setattr(Compilation, "finish", finished)
    return found


# -- names and values --------------------------------------------------------------------------------------------------


def test_defaults_are_androids() -> None:
    assert parse([]) == DelegateOptions(
        execution_preference=-1,
        disallow_nnapi_cpu=True,
        max_number_delegated_partitions=3,
        allow_fp16=False,
        execution_priority=100,
        allow_dynamic_dimensions=False,
        use_burst_computation=False,
        max_execution_cache_size=4,
    )


def test_python_writes_values_as_text() -> None:
    assert parse([("allow_fp16", "True"), ("max_number_delegated_partitions", "0"), ("cache_dir", "None")]) == DelegateOptions(
        allow_fp16=True, max_number_delegated_partitions=0
    )


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("nnapi_execution_preference", "sustained_speed", ("execution_preference", 2)),
        ("nnapi_accelerator_name", "npu", ("accelerator_name", "npu")),
        ("disable_nnapi_cpu", "false", ("disallow_nnapi_cpu", False)),
        ("max_delegated_partitions", "7", ("max_number_delegated_partitions", 7)),
        ("nnapi_execution_priority", "high", ("execution_priority", 110)),
        ("nnapi_use_burst_mode", "1", ("use_burst_computation", True)),
        ("delegate_serialize_dir", "/d", ("cache_dir", "/d")),
        ("delegate_serialize_token", "t", ("model_token", "t")),
    ],
)
def test_benchmark_models_names_are_understood(name: str, text: str, expected: tuple[str, object]) -> None:
    assert getattr(parse([(name, text)]), expected[0]) == expected[1]


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([("gpu", "1")], "expected an option of execution_preference, accelerator_name, .*, found gpu"),
        ([("allow_fp16", "maybe")], "delegate option allow_fp16: expected true or false, found 'maybe'"),
        ([("max_number_delegated_partitions", "many")], "expected a whole number, found 'many'"),
        ([("execution_preference", "fast")], "expected one of undefined, low_power, .*, found 'fast'"),
        ([("max_execution_timeout_duration_ns", "-1")], "expected a whole number of at least 0"),
        ([("vendor_compilation_hints", "abc")], "expected EXTENSION/NUMBER=HEXADECIMAL BYTES"),
        ([("use_burst", "1"), ("use_burst_mode", "1")], "expected use_burst_computation once"),
    ],
)
def test_unknown_names_and_wrong_values_are_refused(pairs: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse(pairs)


@pytest.mark.parametrize("name", [*REFUSED, "nnapi_support_library_path"])
def test_options_without_counterpart_are_refused_with_the_reason(name: str) -> None:
    with pytest.raises(InputError, match=f"expected no {name.removeprefix('nnapi_')}, .*, found {name}"):
        parse([(name, "1")])


def test_every_option_of_androids_delegate_is_known() -> None:
    # StatefulNnApiDelegate::Options and TfLiteNnapiDelegateOptions, as of LiteRT 2.3.
    names = "execution_preference accelerator_name cache_dir model_token disallow_nnapi_cpu max_number_delegated_partitions "
    names += "allow_fp16 execution_priority max_compilation_timeout_duration_ns max_execution_timeout_duration_ns "
    names += "max_execution_loop_timeout_duration_ns allow_dynamic_dimensions use_burst_computation max_execution_cache_size "
    names += "tensor_max_size_hints vendor_compilation_hints vendor_execution_hints vendor_plugin "
    names += "disable_debugging_diagnostics_callbacks support_library_handle"
    assert {*names.split()} <= {*READERS, *REFUSED}


def test_load_delegate_shows_what_is_wrong() -> None:
    with pytest.raises(ValueError, match=r"expected an option of execution_preference, .*, found no_such_option"):
        delegate.load(no_such_option=1)
    with pytest.raises(ValueError, match=r"Could not find the specified NNAPI accelerator: npu\. Must be one of: \{.*nnapi-ref"):
        delegate.load("npu")


# -- effects -----------------------------------------------------------------------------------------------------------


def test_the_accelerator_is_the_device(tmp_path: Path, compilations: list[Compilation]) -> None:
    interpreter(graph(tmp_path, "ABS"), "nnapi-sample_all")
    assert [device.name for device in compilations[0].plan.devices] == ["nnapi-sample_all"]
    assert compilations[0].explicit


def test_without_an_accelerator_all_but_the_cpu_are_asked(tmp_path: Path, compilations: list[Compilation]) -> None:
    interpreter(graph(tmp_path, "ABS"), "")
    names = [device.name for device in compilations[0].plan.devices]
    assert "nnapi-sample_all" in names
    assert "nnapi-reference" not in names


def test_with_the_cpu_allowed_it_is_there_as_fallback(tmp_path: Path, compilations: list[Compilation]) -> None:
    interpreter(graph(tmp_path, "ABS"), "", disallow_nnapi_cpu=False)
    assert not compilations[0].explicit
    assert compilations[0].plan.devices[-1].name == "nnapi-reference"


def test_devices_may_be_named(tmp_path: Path, compilations: list[Compilation]) -> None:
    interpreter(graph(tmp_path, "ABS"), "", nnbridge_devices="nnapi-sample_all,nnapi-sample_full")
    assert [device.name for device in compilations[0].plan.devices] == ["nnapi-sample_all", "nnapi-sample_full"]


def test_the_cpu_alone_gets_nothing_unless_it_is_named(tmp_path: Path, compilations: list[Compilation]) -> None:
    interpreter(graph(tmp_path, "ABS"), "", nnbridge_devices="nnapi-reference")
    assert not compilations
    interpreter(graph(tmp_path, "ABS"), "nnapi-reference")
    assert len(compilations) == 1


def test_preference_and_priority_are_the_compilations(tmp_path: Path, compilations: list[Compilation]) -> None:
    interpreter(graph(tmp_path, "ABS"), execution_preference="low_power", execution_priority="high")
    assert (compilations[0].preference, compilations[0].priority) == (0, 110)


@pytest.mark.parametrize("allowed", [True, False])
def test_float16_may_be_allowed(allowed: bool, tmp_path: Path, compilations: list[Compilation]) -> None:
    interpreter(graph(tmp_path, "ABS"), allow_fp16=allowed)
    assert compilations[0].model.relaxed is allowed


@pytest.mark.parametrize(("limit", "expected"), [(1, 1), (3, 3), (0, 4), (-1, 4)])
def test_partitions_are_limited(limit: int, expected: int, tmp_path: Path, compilations: list[Compilation]) -> None:
    path = graph(tmp_path, "ABS", "SIGN", "ABS", "SIGN", "ABS", "SIGN", "ABS")  # SIGN is TFLite's
    interpreter(path, max_number_delegated_partitions=limit)
    assert len(compilations) == expected


def test_compiled_partitions_are_cached(tmp_path: Path, compilations: list[Compilation]) -> None:
    path, options = graph(tmp_path, "ABS"), {"cache_dir": tmp_path, "model_token": "m1"}
    for _ in range(2):
        interpreter(path, "caching:nnapi-sample_all", **options)
    interpreter(path, "caching:nnapi-sample_all", **{**options, "model_token": "m2"})
    found = [(record.read, record.written) for c in compilations for record in c.plan.cache]
    assert found == [(False, True), (True, False), (False, True)]


def test_a_cache_needs_both_folder_and_token(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    interpreter(graph(tmp_path, "ABS"), "caching:nnapi-sample_all", cache_dir=tmp_path)
    assert "WARNING: cache_dir and model_token are used together only" in capfd.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["m.tflite"]


def test_timeouts_are_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int]] = []
    for owner, name in ((Compilation, "set_timeout"), (Execution, "set_timeout"), (Execution, "set_loop_timeout")):
        monkeypatch.setattr(owner, name, lambda _, ns, name=f"{owner.__name__}.{name}": seen.append((name, ns)))
    names = ("max_compilation_timeout_duration_ns", "max_execution_timeout_duration_ns", "max_execution_loop_timeout_duration_ns")
    interpreter(graph(tmp_path, "ABS"), **{name: k for k, name in enumerate(names, 5)}).invoke()
    assert seen == [("Compilation.set_timeout", 5), ("Execution.set_timeout", 6), ("Execution.set_loop_timeout", 7)]


def test_a_timeout_with_several_devices_fails_as_on_android(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"NN API returned error ANEURALNETWORKS_BAD_DATA .*setTimeout.*Restored original"):
        interpreter(graph(tmp_path, "ABS"), "", max_compilation_timeout_duration_ns=5)


def test_hints_reach_the_driver(tmp_path: Path) -> None:
    seen: list[tuple[Any, ...]] = []

    class Hinted(CpuPreparedModel):
        def execute(self, request: Request) -> Result:
            seen.append(request.hints)
            return super().execute(request)

    class Listens(Driver):
        def prepare_model_with_config(self, model: Model, config: PrepareModelConfig) -> PreparedModel:
            seen.append(config.hints)
            return Hinted(model)

    hints = {"vendor_compilation_hints": "com.acme.npu/7=0aff,b/1=", "vendor_execution_hints": "com.acme.npu/8=01"}
    interpreter(graph(tmp_path, "ABS"), Listens("listens"), **hints).invoke()
    assert seen == [(("com.acme.npu", 7, b"\x0a\xff"), ("b", 1, b"")), (("com.acme.npu", 8, b"\x01"),)]


@pytest.mark.parametrize("name", ["vendor_compilation_hints", "vendor_execution_hints"])
def test_hints_are_for_one_device(name: str, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"NN API returned error ANEURALNETWORKS_BAD_DATA .*exactly one device"):
        interpreter(graph(tmp_path, "ABS"), "", **{name: "com.acme.npu/7=0a"}).invoke()


def test_bursts_may_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bursts: list[object] = []
    monkeypatch.setattr(kernels, "Burst", lambda compilation: bursts.append(compilation) or _Burst())
    interpreter(graph(tmp_path, "ABS"))
    assert not bursts
    interpreter(graph(tmp_path, "ABS"), use_burst_computation=True).invoke()
    interpreter(graph(tmp_path, "ABS"), "nnapi-sample_all@6").invoke()
    assert len(bursts) == 2


class _Burst:
    def compute(self, execution: Execution) -> None:
        execution.compute()


@pytest.mark.parametrize(("size", "expected"), [(0, 4), (1, 4), (2, 2), (4, 2)])
def test_executions_are_stored_up_to_a_number(size: int, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    bind = kernels.DelegateKernel._bind

    def bound(kernel: Any, context: Any) -> Any:
        made.append(kernel)
        return bind(kernel, context)

    monkeypatch.setattr(kernels.DelegateKernel, "_bind", bound)
    kernel = _kernel(DelegateOptions(max_execution_cache_size=size))
    places = [((16, 4),), ((32, 4),)]
    for place in (*places, *places):
        kernel._at(_Nowhere(), place)
    assert len(made) == expected


def test_open_dimensions_need_an_option(tmp_path: Path) -> None:
    assert Delegate.of(parse([("allow_dynamic_dimensions", "true")]), print).options.allow_dynamic_dimensions
    running = interpreter(graph(tmp_path, "ABS"), allow_dynamic_dimensions=True)
    assert answer(running, X).tolist() == X.tolist()


def test_refused_operators_are_listed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    interpreter(graph(tmp_path, "ABS", "SIGN"), verbose_validation=True)
    assert "INFO: Operator SIGN (v1) refused by NNAPI delegate: " in capfd.readouterr().err


def test_the_plan_is_written(tmp_path: Path) -> None:
    interpreter(graph(tmp_path, "ABS", "SIGN", "ABS"), nnbridge_plan=tmp_path / "plan.json")
    (found,) = json.loads((tmp_path / "plan.json").read_text())["graphs"]
    assert [partition["nodes"] for partition in found["partitions"]] == [[0], [2]]
    assert found["partitions"][0]["plan"]["operations"][0]["device"] == "nnapi-sample_all"


def test_the_trace_has_the_calls(tmp_path: Path) -> None:
    program = (
        "from ai_edge_litert.interpreter import Interpreter; from nnbridge import delegate;"
        f"i = Interpreter({str(graph(tmp_path, 'ABS'))!r}, experimental_delegates=[delegate.load('nnapi-sample_all')]);"
        "i.allocate_tensors(); i.invoke()"
    )
    environment = {**os.environ, "NNBRIDGE_TRACE": str(tmp_path / "trace")}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, cwd=REPOSITORY, timeout=120)
    calls = [json.loads(line)["call"].removeprefix("ANeuralNetworks") for line in (tmp_path / "trace").read_text().splitlines()]
    assert calls == [
        "Model_getSupportedOperationsForDevices",
        "Model_finish",
        "Compilation_finish",
        "Execution_compute",
    ]
    assert (tmp_path / "trace.model1.nnapi").is_file()


def test_the_command_builds_the_library_and_lists_options(tmp_path: Path) -> None:
    built = CliRunner().invoke(cli, ["delegate", "build", str(tmp_path), "--json"])
    head = {"schema": "nnbridge/build-delegate", "version": 1}
    assert json.loads(built.stdout) == {**head, "library": str(tmp_path / delegate.LIBRARY), "options": list(READERS)}
    assert (tmp_path / delegate.LIBRARY).is_file()


def test_a_folder_that_cannot_hold_the_library_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = CliRunner().invoke(cli, ["delegate", "build", str(tmp_path / "file" / "below")])
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{tmp_path / 'file' / 'below'}: expected a folder" in result.stderr


def _kernel(options: DelegateOptions) -> Any:
    """A kernel of one ABS."""
    model = unary_chain(OperationCode.ABS, dims=(1,))
    compilation = Compilation.create_for_devices(model, ["nnapi-sample_all"])
    compilation.finish()
    return kernels.DelegateKernel(Part(model, (0,), (1,)), compilation, options, [(1,)])


class _Nowhere:
    """A context whose tensors have the size that is asked for."""

    def buffer(self, _tensor: int) -> bytearray:
        return bytearray(4)
