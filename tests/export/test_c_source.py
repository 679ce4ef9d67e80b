"""C and C++ source of a model, compiled without a warning and run in front of the C library."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nnbridge import clib, export, load
from nnbridge.builder import ModelBuilder
from nnbridge.conformance.cases import build, read_cases
from nnbridge.errors import InputError
from nnbridge.export.c_source import _float
from nnbridge.extensions import TYPES
from nnbridge.model import Model, Operation, State
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.types import OperandCode, OperationCode
from tests.commands import call
from tests.graphs import add_then, constant_add, unary_chain

pytest.importorskip("cffi")

COMPILERS = {".c": ("gcc", "-std=c11"), ".cpp": ("g++", "-std=c++14")}
compiler = pytest.mark.skipif(not all(shutil.which(c) for c, _ in COMPILERS.values()), reason="there is no gcc and g++ here")


@pytest.fixture(scope="module")
def ndk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the C library and its header."""
    folder = tmp_path_factory.mktemp("ndk")
    clib.build(folder)
    return folder


def compile_source(source: Path, ndk: Path, *options: str) -> Path:
    """The generated program, compiled with all warnings as errors."""
    command, standard = COMPILERS[source.suffix]
    program = source.with_suffix("")
    files = (str(source), str(source.with_name(f"{source.stem}_main{source.suffix}")))
    flags = (standard, "-Wall", "-Wextra", "-Werror", "-O1", *options)
    subprocess.run([command, *flags, *files, f"-I{ndk}", f"-L{ndk}", "-lneuralnetworks", "-o", str(program)], check=True)
    return program


def run(program: Path, ndk: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **clib.environment(ndk)}
    command = [str(program), *map(str, arguments)]
    return subprocess.run(command, env=environment, cwd=program.parent, capture_output=True, text=True, timeout=120, check=False)


def answers(program: Path, ndk: Path, *inputs: np.ndarray, options: tuple[object, ...] = ()) -> list[bytes]:
    """The program's outputs for inputs."""
    files = [program.with_name(f"in{i}") for i in range(len(inputs))]
    for file, value in zip(files, inputs, strict=True):
        file.write_bytes(value.tobytes())
    ended = run(program, ndk, program.with_suffix(".bin"), *files, *options)
    assert ended.returncode == 0, ended.stderr
    return [file.read_bytes() for file in sorted(program.parent.glob("output*.bin"))]


def expected(model: Model, *inputs: np.ndarray) -> list[bytes]:
    compilation = Compilation.create(model, [])
    compilation.finish()
    return [value.tobytes() for value in Execution(compilation).run(list(inputs)).values()]


@compiler
@pytest.mark.parametrize("suffix", COMPILERS)
def test_answers_equal_those_of_run_bit_for_bit(suffix: str, real_models: Path, ndk: Path, tmp_path: Path) -> None:
    model = load(real_models / "kws_ref_model.tflite")
    source, *_ = export.write(model, tmp_path / f"kws{suffix}", "kws")
    value = np.random.default_rng(0).integers(-128, 128, model.main.operands[model.main.inputs[0]].dims).astype(np.int8)
    assert answers(compile_source(source, ndk), ndk, value) == expected(model, value)


@compiler
def test_a_constant_of_more_than_128_bytes_comes_from_the_file_of_weights(ndk: Path, tmp_path: Path) -> None:
    weights = np.arange(100, dtype=np.float32)
    source, *_, constants = export.write(constant_add(weights), tmp_path / "add.c", "add")
    assert weights.tobytes() in constants.read_bytes()
    (total,) = answers(compile_source(source, ndk), ndk, weights)
    assert np.frombuffer(total, np.float32).tolist() == (2 * weights).tolist()


def if_model() -> Model:
    """``condition``, ``x`` → -x or |x|."""
    bodies = [unary_chain(code) for code in (OperationCode.NEG, OperationCode.ABS)]
    builder = ModelBuilder("if")
    condition = builder.add_operand(OperandCode.TENSOR_BOOL8, (1,), name="condition")
    models = [builder.add_operand(OperandCode.MODEL) for _ in bodies]
    for operand, body in zip(models, bodies, strict=True):
        builder.set_operand_value_from_model(operand, body)
    x, y = (builder.add_operand(OperandCode.TENSOR_FLOAT32, (1, 4), name=name) for name in "xy")
    builder.add_operation(OperationCode.IF, [condition, *models, x], [y])
    builder.identify_inputs_and_outputs([condition, x], [y])
    return builder.finish()


