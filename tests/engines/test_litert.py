"""Operators that stay with TFLite, by LiteRT's own kernels: what `--host litert` computes is what a stock interpreter does."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge import Compilation, Execution, devices, plan
from nnbridge.converters import ConversionOptions
from nnbridge.engines import host_for
from nnbridge.errors import BadDataError, InputError, OpFailedError, OptionError, Reason
from nnbridge.file import ModelFile, load
from nnbridge.runtime.states import States
from tests.commands import refused
from tests.conftest import MODELS
from tests.delegate.interpreters import accumulator, answer, graph
from tests.tflite.files import TfliteBuilder
from tests.tflite.test_control_flow import _if, _loop

interpreters = pytest.importorskip("ai_edge_litert.interpreter")
KERNELS = {
    "xnnpack": "BUILTIN",
    "litert-plain": "BUILTIN_WITHOUT_DEFAULT_DELEGATES",
    "litert-reference": "BUILTIN_REF",
}


EVERYTHING = dict.fromkeys(range(200), Reason("an operator that stays with TFLite", "all of them"))


def hosted(path: Path, host: str = "xnnpack", **options: Any) -> Compilation:
    """All operators of a file on a host."""
    asked = ConversionOptions(mapping="delegate", left=EVERYTHING, **options)
    compilation = Compilation.create(load(path, asked), [*host_for(host, ModelFile(path, asked))])
    compilation.finish()
    return compilation


def stock(path: Path, host: str = "xnnpack") -> Any:
    """TFLite's interpreter as it comes."""
    kernels = getattr(interpreters.OpResolverType, KERNELS[host])
    made = interpreters.Interpreter(str(path), experimental_op_resolver_type=kernels)
    made.allocate_tensors()
    return made


def same_bits(path: Path, *inputs: Any, host: str = "xnnpack") -> bool:
    """True if a stock interpreter's first output is that of the host."""
    arrays = [np.asarray(x) for x in inputs]
    ours = next(iter(Execution(hosted(path, host)).run([a.reshape(a.shape or (1,)) for a in arrays]).values()))
    return ours.tobytes() == answer(stock(path, host), *arrays).tobytes()


@pytest.mark.parametrize("host", list(KERNELS))
@pytest.mark.parametrize("file", ["digits_float32", "digits_int8", "digits_dynamic"])
def test_a_file_is_computed_as_a_stock_interpreter_does(file: str, host: str) -> None:
    path = MODELS / f"{file}.tflite"
    detail = stock(path).get_input_details()[0]
    x = np.random.default_rng(0).integers(0, 100, detail["shape"]).astype(detail["dtype"])
    assert same_bits(path, x, host=host)


def test_between_partitions_of_a_device(tmp_path: Path) -> None:
    path, device = graph(tmp_path, "ABS", "LOGISTIC", "ABS"), devices.driver("logistic")(lambda m, o: o.type == 14)
    compilation = plan(path, device=device, host="xnnpack").compilation
    steps = compilation.plan.steps
    assert [compilation.devices[step.device].name for step in steps] == ["host", "logistic", "host"]
    x = np.array([[-1, 2, -3], [0, 5, -6]], np.float32)
    (y,) = Execution(compilation).run([x]).values()
    np.testing.assert_allclose(y, 1 / (1 + np.exp(-abs(x))), rtol=1e-6)


def test_variables_go_from_run_to_run(tmp_path: Path) -> None:
    path = accumulator(tmp_path)
    compilation, running = hosted(path), stock(path)
    states = States(compilation.model)
    for x in (1.5, 2.0, -0.25):
        execution = Execution(compilation, states)
        (y,) = execution.run([np.array([[x]], np.float32)]).values()
        assert y.tolist() == answer(running, [[x]]).tolist()


@pytest.mark.parametrize("write", [lambda folder: _loop(folder, "TANH"), lambda folder: _if(folder, "TANH", "NEG")])
def test_control_flow_with_its_bodies(write: Callable[[Path], Path], tmp_path: Path) -> None:
    path, x = write(tmp_path), np.array([[-1.4, 2.6, 0.1], [3.5, -0.5, 1.0]], np.float32)
    running = stock(path)
    feeds = [x if len(d["shape"]) == 2 else np.array(True) for d in running.get_input_details()]
    compilation = hosted(path)
    ours = list(Execution(compilation).run([a.reshape(a.shape or (1,)) for a in feeds]).values())
    answer(running, *feeds)
    theirs = [running.get_tensor(d["index"]) for d in running.get_output_details()]
    assert [a.tobytes() for a in ours] == [b.tobytes() for b in theirs]


