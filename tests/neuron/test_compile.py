"""LiteRT's own compiler and runtime on nnbridge's devices."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
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
from tests.tflite.case import QUANT8, REAL, Bias, C, Case, W
from tests.tflite.cases import cases
from tests.tflite.files import TfliteBuilder

needs()

from nnbridge.file import load  # noqa: E402  # after the skips

FUSED = "fused_activation_function"
READABLE = ("float32", "uint8", "int8", "int32")
"""Element types that LiteRT's Python buffers have."""


def side_by_side(folder: Path, listed: Sequence[tuple[Case, str]]) -> Path:
    """A file of single operators, each with operands of its own."""
    builder, sides = TfliteBuilder(), ([], [])
    for case, kind in listed:
        for side, found in zip(sides, case.add(builder, kind), strict=True):
            side.extend(found)
    return builder.write(folder / "operators.tflite", *sides)


def usual() -> list[tuple[Case, str]]:
    """All single operators that the compiler passes on, as LiteRT runs them."""
    found = []
    for case in cases():
        specs = (spec for spec in (*case.inputs, *case.outputs) if isinstance(spec, tuple) and spec)
        others = {spec[-1] for spec in specs if isinstance(spec[-1], str)}
        if case.operator in PASSED:
            found += [(case, kind) for kind in case.types if {kind, *others} <= set(READABLE)]
    return found


def odd() -> list[tuple[Case, str]]:
    """Operators whose outputs have other scales than their inputs, and activations that NNAPI does not have."""
    strides = {"padding": 1, "stride_w": 2, "stride_h": 2, "filter_width": 2, "filter_height": 2}
    unary = ["LOGISTIC", "TANH", "RELU", "HARD_SWISH", "L2_NORMALIZATION", "ABS", "SQRT", "RSQRT", "QUANTIZE"]
    found = [
        *(Case(name, [(1, 4, 4, 2)], [(1, 2, 2, 2)], strides, QUANT8) for name in ("AVERAGE_POOL_2D", "MAX_POOL_2D")),
        *(Case(name, [(2, 3)], [(2, 3)], {}, QUANT8) for name in unary),
        *(Case(name, [(2, 3), (2, 3)], [(2, 3)], {}, QUANT8) for name in ("MAXIMUM", "MINIMUM")),
        *(Case(name, [(2, 3), C([1])], [(2, 1)], {"keep_dims": True}, QUANT8) for name in ("MEAN", "SUM", "REDUCE_MAX")),
        *(Case(name, [(2, 3), (2, 3)], [(2, 3)], {FUSED: 4}, REAL) for name in ("ADD", "SUB", "MUL")),
        Case("CONV_2D", [(1, 4, 4, 2), W((3, 1, 1, 2)), Bias(3)], [(1, 2, 2, 3)], {**strides, FUSED: 4}, REAL),
        Case("SOFTMAX", [(2, 3)], [(2, 3)], {"beta": 1.0}, QUANT8),
        Case("RESHAPE", [(2, 3), C((3, 2))], [(3, 2)], {"new_shape": [3, 2]}, QUANT8),
        Case("TRANSPOSE", [(2, 3), C((1, 0))], [(3, 2)], {}, QUANT8),
        Case("SLICE", [(2, 3), C((0, 0)), C((1, 2))], [(1, 2)], {}, QUANT8),
        Case("TILE", [(2, 3), C((2, 1))], [(4, 3)], {}, QUANT8),
        Case("PAD", [(2, 3), C([[1, 0], [0, 0]])], [(3, 3)], {}, QUANT8),
        Case("RESIZE_BILINEAR", [(1, 2, 2, 1), C((4, 6))], [(1, 4, 6, 1)], {}, QUANT8),
        Case("SPLIT", [C(1), (2, 4)], [(2, 2), (2, 2)], {"num_splits": 2}, QUANT8),
        Case("FULLY_CONNECTED", [(2, 5, 4), W((3, 4)), Bias(3)], [(2, 5, 3)], {"keep_num_dims": True}, REAL),
    ]
    return [(case, kind) for case in found for kind in case.types]