@compiler
def test_bodies_of_control_flow_are_models_of_their_own(ndk: Path, tmp_path: Path) -> None:
    program = compile_source(next(iter(export.write(if_model(), tmp_path / "branch.c", "if"))), ndk)
    x = np.array([[-1, 2, -3, 4]], np.float32)
    assert answers(program, ndk, np.array([True]), x) == [(-x).tobytes()]
    assert answers(program, ndk, np.array([False]), x) == [np.abs(x).tobytes()]


@compiler
def test_states_go_from_one_run_to_the_next(ndk: Path, tmp_path: Path) -> None:
    builder = ModelBuilder("sum")
    x, before, after = (builder.add_operand(OperandCode.TENSOR_FLOAT32, (2,), name=name) for name in ("x", "before", "after"))
    none = builder.add_operand(OperandCode.INT32)
    builder.set_operand_value(none, 0)
    y = builder.add_operand(OperandCode.TENSOR_FLOAT32, (2,), name="y")
    builder.add_operation(OperationCode.ADD, [x, before, none], [after])
    builder.add_operation(OperationCode.FLOOR, [after], [y])
    builder.identify_inputs_and_outputs([x, before], [y, after])
    model = replace(builder.finish(), states=(State(1, 1, np.array([10, 20], np.float32).tobytes()),))
    program = compile_source(next(iter(export.write(model, tmp_path / "sum.c", "sum"))), ndk)
    (total,) = answers(program, ndk, np.ones(2, np.float32), options=("--repeat", 3))
    assert np.frombuffer(total, np.float32).tolist() == [13, 23]


@compiler
def test_a_dimension_that_only_a_run_knows_is_answered(ndk: Path, tmp_path: Path) -> None:
    model = add_then(OperationCode.ABS, dims=(1, 4))
    y = model.main.outputs[0]
    operands = [replace(o, dims=(0, 0)) if i == y else o for i, o in enumerate(model.main.operands)]
    model = replace(model, main=replace(model.main, operands=tuple(operands)))
    program = compile_source(next(iter(export.write(model, tmp_path / "open.c", "open"))), ndk)
    (total,) = answers(program, ndk, np.zeros((1, 4), np.float32))
    assert np.frombuffer(total, np.float32).tolist() == [1, 1, 1, 1]


@compiler
def test_weights_of_another_model_are_refused(ndk: Path, tmp_path: Path) -> None:
    program = compile_source(next(iter(export.write(constant_add(np.ones(100, np.float32)), tmp_path / "one.c", "one"))), ndk)
    *_, other = export.write(constant_add(np.zeros(100, np.float32)), tmp_path / "elsewhere.c", "zero")
    (tmp_path / "in").write_bytes(bytes(400))
    ended = run(program, ndk, other, tmp_path / "in")
    assert (ended.returncode, "weights that this source was not generated with" in ended.stderr) == (1, True)


@compiler
def test_without_inputs_the_program_says_which_it_needs(ndk: Path, tmp_path: Path) -> None:
    program = compile_source(next(iter(export.write(add_then(), tmp_path / "add.c", "add"))), ndk)
    ended = run(program, ndk)
    assert ended.returncode == 2
    assert "input x: type 3, dimensions [1, 4], 16 bytes" in ended.stderr


@compiler
def test_names_from_a_file_end_no_comment_and_no_string(ndk: Path, tmp_path: Path) -> None:
    model = add_then()
    bad = '*/ int "x\\\n??/ \x1b é'
    operands = tuple(replace(operand, name=bad) for operand in model.main.operands)
    operations = tuple(replace(operation, name=bad) for operation in model.main.operations)
    model = replace(model, main=replace(model.main, operands=operands, operations=operations))
    for suffix in COMPILERS:
        compile_source(next(iter(export.write(model, tmp_path / f"1 return{suffix}", bad))), ndk)


@compiler
@pytest.mark.skipif(shutil.which("cmake") is None, reason="there is no CMake here")
@pytest.mark.parametrize("name", ["time", "all", "two words", "class", "größe"])
def test_a_model_may_be_named_like_a_header_a_target_or_a_keyword(name: str, ndk: Path, tmp_path: Path) -> None:
    export.write(add_then(), tmp_path / f"{name}.c", name)
    build = tmp_path / "build"
    subprocess.run(["cmake", "-S", tmp_path, "-B", build, f"-DNNBRIDGE_NDK={ndk}"], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", build], check=True, capture_output=True)
    assert list(build.glob("*_main"))


def test_names_that_cmake_or_c_would_read_otherwise_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r'expected a name of letters, digits, spaces and _ . \+ -, found a";b.c'):
        export.write(add_then(), tmp_path / 'a";b.c', "a")


