"""The smallest model that shows a symptom, and the files that it is saved as."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge.compare import Tolerance, Tolerances, seeded_inputs
from nnbridge.compare.tensors import DeviceReference
from nnbridge.conformance.cases import read_cases
from nnbridge.conformance.outcome import FAILED, PASSED
from nnbridge.conformance.run import Setting, run_case
from nnbridge.converters import ConversionOptions
from nnbridge.devices import CPU_NAME
from nnbridge.errors import ConversionError, InputError
from nnbridge.file import load
from nnbridge.model import Model
from nnbridge.reduction import Reduction, ReductionCandidate, Search, Whole, part, reduce
from nnbridge.reduction.saving import Saved, Saver
from nnbridge.reduction.source_part import inputs_of_part, source_part
from nnbridge.reduction.symptoms import Predicate, Symptom, by_command, on_devices
from nnbridge.types import OperationCode
from tests.compare.faults import FaultyDriver, fingerprint
from tests.conftest import MODELS
from tests.graphs import branching
from tests.reduction.drivers import THIRD, Misbehaving

INT8 = MODELS / "digits_int8.tflite"
ONNX = MODELS / "digits_float32.onnx"


@pytest.fixture(scope="module")
def whole() -> Whole:
    model = load(INT8)
    return Whole.of(model, seeded_inputs(model, 0), CPU_NAME)


def faulty(model: Model, index: int, fault: str) -> Search:
    operation = model.main.operations[index]
    driver = FaultyDriver(operation.name, fault, like=fingerprint(model, operation))
    return Search((driver,), tolerances=Tolerances(Tolerance(steps=0)))


def saved(path: Path, index: int, fault: str, folder: Path) -> tuple[Reduction, tuple[Saved, ...], Search]:
    model = load(path)
    search = faulty(model, index, fault)
    found = Whole.of(model, seeded_inputs(model, 0), CPU_NAME)
    predicate = on_devices(search)
    reduction = reduce(found, predicate)
    return reduction, Saver(folder / "part", predicate, search, found, path, ConversionOptions()).save(reduction), search


def test_one_operation_is_left_of_a_model_with_one_fault(whole: Whole) -> None:
    reduction = reduce(whole, on_devices(faulty(whole.candidate.model, 2, "filter")))
    assert reduction.operations == (2,)
    assert reduction.symptom is not None
    assert "1 of 11 operations shows it: 2 CONV_2D" in reduction.sentence


def test_a_predicate_may_need_several_operations(whole: Whole) -> None:
    def both(candidate: ReductionCandidate) -> object:
        codes = {operation.type for operation in candidate.model.main.operations}
        return {OperationCode.ADD, OperationCode.SOFTMAX} <= codes or None

    reduction = reduce(whole, both)  # type: ignore[arg-type]  # any object that is not None holds
    assert [whole.candidate.model.main.operations[k].type for k in reduction.operations] == [
        OperationCode.ADD,
        OperationCode.SOFTMAX,
    ]


def test_a_part_gets_the_values_that_reach_it_in_the_whole(whole: Whole) -> None:
    candidate, first = whole.part([2]), whole.part([0, 1])
    assert candidate is not None
    assert first is not None
    outputs = Whole.of(first.model, first.inputs, CPU_NAME)
    produced = outputs.values[first.model.main.outputs[-1]]
    assert any(np.array_equal(produced, value) for value in candidate.inputs.values())


def test_a_part_reads_and_writes_what_others_compute_and_read(whole: Whole) -> None:
    model = whole.candidate.model
    found = part(model, range(len(model.main.operations)))
    assert [found.main.operands[i].name for i in found.main.inputs] == [model.main.operands[i].name for i in model.main.inputs]
    assert [found.main.operands[i].name for i in found.main.outputs] == [model.main.operands[i].name for i in model.main.outputs]
    with pytest.raises(InputError, match="operations from 0 to 10, found 11"):
        part(model, [11])


def test_a_model_that_shows_nothing_is_not_reduced(whole: Whole) -> None:
    reduction = reduce(whole, lambda candidate: None)
    assert (reduction.symptom, reduction.runs) == (None, 1)


def test_shapes_and_values_get_as_simple_as_the_predicate_allows(whole: Whole) -> None:
    def varies(candidate: ReductionCandidate) -> Symptom | None:
        """An ADD whose sum is not the same everywhere."""
        main = candidate.model.main
        output = next(iter(DeviceReference(candidate.model, CPU_NAME).run(candidate.inputs).values()))
        holds = OperationCode.ADD in {operation.type for operation in main.operations} and len(np.unique(output)) > 1
        return Symptom("holds") if holds else None

    reduction = reduce(whole, varies, simplify=True)
    main, inputs = reduction.candidate.model.main, reduction.candidate.inputs
    assert [operation.type for operation in main.operations] == [OperationCode.ADD]
    # One term is enough to vary, in the smallest of its dimensions that the predicate leaves.
    assert sorted(len(np.unique(array)) > 1 for array in inputs.values()) == [False, True]
    assert max(array.size for array in inputs.values()) < 16
    assert varies(reduction.candidate)
    assert reduction.simplified[0].startswith("size ")


@pytest.mark.parametrize(("path", "index", "fault"), [(INT8, 2, "filter"), (INT8, 10, "rounding"), (ONNX, 4, "filter")])
def test_every_saved_file_shows_the_fault_again(path: Path, index: int, fault: str, tmp_path: Path) -> None:
    if path is ONNX:
        pytest.importorskip("onnx")
    reduction, files, _ = saved(path, index, fault, tmp_path)
    assert len(reduction.operations) == 1
    assert [(file.path.name, file.note) for file in files if not file.shows] == []
    assert {file.kind for file in files} == {"model", "inputs", "case", "source"}


def test_a_saved_case_fails_on_the_faulty_driver_and_passes_on_the_cpu(tmp_path: Path) -> None:
    # A step off in every tenth element is within Android's own tolerance; the case states the search's.
    _, _, search = saved(INT8, 10, "rounding", tmp_path)
    (case,) = read_cases(tmp_path / "part.json.gz")
    assert run_case(case, Setting(search.drivers[0])).status == FAILED
    assert run_case(case, Setting()).status == PASSED


@pytest.mark.parametrize("kind", ["fails", "falls-back"])
def test_failures_are_reduced_as_well(whole: Whole, kind: str) -> None:
    reduction = reduce(whole, on_devices(Search((Misbehaving(how="raise"),), (kind,))))
    assert [row["type"] for row in reduction.records()] == ["AVERAGE_POOL_2D"]


@pytest.mark.parametrize(("path", "operations"), [(INT8, [2, 3]), (ONNX, [0, 1, 2])])
def test_a_part_of_a_file_computes_what_the_whole_does(path: Path, operations: list[int], tmp_path: Path) -> None:
    if path is ONNX:
        pytest.importorskip("onnx")
    model = load(path)
    whole = Whole.of(model, seeded_inputs(model, 0), CPU_NAME)
    cut = tmp_path / f"part{path.suffix}"
    cut.write_bytes(source_part(path, model, operations))
    found = load(cut)
    inputs = inputs_of_part(found, model, dict(whole.values))
    assert inputs is not None
    outputs = DeviceReference(found, CPU_NAME).run(inputs)
    images = {operand.name: whole.values[i] for i, operand in enumerate(model.main.operands) if i in whole.values}
    for name, value in outputs.items():
        expected = images[name] if name in images else np.moveaxis(images[f"{name} NHWC"], -1, 1)
        np.testing.assert_allclose(value, expected, rtol=1e-6, atol=1e-6)
    assert len(outputs) == {INT8: 1, ONNX: 2}[path]


def test_saved_models_have_no_file_to_cut_a_part_from(tmp_path: Path, whole: Whole) -> None:
    from nnbridge import storage

    path = tmp_path / "m.nnapi"
    storage.save(whole.candidate.model, path)
    with pytest.raises(ConversionError, match="a file whose format nnbridge writes parts of"):
        source_part(path, whole.candidate.model, [0])


SCRIPT = """
import sys
from nnbridge.file import load
names = [o.source.operator for o in load(sys.argv[1]).main.operations if o.source]
sys.exit(0 if "SOFTMAX" in names and sys.argv[2].endswith(".npz") else 1)
"""


def test_a_script_decides_by_its_exit_status(whole: Whole, tmp_path: Path) -> None:
    script = tmp_path / "softmax.py"
    script.write_text(SCRIPT)
    predicate: Predicate = by_command(str(script), 60)
    softmax, addition = whole.part([10]), whole.part([3])
    assert softmax is not None
    assert addition is not None
    assert predicate(softmax) is not None
    assert predicate(addition) is None


def test_a_command_has_the_files_where_it_names_them(whole: Whole) -> None:
    assert by_command("test -s {model} -a -s {inputs}", 10)(whole.candidate) is not None
    assert by_command(f"{sys.executable} -c 'import time; time.sleep(100)'", 0.2)(whole.candidate) is None
    with pytest.raises(InputError, match="a command that can be started, found no-such-program"):
        by_command("no-such-program", 10)(whole.candidate)


def test_the_third_operation_of_the_digits_is_the_one_of_the_drivers(whole: Whole) -> None:
    assert whole.candidate.model.main.operations[2].name == THIRD


def test_a_branch_that_is_always_taken_is_part_of_a_file_as_well(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    path, cut = branching(tmp_path / "branch.onnx"), tmp_path / "part.onnx"
    model = load(path, ConversionOptions(mapping="wide"))
    (k,) = (k for k, operation in enumerate(model.main.operations) if operation.type == OperationCode.ABS)
    cut.write_bytes(source_part(path, model, [k]))
    assert [node.op_type for node in onnx.load(str(cut)).graph.node] == ["Abs"]
    assert [operation.type for operation in load(cut).main.operations] == [OperationCode.ABS]


def test_a_part_takes_in_its_neighbours_where_the_converter_adds_between_them(tmp_path: Path) -> None:
    """A transposition to the file's own order of axes, which is not there without the convolution before it."""
    weights = np.random.default_rng(0).standard_normal((3, 3, 1, 1)).astype(np.float32)
    nodes = [("Conv", ["x", "w"], "c"), ("Det", ["c"], "y")]
    path = onnx_file(tmp_path / "image.onnx", nodes, {"x": [1, 3, 4, 4]}, {"y": [1, 3]}, {"w": weights})
    assert operators_that_show_a_wrong_transposition(path, "c", tmp_path) == ["Conv", "Det"]


