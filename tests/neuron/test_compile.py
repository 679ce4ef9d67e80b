"""LiteRT's own compiler and runtime on nnbridge's devices."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from nnbridge import neuron
from nnbridge.cli.commands import cli
from nnbridge.errors import InputError
from nnbridge.neuron.compiling import compile_file, predicted
from nnbridge_tflite.neuron.passed import PASSED
from tests.conftest import MODELS, REPOSITORY
from tests.neuron.litert import CPU, drawn, litert, needs, ours
from tests.test_schemas import validator
from tests.tflite.cases import cases
from tests.tflite.files import TfliteBuilder

needs()

from nnbridge.loading import load  # noqa: E402  # after the skips

READABLE = ("float32", "uint8", "int8", "int32")
"""Element types that LiteRT's Python buffers have."""


def single_operators(folder: Path) -> tuple[Path, list[tuple[str, str, int]]]:
    """A file of all single operators that the compiler passes on, side by side: operator, type, number of outputs."""
    builder, listed = TfliteBuilder(), []
    inputs: list[int] = []
    outputs: list[int] = []
    for case in cases():
        for kind in case.types if case.operator in PASSED else ():
            specs = (spec for spec in (*case.inputs, *case.outputs) if isinstance(spec, tuple) and spec)
            others = {spec[-1] for spec in specs if isinstance(spec[-1], str)}
            if {kind, *others} <= set(READABLE):
                read, written = case.add(builder, kind)
                inputs += read
                outputs += written
                listed.append((case.operator, kind, len(written)))
    return builder.write(folder / "operators.tflite", inputs, outputs), listed


@pytest.mark.parametrize("device", [CPU, "nnapi-sample_quant"])
def test_what_is_granted_of_single_operators_compiles_and_runs(tmp_path: Path, device: str) -> None:
    path, listed = single_operators(tmp_path)
    (forecast,) = predicted(path, [device])
    compiled = compile_file(path, tmp_path / "compiled.tflite", [device])
    assert {*compiled.answers[0].refused} == {*forecast.refused}
    assert [p.operators for p in compiled.partitions] == [tuple(forecast.names[i] for i in run) for run in forecast.runs()]
    inputs = drawn(load(path))
    alone, here = ours(path, inputs, device), ours(compiled.path, inputs, device)
    there = litert(compiled.path, inputs, here)
    at = 0
    for number, (operator, kind, count) in enumerate(listed):
        for k in range(at, at + count) if number not in forecast.refused else ():
            assert here[k].tobytes() == alone[k].tobytes() == there[k].tobytes(), (number, operator, kind)
        at += count
    assert len(forecast.refused) < len(listed)


@pytest.mark.parametrize("file", ["digits_float32", "digits_int8", "digits_uint8", "digits_float16", "digits_dynamic"])
def test_a_whole_file_is_one_partition_and_its_answers_stay(tmp_path: Path, file: str) -> None:
    path = MODELS / f"{file}.tflite"
    compiled = compile_file(path, tmp_path / "compiled.tflite", ["nnapi-sample_all"])
    assert len(compiled.partitions) == 1
    assert not compiled.answers[0].refused
    inputs = drawn(load(path))
    expected = ours(path, inputs, "nnapi-sample_all")
    assert [a.tobytes() for a in ours(compiled.path, inputs, "nnapi-sample_all")] == [a.tobytes() for a in expected]
    assert [a.tobytes() for a in litert(compiled.path, inputs, expected)] == [a.tobytes() for a in expected]


def chain(folder: Path, *operators: str) -> Path:
    """Unary operators from x to y."""
    builder = TfliteBuilder()
    first = at = builder.tensor((2, 3), name="x")
    for name in operators:
        at, before = builder.tensor((2, 3), name=f"{name} {len(builder.tensors)}"), at
        builder.operator(name, [before], [at], {})
    return builder.write(folder / "m.tflite", [first], [at])


def test_operators_that_are_refused_divide_partitions(tmp_path: Path) -> None:
    path = chain(tmp_path, "ABS", "RELU", "EXP", "TANH")
    compiled = compile_file(path, tmp_path / "compiled.tflite", [CPU])
    assert [p.operators for p in compiled.partitions] == [("ABS", "RELU"), ("TANH",)]
    assert [operator.name for operator in operators(compiled.path)] == ["DISPATCH_OP", "EXP", "DISPATCH_OP"]
    x = np.linspace(-2, 3, 6, dtype=np.float32).reshape(2, 3)
    (here,) = ours(compiled.path, [x])
    np.testing.assert_allclose(here, np.tanh(np.exp(np.maximum(abs(x), 0))), rtol=1e-6)


def test_an_operand_that_spoils_a_model_costs_its_operator_alone(tmp_path: Path) -> None:
    profile = tmp_path / "npu.toml"
    text = '[[device]]\nname = "npu"\nfeature_level = 8\noperands = ["operand.rank <= 2"]\n[device.operations]\nothers = {}\n'
    profile.write_text(text)
    builder = TfliteBuilder()
    x, y = (builder.tensor((2, 3), name=name) for name in "xy")
    a, b = (builder.tensor((1, 2, 3), name=name) for name in "ab")
    builder.operator("ABS", [x], [y], {})
    builder.operator("ABS", [a], [b], {})
    path = builder.write(tmp_path / "m.tflite", [x, a], [y, b])
    compiled = compile_file(path, tmp_path / "compiled.tflite", [str(profile)])
    assert list(compiled.answers[0].refused) == [1]