def test_operations_of_the_host_are_refused_by_name(real_models: Path, tmp_path: Path) -> None:
    result = call("convert", real_models / "keras_lstm_mnist_ptq.tflite", "--mapping", "wide", "-o", tmp_path / "lstm.c")
    assert result.exit_code == 2
    assert "found 1 that only the host computes: org.tensorflow.lite.UNIDIRECTIONAL_SEQUENCE_LSTM" in result.output
    assert not list(tmp_path.iterdir())


def test_a_vendors_operation_is_looked_up_by_its_extension_s_name(tmp_path: Path) -> None:
    model = add_then(OperationCode.ABS)
    code = TYPES.code("com.example.export", 7)
    operations = tuple(Operation(code, o.inputs, o.outputs) if o.type == OperationCode.ABS else o for o in model.main.operations)
    prefix = TYPES.prefix("com.example.export")
    model = replace(model, main=replace(model.main, operations=operations), extensions={"com.example.export": prefix})
    text = next(iter(export.write(model, tmp_path / "vendor.c", "vendor"))).read_text()
    assert '{"com.example.export", 7},' in text
    assert "ANeuralNetworksModel_getExtensionOperationType" in text


def test_a_build_file_of_another_origin_stays(tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text("project(mine)\n")
    with pytest.raises(InputError, match=r"expected no CMakeLists.txt of another origin beside the output, found one"):
        export.write(add_then(), tmp_path / "add.c", "add")
    assert [file.name for file in tmp_path.iterdir()] == ["CMakeLists.txt"]


def test_the_same_model_gives_the_same_files(tmp_path: Path) -> None:
    first = {file.name: file.read_bytes() for file in export.write(add_then(), tmp_path / "add.c", "add")}
    assert first == {file.name: file.read_bytes() for file in export.write(add_then(), tmp_path / "add.c", "add")}


def test_an_unknown_suffix_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected a file that ends in .nnapi, .c, .cpp"):
        export.write(add_then(), tmp_path / "add.rs", "add")


@compiler
@pytest.mark.parametrize("scales", [(np.inf, 1.0), (1e-45, 3.4028235e38), (1.0, 2.0), (1e-7, 123456789.0), (np.inf, np.inf)])
def test_any_scale_that_nnapi_has_compiles(scales: tuple[float, float], ndk: Path, tmp_path: Path) -> None:
    builder = ModelBuilder("channels")
    image = builder.add_operand(OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL, [2])
    builder.set_operand_symm_per_channel_quant_params(image, scales, 0)
    real = builder.add_operand(OperandCode.TENSOR_FLOAT32, [2])
    builder.add_operation(OperationCode.DEQUANTIZE, [image], [real])
    builder.identify_inputs_and_outputs([image], [real])
    model = builder.finish()
    for suffix in COMPILERS:
        compile_source(next(iter(export.write(model, tmp_path / f"channels{suffix}", "channels"))), ndk)
    export.write(model, tmp_path / "channels.json.gz", "channels")
    (case,) = read_cases(tmp_path / "channels.json.gz")
    assert build(case).main.operands[0].channel_quant == model.main.operands[0].channel_quant
    export.write(model, tmp_path / "channels.mod.py", "channels")
    (quant,) = executed((tmp_path / "channels.mod.py").read_text())
    assert tuple(quant["scales"]) == model.main.operands[0].channel_quant.scales


def executed(text: str) -> list[dict[str, object]]:
    """The parameters of channels that a spec states, which Android's generator runs as Python."""
    found: list[dict[str, object]] = []

    def quant(**stated: object) -> None:
        found.append(stated)

    class Anything:
        def __init__(self, *_: object, **__: object) -> None: ...

        def __getattr__(self, name: str) -> object:
            return lambda *_, **__: self

    names = ("Input", "Output", "Internal", "Parameter", "Model", "Example")
    exec(text, {"SymmPerChannelQuantParams": quant, **dict.fromkeys(names, Anything)})
    return found


@pytest.mark.parametrize(
    ("value", "literal"),
    [
        (np.inf, "INFINITY"),
        (-np.inf, "-INFINITY"),
        (np.nan, "NAN"),
        (0.0, "0.0f"),
        (1.0, "1.0f"),
        (1e-45, "1e-45f"),
        (2e30, "2e+30f"),
    ],
)
def test_every_float_is_a_literal_of_c(value: float, literal: str) -> None:
    assert _float(value) == literal
