"""Defaults of `nnbridge run`: the phone's own runtime computes what NNAPI leaves, and the output says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge import Compilation, Execution
from nnbridge.converters import ConversionOptions
from nnbridge.devices.host import HostDevice
from nnbridge.engines import host_for
from nnbridge.engines.native import without_infos
from nnbridge.file import ModelFile, load
from nnbridge.model import Source
from nnbridge.report.outputs import host_as_dict, host_lines
from tests.commands import call, data, refused
from tests.conftest import MODELS
from tests.delegate.interpreters import answer
from tests.delegate.interpreters import needs as needs_delegate
from tests.engines.test_litert import EVERYTHING, stock, tables
from tests.tflite.files import TfliteBuilder
from tests.tflite.test_declarations import toy  # noqa: F401  # a fixture

ALONE = ("--device", "nnapi-sample_minimal", "--disallow-nnapi-cpu", "--seed", "0")
INT8 = MODELS / "digits_int8.tflite"


def hosted(path: Path) -> Compilation:
    """All operators of a file on the host of a phone."""
    asked = ConversionOptions(mapping="delegate", left=EVERYTHING)
    compilation = Compilation.create(load(path, asked), [*host_for("auto", ModelFile(path, asked))])
    compilation.finish()
    return compilation


def host_of(compilation: Compilation) -> Any:
    return host_as_dict(compilation)


def unknown(builder: TfliteBuilder, x: int, shape: tuple[int, ...]) -> int:
    """An operator that LiteRT does not know: |x + x|."""
    out = builder.tensor(shape, name="toy")
    builder.operator("Toy", [x, x], [out], custom=b"")
    return out


def test_without_an_option_outputs_are_those_of_a_stock_interpreter_with_the_delegate(tmp_path: Path) -> None:
    needs_delegate()
    from ai_edge_litert.interpreter import Interpreter

    from nnbridge import delegate

    path, outputs = MODELS / "digits_float32.tflite", tmp_path / "outputs.npz"
    image = np.random.default_rng(0).random((1, 8, 8, 1)).astype(np.float32)
    np.save(tmp_path / "image.npy", image)
    for device in ("nnapi-sample_minimal", "nnapi-sample_quant"):
        assert not call("run", path, "--input", tmp_path / "image.npy", *ALONE[2:3], "--device", device, "-o", outputs).exit_code
        running = Interpreter(str(path), experimental_delegates=[delegate.load(device)])
        running.allocate_tensors()
        (ours,) = np.load(outputs).values()
        assert ours.tobytes() == answer(running, image).tobytes()


def test_without_an_option_outputs_are_those_of_a_stock_session_with_the_provider(tmp_path: Path) -> None:
    from tests.provider.sessions import model, needs, node, session

    needs()
    content = model([node("Relu", "x", "r"), node("Erf", "r", "e"), node("Sinh", "e", "y")], {"x": [2, 3]}, ["y"])
    (tmp_path / "m.onnx").write_bytes(content)
    x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    found = data("run", tmp_path / "m.onnx", "--input", tmp_path / "x.npy", "-o", tmp_path / "outputs.npz")
    assert found["host"]["computed"] == [{"name": "onnxruntime", "operators": ["1: Erf", "2: Sinh"], "reason": None}]
    (theirs,) = session(content, "nnapi-reference").run(None, {"x": x})
    assert np.load(tmp_path / "outputs.npz")["y"].tobytes() == theirs.tobytes()


def test_the_output_says_who_computed() -> None:
    from importlib.metadata import version

    pytest.importorskip("ai_edge_litert.interpreter")
    found = data("run", INT8, *ALONE)["host"]
    name = f"LiteRT {version('ai-edge-litert')} with XNNPACK"
    assert (found["name"], found["version"], found["reason"], len(found["computed"])) == ("xnnpack", name, None, 1)
    assert len(found["computed"][0]["operators"]) == 11
    assert f"host: {name} computed 11 operators\n" in call("run", INT8, *ALONE).stderr


def test_nothing_is_imported_where_nothing_is_left() -> None:
    script = (
        "import sys; from nnbridge.cli.commands import cli; cli(sys.argv[1:], standalone_mode=False); "
        "assert not {'ai_edge_litert', 'onnxruntime', 'nnbridge.engines.litert'} & set(sys.modules)"
    )
    for path in (INT8, MODELS / "digits_float32.onnx"):
        subprocess.run([sys.executable, "-c", script, "run", str(path), "--seed", "0"], check=True, env=dict(os.environ))
    assert data("run", INT8, "--seed", "0")["host"] is None


@pytest.mark.parametrize(
    ("package", "what", "arguments"),
    [
        ("ai_edge_litert", "LiteRT (pip install ai-edge-litert)", (INT8, *ALONE)),
        ("onnxruntime", "ONNX Runtime (pip install onnxruntime)", ("{erf}", "--seed", "0")),
    ],
)
def test_without_the_package_nnbridge_computes_and_says_so(
    package: str, what: str, arguments: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from tests.provider.sessions import model, node

    (tmp_path / "erf.onnx").write_bytes(model([node("Erf", "x", "y")], {"x": [2, 3]}, ["y"]))
    arguments = tuple(tmp_path / "erf.onnx" if argument == "{erf}" else argument for argument in arguments)
    monkeypatch.setitem(sys.modules, package, None)
    found = data("run", *arguments)
    assert found["host"]["name"] == "nnbridge"
    assert f"expected {what}, found" in found["host"]["reason"]
    assert found["outputs"] == data("run", *arguments, "--host", "nnbridge")["outputs"]
    assert f"expected {what}" in " ".join(call("run", *arguments).stderr.split())


@pytest.mark.parametrize(
    ("command", "more"),
    [("compare", ()), ("report", ("-o", "{folder}/page.html")), ("report", ("-o", "{folder}/overlay.json"))],
)
def test_commands_that_are_asked_for_a_phones_host_say_who_computed(
    command: str, more: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answers = tmp_path / "answers.npz"
    assert not call("run", INT8, *ALONE, "--host", "nnbridge", "--samples", answers).exit_code
    monkeypatch.setitem(sys.modules, "ai_edge_litert", None)
    more = tuple(argument.format(folder=tmp_path) for argument in more)
    result = call(command, INT8, "--reference", answers, *more, *ALONE[:3], "--host", "auto")
    assert result.exit_code == 0, result.output
    assert "host: nnbridge computed 11 operators" in " ".join(result.stderr.split())
    assert "host:" not in call(command, INT8, "--reference", answers, *more, *ALONE[:3]).stderr


def test_other_mappings_and_saved_models_have_nnbridges_own_host(tmp_path: Path) -> None:
    def why(path: Path, mapping: str) -> str:
        (found,) = host_for("auto", ModelFile(path, ConversionOptions(mapping=mapping)))
        assert isinstance(found, HostDevice)
        return str(found.computing(Source(0, "CONV_2D")).reason)

    assert why(INT8, "wide") == "mapping: expected the mapping of a phone's delegate or provider, found wide"
    assert not call("convert", INT8, "-o", tmp_path / "m.nnapi").exit_code
    assert why(tmp_path / "m.nnapi", "phone").endswith("expected a file of TFLite or ONNX Runtime, found the format nnapi")


def test_an_operator_that_the_runtime_does_not_know_is_nnbridges_and_the_others_the_runtimes(toy: Path, tmp_path: Path) -> None:  # noqa: F811
    pytest.importorskip("ai_edge_litert.interpreter")
    builder = TfliteBuilder()
    x, first, last = (builder.tensor((1, 3), name=name) for name in ("x", "first", "last"))
    builder.operator("TANH", [x], [first], {})
    builder.operator("LOGISTIC", [unknown(builder, first, (1, 3))], [last], {})
    compilation = hosted(builder.write(tmp_path / "m.tflite", [x], [last]))
    found = host_of(compilation)
    assert [(one["name"], one["operators"]) for one in found["computed"]] == [
        ("xnnpack", ["0: TANH", "2: LOGISTIC"]),
        ("nnbridge", ["1: Toy"]),
    ]
    assert "Encountered unresolved custom op: Toy" in found["computed"][1]["reason"]
    assert host_lines(found)[1].startswith("host: nnbridge computed 1 operator (1: Toy): ")
    data = np.array([[0.5, -1, 2]], np.float32)
    np.testing.assert_allclose(
        next(iter(Execution(compilation).run([data]).values())), 1 / (1 + np.exp(-abs(2 * np.tanh(data)))), rtol=1e-6
    )


def test_what_only_a_run_can_refuse_is_computed_by_nnbridge_then(toy: Path, tmp_path: Path) -> None:  # noqa: F811
    pytest.importorskip("ai_edge_litert.interpreter")
    builder = TfliteBuilder()
    x, where = builder.tensor((2, 3), name="x"), builder.tensor((0, 2), "int64", name="where", shape_signature=[-1, 2])
    real = builder.tensor((0, 2), name="real", shape_signature=[-1, 2])
    builder.operator("WHERE", [x], [where], {})
    builder.operator("CAST", [where], [real], {"in_data_type": 4, "out_data_type": 0})
    path = builder.write(tmp_path / "m.tflite", [x], [unknown(builder, real, (0, 2))])
    compilation = hosted(path)
    image = np.array([[1, 0, 2], [0, 0, 3]], np.float32)
    (ours,) = Execution(compilation).run([image]).values()
    assert ours.tolist() == [[0, 0], [0, 4], [2, 4]]
    assert {"nnbridge"} == {one["name"] for one in host_of(compilation)["computed"] if "2: Toy" in one["operators"]}


def test_types_that_the_runtimes_package_lacks_are_nnbridges(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    from onnx import TensorProto, helper

    node = helper.make_node("Cast", ["x"], ["small"], to=TensorProto.FLOAT8E5M2)
    ends = [[helper.make_tensor_value_info("x", 1, [2])], [helper.make_tensor_value_info("small", TensorProto.FLOAT8E5M2, [2])]]
    graph = helper.make_graph([node], "m", *ends)
    opset = [helper.make_opsetid("", 19)]
    (tmp_path / "m.onnx").write_bytes(helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString())
    found = data("run", tmp_path / "m.onnx", "--seed", "0")["host"]
    assert found["name"] == "nnbridge"
    assert found["reason"].endswith("found tensor(float8e5m2) small")


def test_tables_are_nnbridges(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert.interpreter")
    compilation = hosted(tables(tmp_path))
    assert [*next(iter(Execution(compilation).run([np.array([5, 3, 4], np.int64)]).values()))] == [50, 30, -1]
    (found,) = host_of(compilation)["computed"]
    assert found["name"] == "nnbridge"
    assert "no tables" in found["reason"]


def test_variables_go_on_where_the_runtime_has_them(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert.interpreter")
    from tests.delegate.interpreters import accumulator

    path = accumulator(tmp_path)
    running = stock(path)
    np.save(tmp_path / "x.npy", np.array([[1.5]], np.float32))
    found = data("run", path, "--input", tmp_path / "x.npy", "--repeat", "3", *ALONE[:3])
    assert found["host"]["name"] == "xnnpack"
    assert found["outputs"][0]["values"] == [answer(running, [[1.5]]).tolist() for _ in range(3)][-1]


def test_errors_of_a_run_name_another_host(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert.interpreter")
    builder = TfliteBuilder()
    x, i, y = builder.tensor((3, 2), name="x"), builder.tensor((1,), "int32", name="i"), builder.tensor((1, 2), name="y")
    builder.operator("GATHER", [x, i], [y], {"axis": 0})
    path = builder.write(tmp_path / "m.tflite", [x, i], [y])
    np.save(tmp_path / "i.npy", np.array([7], np.int32))
    text = refused("run", path, "--input", f"i={tmp_path / 'i.npy'}", *ALONE)
    assert "host xnnpack (--host nnbridge is another): expected operators that the runtime runs, found" in text


@pytest.mark.parametrize("command", [("plan", INT8), ("run", INT8, "--seed", "0")])
def test_the_old_name_of_a_host_works_and_says_the_new_one(command: tuple[str, ...], caplog: pytest.LogCaptureFixture) -> None:
    """As a reference, litert is LiteRT's reference kernels; the host of that name has XNNPACK."""
    pytest.importorskip("ai_edge_litert.interpreter")
    result = call(*command, "--host", "litert")
    assert result.exit_code == 0, result.output
    assert "host litert is called xnnpack now: LiteRT with XNNPACK" in caplog.text
    assert "litert|" not in call(command[0], "--help").stdout.split("--host", 1)[1].split("]", 1)[0]


def test_no_name_is_other_kernels_as_host_than_as_reference() -> None:
    from nnbridge.compare.references import REFERENCE_RUNTIMES
    from nnbridge.engines import _ENGINES

    of_references = {"reference": "reference", "optimised": "optimised", "xnnpack": "default"}
    for name in set(_ENGINES) & set(REFERENCE_RUNTIMES) - {"onnxruntime"}:
        assert of_references[str(REFERENCE_RUNTIMES[name].settings[0])] == _ENGINES[name][2], name


def test_runtimes_print_no_infos_of_their_own(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert.interpreter")
    command = [sys.executable, "-m", "nnbridge", "run", str(INT8), *ALONE, "--host", "xnnpack"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert "with XNNPACK computed 11 operators" in done.stderr.replace("host: ", "")
    assert "INFO" not in done.stderr


def test_what_else_native_code_prints_stays(capfd: pytest.CaptureFixture[str]) -> None:
    with without_infos():
        os.write(2, b"INFO: created\nERROR: of a kernel\n")
    assert capfd.readouterr().err == "ERROR: of a kernel\n"
