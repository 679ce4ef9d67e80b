"""If and Loop as NNAPI's IF and WHILE."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge.compare.onnx_runtime import OnnxRuntime
from nnbridge.converters import ConversionOptions
from nnbridge.devices.device import Request, Result
from nnbridge.devices.host import HostPreparedModel
from nnbridge.file import ModelFile
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.runtime.plan_runner import PlanRunner
from nnbridge.types import OperationCode as C

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
helper = onnx.helper
make, info = helper.make_node, helper.make_tensor_value_info
FLOAT, INT64, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL


def saved(folder: Path, nodes: list[Any], outputs: list[Any], constants: dict[str, Any]) -> Path:
    """A file that reads x [2]."""
    tensors = [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "graph", [info("x", FLOAT, [2])], outputs, tensors)
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


def choice(folder: Path, other: str = "Neg") -> Path:
    """The square of x, which is read from outside, or something else where its sum is below 1."""
    then = helper.make_graph([make("Mul", ["x", "w"], ["t"])], "then", [], [info("t", FLOAT, [2])])
    behind = helper.make_graph([make(other, ["x"], ["e"])], "else", [], [info("e", FLOAT, [2])])
    nodes = [
        make("ReduceSum", ["x"], ["s"], keepdims=0),
        make("Greater", ["s", "one"], ["c"]),
        make("If", ["c"], ["y"], then_branch=then, else_branch=behind),
    ]
    return saved(folder, nodes, [info("y", FLOAT, [2])], {"one": np.float32(1), "w": np.float32([2, 3])})


def doubling(folder: Path, trips: int | None, first: bool = True) -> Path:
    """x doubled while its largest number is below a limit, and a counter of 64 bits that is handed through."""
    body = helper.make_graph(
        [
            make("Add", ["s", "s"], ["n"]),
            make("ReduceMax", ["n"], ["m"], keepdims=0),
            make("Less", ["m", "limit"], ["go"]),
            make("Identity", ["k"], ["k2"]),
        ],
        "body",
        [info("i", INT64, []), info("c", BOOL, []), info("s", FLOAT, [2]), info("k", INT64, [])],
        [info("go", BOOL, []), info("n", FLOAT, [2]), info("k2", INT64, [])],
    )
    nodes = [
        make("Less", ["zero", "one"] if first else ["one", "zero"], ["f"]),
        make("Loop", ["t" if trips is not None else "", "f", "x", "start"], ["y", "kept"], body=body),
    ]
    constants = {"limit": np.float32(10), "zero": np.float32(0), "one": np.float32(1), "start": np.array(5)}
    if trips is not None:
        constants["t"] = np.array(trips)
    return saved(folder, nodes, [info("y", FLOAT, [2]), info("kept", INT64, [])], constants)


def codes_that_agree(path: Path, *inputs: list[float]) -> set[int]:
    """The operations of a conversion that agrees with ONNX Runtime on inputs."""
    model, _ = ModelFile(path, ConversionOptions()).converted
    compilation = Compilation.create(model, [])
    compilation.finish()
    for values in inputs:
        given = {"x": np.float32(values)}
        found = Execution(compilation).run([given["x"]]).values()
        for a, b in zip(found, OnnxRuntime(path).run(given), strict=True):
            np.testing.assert_array_equal(a.reshape(b.shape), b)
    return {operation.type for operation in model.main.operations}


def test_a_computed_condition_is_nnapis_if(tmp_path: Path) -> None:
    assert C.IF in codes_that_agree(choice(tmp_path), [1, 2], [-1, 0.5])


def test_a_branch_that_needs_the_host_leaves_the_choice_to_it(tmp_path: Path) -> None:
    path = choice(tmp_path, "Atan")
    _, mapped = ModelFile(path, ConversionOptions()).converted
    assert {m.operator: m.mapping for m in mapped}["If"] == "host"
    assert C.IF not in codes_that_agree(path, [1, 2])


@pytest.mark.parametrize("trips", [None, 2, 100])
def test_a_loop_of_states_is_nnapis_while(trips: int | None, tmp_path: Path) -> None:
    assert C.WHILE in codes_that_agree(doubling(tmp_path, trips), [0.5, 1], [9, 3], [-1, 4])


def test_a_loop_that_keeps_every_iteration_is_the_hosts(tmp_path: Path) -> None:
    body = helper.make_graph(
        [make("Add", ["s", "s"], ["n"]), make("ReduceMax", ["n"], ["m"], keepdims=0), make("Less", ["m", "ten"], ["go"])],
        "body",
        [info("i", INT64, []), info("c", BOOL, []), info("s", FLOAT, [2])],
        [info("go", BOOL, []), info("n", FLOAT, [2]), info("m", FLOAT, [])],
    )
    nodes = [make("Loop", ["t", "", "x"], ["n", "y"], body=body)]
    outputs = [info("n", FLOAT, [2]), info("y", FLOAT, [None])]
    path = saved(tmp_path, nodes, outputs, {"t": np.array(5), "ten": np.float32(10)})
    _, mapped = ModelFile(path, ConversionOptions()).converted
    assert mapped[-1].mapping == "host"
    assert "only loop-carried states" in mapped[-1].reasons[0].rule


def compressed(path: Path, width: int) -> Compilation:
    """Rows that a condition takes: only a run knows how many."""
    graph = helper.make_graph(
        [make("Compress", ["x", "c"], ["e"], axis=0), make("Relu", ["e"], ["y"])],
        "graph",
        [info("x", FLOAT, ["n", width]), info("c", BOOL, ["n"])],
        [info("y", FLOAT, ["m", width])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    compilation = Compilation.create(ModelFile(path, ConversionOptions()).converted[0], [])
    compilation.finish()
    return compilation


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """The requests to the host's prepared models."""
    found: list[Request] = []
    execute = HostPreparedModel.execute

    def counted(self: HostPreparedModel, request: Request) -> Result:
        found.append(request)
        return execute(self, request)

    monkeypatch.setattr(HostPreparedModel, "execute", counted)
    return found