def test_inputs_of_open_dimensions(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    x, y = builder.tensor((1, 3), shape_signature=[-1, 3], name="x"), builder.tensor((1, 3), shape_signature=[-1, 3], name="y")
    builder.operator("SOFTMAX", [x], [y], {"beta": 1.0})
    path = builder.write(tmp_path / "m.tflite", [x], [y])
    compilation, data = hosted(path, shapes={"x": (5, 3)}), np.random.default_rng(1).random((5, 3)).astype(np.float32)
    assert Execution(compilation).run([data])["y"].tobytes() == answer(resized(stock(path), (5, 3)), data).tobytes()


def resized(running: Any, dims: tuple[int, ...]) -> Any:
    """An interpreter whose first input has other dimensions."""
    running.resize_tensor_input(running.get_input_details()[0]["index"], dims)
    running.allocate_tensors()
    return running


def test_outputs_whose_dimensions_only_a_run_knows(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    x, where = builder.tensor((2, 3), name="x"), builder.tensor((0, 2), "int64", name="where", shape_signature=[-1, 2])
    builder.operator("WHERE", [x], [where], {})
    path = builder.write(tmp_path / "m.tflite", [x], [where])
    data = np.array([[1, 0, 2], [0, 0, 3]], np.float32)
    assert Execution(hosted(path)).run([data])["where"].tolist() == [[0, 0], [0, 2], [1, 2]]


def tables(folder: Path) -> Path:
    """A look-up in a table: 3 and 5 have values."""
    main = TfliteBuilder()
    first = main.beside()
    options = {"table_id": 1, "key_dtype": 4, "value_dtype": 4}
    handle = first.tensor((1,), "RESOURCE")
    first.operator("HASHTABLE", [], [handle], options)
    first.operator("HASHTABLE_IMPORT", [handle, first.constant([3, 5], "int64"), first.constant([30, 50], "int64")], [], {})
    main.operator("CALL_ONCE", [], [], {"init_subgraph_index": main.add(first, [], [])})
    handle, query, found = main.tensor((1,), "RESOURCE"), main.tensor((3,), "int64"), main.tensor((3,), "int64")
    main.operator("HASHTABLE", [], [handle], options)
    main.operator("HASHTABLE_FIND", [handle, query, main.constant([-1], "int64")], [found], {})
    return main.write(folder / "m.tflite", [query], [found])


def test_tables_are_refused_with_the_operator(tmp_path: Path) -> None:
    path = tables(tmp_path)
    with pytest.raises(BadDataError, match=r"no tables.*found HASHTABLE_FIND"):
        hosted(path)
    assert "found HASHTABLE_FIND" in refused("plan", path, "--host", "xnnpack")


def test_what_the_runtime_refuses_at_a_run_has_its_words(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    x, i, y = builder.tensor((3, 2), name="x"), builder.tensor((1,), "int32", name="i"), builder.tensor((1, 2), name="y")
    builder.operator("GATHER", [x, i], [y], {"axis": 0})
    execution = Execution(hosted(builder.write(tmp_path / "m.tflite", [x, i], [y])))
    with pytest.raises(
        OpFailedError, match=r"--host xnnpack: expected operators that the runtime runs, found .*index out of bounds"
    ):
        execution.run([np.zeros((3, 2), np.float32), np.array([7], np.int32)])


def test_a_missing_runtime_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ai_edge_litert", None)
    with pytest.raises(InputError, match=r"host: expected LiteRT \(pip install ai-edge-litert\)"):
        host_for("xnnpack", ModelFile(MODELS / "digits_int8.tflite", ConversionOptions()))


def test_a_host_reads_its_own_format() -> None:
    with pytest.raises(OptionError, match=r"a host of tflite files \(auto, nnbridge, xnnpack, litert-plain, litert-reference\)"):
        host_for("onnxruntime", ModelFile(MODELS / "digits_int8.tflite", ConversionOptions()))