@pytest.mark.parametrize("device", [CPU, "nnapi-sample_quant"])
@pytest.mark.parametrize("operators", [usual, odd])
def test_what_is_granted_of_single_operators_compiles_and_runs(
    tmp_path: Path, device: str, operators: Callable[[], list[tuple[Case, str]]]
) -> None:
    listed = operators()
    path = side_by_side(tmp_path, listed)
    (forecast,) = predicted(path, [device])
    compiled = compile_file(path, tmp_path / "compiled.tflite", [device])
    assert {*compiled.answers[0].refused} == {*forecast.refused}
    assert [p.operators for p in compiled.partitions] == [tuple(forecast.names[i] for i in run) for run in forecast.runs()]
    # LiteRT and nnbridge run no file with an operator that neither computes.
    granted = [both for number, both in enumerate(listed) if number not in forecast.refused]
    assert 0 < len(granted) < len(listed)
    compiled = compile_file(path := side_by_side(tmp_path, granted), tmp_path / "compiled.tflite", [device])
    assert not compiled.answers[0].refused
    inputs = drawn(load(path))
    alone, here = ours(path, inputs, device), ours(compiled.path, inputs, device)
    there = litert(compiled.path, inputs, here)
    names = [(case.operator, kind) for case, kind in granted for _ in case.outputs]
    for name, *found in zip(names, alone, here, there, strict=True):
        assert len({array.tobytes() for array in found}) == 1, name


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


def lossy(folder: Path) -> Path:
    """Operators of which calls do not say all, then an ABS."""
    builder = TfliteBuilder()
    x, y, z, both = (builder.tensor((2, 4), name=name) for name in ("x", "y", "z", "both"))
    builder.operator("CONCATENATION", [x], [y], {"axis": 0, FUSED: 1})
    builder.operator("GELU", [x], [z], {"approximate": False})
    begin, end, ones = (builder.constant([n, n], "int32") for n in (0, 2, 1))
    dims = {"ellipsis_mask": (2, 2), "new_axis_mask": (1, 2, 4)}
    sliced = [builder.tensor(shape, name=mask) for mask, shape in dims.items()]
    for mask, out in zip(dims, sliced, strict=True):
        builder.operator("STRIDED_SLICE", [x, begin, end, ones], [out], {mask: 1})
    builder.buffers.append({"data": np.full(4, 0x21, np.uint8)})
    narrow = builder.tensor((2, 4), "int4", scale=[0.5, 0.25], zero_point=[0, 0], buffer=len(builder.buffers) - 1)
    product = builder.tensor((2, 2), name="product")
    builder.operator("FULLY_CONNECTED", [x, narrow], [product], {FUSED: 0})
    builder.operator("ABS", [x], [both], {})
    return builder.write(folder / "m.tflite", [x], [y, z, *sliced, product, both])


def test_what_calls_do_not_say_is_refused(tmp_path: Path) -> None:
    compiled = compile_file(lossy(tmp_path), tmp_path / "compiled.tflite", [CPU])
    assert [p.operators for p in compiled.partitions] == [("ABS",)]
    assert [compiled.answers[0].refused[i].rule.split(": expected ")[1].split(", found")[0] for i in range(5)] == [
        "no fused activation, which the compiler drops",
        "the approximate GELU, which the compiler passes on for both",
        "no ellipsis, which the compiler drops",
        "no new axes, which the compiler drops",
        "4-bit weights with one scale, as the compiler passes no others on",
    ]


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
    assert "only constants" in str(compiled.answers[0].refused[0])


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
        (["--soc", "mt1"], "soc: expected one of mt6853"),
        (["--device", "nothing"], "nothing"),
        (["--device", "host"], "device: expected a driver or the CPU"),
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
    assert not list(validator("build-neuron-file").iter_errors(found))
    assert found["partitions"] == [{"name": "Partition_0", "operators": ["ABS"]}]
    assert found["subgraphs"][0]["operators"] == 2
    assert list(found["subgraphs"][0]["refused"]) == ["1"]
    assert "ERROR: [compiler_plugin.cc:522] Unlegalized op: 47" in found["messages"]


def test_compare_takes_litert_as_the_reference_of_a_compiled_file(tmp_path: Path) -> None:
    path = tmp_path / "compiled.tflite"
    compile_file(MODELS / "digits_int8.tflite", path, ["nnapi-sample_quant"])
    answer = CliRunner().invoke(cli, ["compare", str(path), "--device", "nnapi-sample_quant", "--reference", "litert", "--json"])
    assert answer.exit_code == 0, answer.output
    assert [output["mismatches"] for output in json.loads(answer.stdout)["outputs"]] == [0]


def test_devices_are_named_from_the_current_folder_though_the_compiler_runs_in_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here_npu.py").write_text(
        "from nnbridge.devices import driver\n\n\n@driver('here')\ndef NPU(model, operation):\n    return True\n"
    )
    names = "\n".join(f'{name} = ["TENSOR_FLOAT32"]' for name in ("CONV_2D", "SOFTMAX"))
    (tmp_path / "npu.toml").write_text(f'[[device]]\nname = "npu"\n[device.operations]\n{names}\n')
    for device in ("here_npu:NPU", "npu.toml"):
        compiled = compile_file(MODELS / "digits_float32.tflite", Path("compiled.tflite"), [device])
        assert compiled.partitions
        assert (tmp_path / "compiled.tflite").is_file()