def test_results_of_unknown_size_are_not_computed_twice_on_the_host(tmp_path: Path, executed: list[Request]) -> None:
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    Execution(compressed(tmp_path / "m.onnx", 3)).run({"x": x, "c": np.ones(4, bool)})
    assert len(executed) == 1


def test_results_of_more_than_the_first_buffer_are_computed_once_from_the_second_run_on(
    tmp_path: Path, executed: list[Request]
) -> None:
    compilation, counts = compressed(tmp_path / "m.onnx", 256), []
    x = np.linspace(-1, 1, 256 * 256, dtype=np.float32).reshape(256, 256)
    for _ in range(2):
        executed.clear()
        Execution(compilation).run({"x": x, "c": np.ones(256, bool)})
        counts.append(len(executed))
    # The first time both what is between the steps and the output are too small.
    assert counts == [3, 1]


def test_a_branch_whose_own_choice_is_known_from_shapes_is_part_of_nnapis_if(tmp_path: Path) -> None:
    # As exporters write a Squeeze of what may have another rank: inference alone does not know the branch's rank.
    inner = [
        helper.make_graph([make("Unsqueeze", ["x", "first"], ["u"])], "vector", [], [info("u", FLOAT, [1, 2])]),
        helper.make_graph([make("Identity", ["x"], ["i"])], "matrix", [], [info("i", FLOAT, [2])]),
    ]
    then = helper.make_graph(
        [
            make("Shape", ["x"], ["shape"]),
            make("Size", ["shape"], ["rank"]),
            make("Equal", ["rank", "single"], ["is_vector"]),
            make("If", ["is_vector"], ["m"], then_branch=inner[0], else_branch=inner[1]),
            make("Mul", ["m", "w"], ["t"]),
        ],
        "then",
        [],
        [info("t", FLOAT, None)],
    )
    other = helper.make_graph([make("Unsqueeze", ["x", "first"], ["e"])], "else", [], [info("e", FLOAT, [1, 2])])
    nodes = [
        make("ReduceSum", ["x"], ["s"], keepdims=0),
        make("Greater", ["s", "one"], ["c"]),
        make("If", ["c"], ["y"], then_branch=then, else_branch=other),
    ]
    constants = {"one": np.float32(1), "w": np.float32([2, 3]), "single": np.array(1), "first": np.array([0])}
    assert C.IF in codes_that_agree(saved(tmp_path, nodes, [info("y", FLOAT, [1, 2])], constants), [1, 2], [-1, 0.5])


def test_a_repeated_run_takes_the_branch_that_its_own_condition_chooses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = choice(tmp_path)
    compilation = Compilation.create(ModelFile(path, ConversionOptions()).converted[0], [])
    compilation.finish()
    whole: list[Request] = []
    execute = PlanRunner.execute

    def counted(self: PlanRunner, request: Request) -> Result:
        whole.append(request)
        return execute(self, request)

    monkeypatch.setattr(PlanRunner, "execute", counted)
    for values in ([1, 2], [3, 4], [1, 2], [-1, 0.5], [-3, 1], [5, 6]):
        x = np.float32(values)
        execution = Execution(compilation)
        [found] = execution.run([x]).values()
        assert found.tolist() == (x * np.float32([2, 3]) if x.sum() > 1 else -x).tolist()
        # The step before the choice, and the chosen branch's.
        assert len(execution.report.steps) == 2
    # The second run is bound for those after it.
    assert len(whole) == 2