def operators(path: Path) -> list[object]:
    """A file's operators."""
    from nnbridge_tflite.read.reader import read

    return list(read(path).graph.main.operators)


def concatenation(folder: Path) -> Path:
    """A CONCATENATION with a fused RELU, then an ABS."""
    builder = TfliteBuilder()
    x, y, z = (builder.tensor(shape, name=name) for name, shape in (("x", (2, 3)), ("y", (4, 3)), ("z", (4, 3))))
    builder.operator("CONCATENATION", [x, x], [y], {"axis": 0, "fused_activation_function": 1})
    builder.operator("ABS", [y], [z], {})
    return builder.write(folder / "m.tflite", [x], [z])


def test_what_calls_do_not_say_is_refused(tmp_path: Path) -> None:
    compiled = compile_file(concatenation(tmp_path), tmp_path / "compiled.tflite", [CPU])
    assert [p.operators for p in compiled.partitions] == [("ABS",)]
    assert "no fused activation, which the compiler drops" in str(compiled.answers[0].refused[0])


def test_constants_alone_are_no_partition(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    x, y, z = (builder.tensor((2, 3), name=name) for name in "xyz")
    half, real = builder.constant(np.ones((2, 3)), "float16"), builder.tensor((2, 3), name="real")
    builder.operator("DEQUANTIZE", [half], [real], {})
    builder.operator("EXP", [x], [y], {})
    builder.operator("ADD", [y, real], [z], {"fused_activation_function": 0})
    path = builder.write(tmp_path / "m.tflite", [x], [z])
    compiled = compile_file(path, tmp_path / "compiled.tflite", [CPU])
    assert [p.operators for p in compiled.partitions] == [("ADD",)]
    assert "constants alone" in str(compiled.answers[0].refused[0])


def test_the_compiler_runs_in_the_users_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ai_edge_litert

    neuron.preload()
    path = MODELS / "digits_int8.tflite"
    inputs = drawn(load(path))
    expected = ours(path, inputs)
    plugins = Path(ai_edge_litert.__path__[0]) / "vendors" / "mediatek" / "compiler"
    found = litert(path, inputs, expected, compiler_plugin_path=str(plugins))
    assert found[0].tobytes() == expected[0].tobytes()


def test_the_example_agrees_with_litert() -> None:
    example = REPOSITORY / "examples" / "neuron.py"
    command = [sys.executable, str(example), str(MODELS / "digits_uint8.tflite"), "nnapi-sample_quant"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == "equal"


# -- failures ------------------------------------------------------------------------------------------------------------


def test_the_compilers_words_are_shown_where_it_fails(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"(?s)LiteRT's compiler compiles a part, found exit status 1.*Unlegalized op: 47"):
        compile_file(chain(tmp_path, "EXP"), tmp_path / "compiled.tflite", [CPU])
    assert not (tmp_path / "compiled.tflite").exists()


def test_a_device_that_is_gone_is_an_error_of_litert(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    gone = tmp_path / "npu.toml"
    gone.write_text('[[device]]\nname = "npu"\nfeature_level = 8\n[device.operations]\nothers = {}\n')
    path = MODELS / "digits_int8.tflite"
    compiled = compile_file(path, tmp_path / "compiled.tflite", [str(gone)])
    gone.unlink()
    inputs = drawn(load(path))
    with pytest.raises(RuntimeError, match="Failed to"):
        litert(compiled.path, inputs, ours(path, inputs))
    assert str(gone) in caplog.text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--soc", "mt1"], "--soc: expected one of mt6853"),
        (["--device", "nothing"], "nothing"),
        (["--device", "host"], "--device: expected a driver or the CPU"),
    ],
)
def test_wrong_settings_are_refused(tmp_path: Path, arguments: list[str], words: str) -> None:
    output = ["-o", str(tmp_path / "c.tflite")]
    ended = CliRunner().invoke(
        cli, ["neuron", "compile", str(MODELS / "digits_int8.tflite"), "--device", CPU, *arguments, *output]
    )
    assert ended.exit_code == 2
    assert words in ended.output


def test_the_command_reports_as_json(tmp_path: Path) -> None:
    model, output = str(chain(tmp_path, "ABS", "EXP")), str(tmp_path / "c.tflite")
    ended = CliRunner().invoke(cli, ["neuron", "compile", model, "--device", CPU, "-o", output, "--json"])
    found = json.loads(ended.stdout)
    assert not list(validator("neuron").iter_errors(found))
    assert found["partitions"] == [{"name": "Partition_0", "operators": ["ABS"]}]
    assert found["subgraphs"][0]["operators"] == 2
    assert list(found["subgraphs"][0]["refused"]) == ["1"]
    assert "ERROR: [compiler_plugin.cc:522] Unlegalized op: 47" in found["messages"]