def test_a_part_reaches_as_far_as_the_operator_that_decides_the_order_of_axes(tmp_path: Path) -> None:
    """The pool has channels last, so have those behind it, and so the last one transposes what else it reads."""
    nodes = [("Abs", ["x"], "a"), ("GlobalMaxPool", ["a"], "m"), ("Sigmoid", ["m"], "s"), ("Tanh", ["s"], "t")]
    nodes += [("Exp", ["t"], "e"), ("Mul", ["e", "y"], "p"), ("Flatten", ["p"], "z")]
    path = onnx_file(tmp_path / "far.onnx", nodes, {"x": [1, 3, 4, 4], "y": [1, 3, 4, 4]}, {"z": [1, 48]}, {})
    shown = operators_that_show_a_wrong_transposition(path, "y", tmp_path)
    assert shown == ["GlobalMaxPool", "Sigmoid", "Tanh", "Exp", "Mul"]


def onnx_file(path: Path, nodes: Any, inputs: Any, outputs: Any, constants: Any) -> Path:
    onnx = pytest.importorskip("onnx")
    make = onnx.helper
    starts, ends = ([make.make_tensor_value_info(name, 1, dims) for name, dims in side.items()] for side in (inputs, outputs))
    weights = [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()]
    made = [make.make_node(operator, reads, [writes], name=writes) for operator, reads, writes in nodes]
    graph = make.make_graph(made, "g", starts, ends, weights)
    onnx.save(make.make_model(graph, ir_version=8, opset_imports=[make.make_opsetid("", 17)]), str(path))
    return path


def operators_that_show_a_wrong_transposition(path: Path, tensor: str, folder: Path) -> list[str]:
    import onnx

    main = load(path).main
    (between,) = (k for k, operation in enumerate(main.operations) if operation.name.startswith(f"TRANSPOSE {tensor}"))
    reduction, files, _ = saved(path, between, "float16", folder)
    assert reduction.operations == (between,)
    assert [(file.path.name, file.note) for file in files if not file.shows] == []
    return [node.op_type for node in onnx.load(str(folder / "part.onnx")).graph.node]
