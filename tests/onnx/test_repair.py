"""Files that ONNX Runtime runs and the onnx package's checker, inference or evaluator does not: beside ONNX Runtime."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from nnbridge.cli.commands import cli
from nnbridge.compare import compare, seeded_samples
from nnbridge.compare.onnx_runtime import OnnxRuntime
from nnbridge.converters import ConversionOptions
from nnbridge.errors import ConversionError
from nnbridge.file import load
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from tests.conftest import requires_recent_onnx_runtime

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

helper = onnx.helper
FLOAT, HALF, INT32, INT64 = (getattr(onnx.TensorProto, name) for name in ("FLOAT", "FLOAT16", "INT32", "INT64"))
MICROSOFT = "com.microsoft"
MAPPINGS = ("wide", "provider")


def value(name: str, type: int, shape: Any) -> Any:
    return helper.make_tensor_value_info(name, type, shape)


def made(
    nodes: list[Any], inputs: list[Any], outputs: list[Any], constants: dict[str, Any] | None = None, opset: int = 14, ir: int = 8
) -> Any:
    tensors = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)


def compared(model: Any, folder: Path, mapping: str) -> Any:
    """Beside ONNX Runtime, on two seeds."""
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compilation = Compilation.create(load(path, ConversionOptions(mapping=mapping)), [])
        compilation.finish()
        return compare(compilation, "onnxruntime", seeded_samples(compilation.model, OnnxRuntime(path), [0, 1]))


X, Y = value("x", FLOAT, [2, 3]), value("y", FLOAT, [2, 3])
ROW = {"s": np.float32([1, 2, -1])}


def _constants_alone() -> Any:
    return made([helper.make_node("Reshape", ["x", "s"], ["y"])], [X], [Y], {"s": np.int64([2, 3])}, opset=5, ir=3)


def _domain_not_imported() -> Any:
    return made([helper.make_node("Gelu", ["x"], ["y"], domain=MICROSOFT)], [X], [Y])


def _no_opset_of_onnx() -> Any:
    model = made([helper.make_node("Gelu", ["x"], ["y"], domain=MICROSOFT)], [X], [Y])
    model.opset_import[0].domain, model.opset_import[0].version = MICROSOFT, 1
    return model


def _domain_not_imported_in_a_body() -> Any:
    def branch(kind: str, domain: str) -> Any:
        return helper.make_graph([helper.make_node(kind, ["x"], ["r"], domain=domain)], "branch", [], [value("r", FLOAT, [2, 3])])

    more = {"then_branch": branch("Gelu", MICROSOFT), "else_branch": branch("Relu", "")}
    return made([helper.make_node("If", ["c"], ["y"], **more)], [X], [Y], {"c": np.True_})


def _graph_without_a_name() -> Any:
    model = made([helper.make_node("Relu", ["x"], ["y"])], [X], [Y])
    model.graph.name = ""
    return model


def _early_normalisation() -> Any:
    return made([helper.make_node("LayerNormalization", ["x", "s"], ["y"], axis=-1)], [X], [Y], ROW)


def _early_normalisation_of_halves() -> Any:
    x, y = value("x", HALF, [4, 3, 5]), value("y", HALF, [4, 3, 5])
    scale = {"s": np.float16(np.linspace(-2, 3, 15).reshape(3, 5))}
    return made([helper.make_node("LayerNormalization", ["x", "s"], ["y"], axis=1)], [x], [y], scale)


def _simplified_normalisation() -> Any:
    return made([helper.make_node("SimplifiedLayerNormalization", ["x", "s"], ["y"], axis=-1)], [X], [Y], ROW, opset=20)


def _statistics_of_an_early_normalisation() -> Any:
    more = [value("m", FLOAT, [2, 1]), value("d", FLOAT, [2, 1])]
    return made([helper.make_node("LayerNormalization", ["x", "s"], ["y", "m", "d"], axis=-1)], [X], [Y, *more], ROW)


def _axis_in_a_list(kind: str, opset: int) -> Any:
    return made([helper.make_node(kind, ["x", "a"], ["y"])], [X], [Y], {"a": np.int32([1])}, opset=opset)


def _another_type_declared() -> Any:
    constant = onnx.numpy_helper.from_array(np.int32([3]), "c")
    return made([helper.make_node("Constant", [], ["y"], value=constant)], [], [value("y", FLOAT, [1])])


def _another_shape_declared() -> Any:
    indices, values = value("i", INT32, [None, 2]), value("v", FLOAT, [2])
    node = helper.make_node("OneHot", ["i", "d", "v"], ["y"], axis=-1)
    return made([node], [indices, values], [value("y", FLOAT, [3, 5, 2])], {"d": np.int32([3])})


def _negative_sizes_declared() -> Any:
    return made([helper.make_node("NonZero", ["x"], ["y"])], [X], [value("y", INT64, [2, -3])])


def _other_rows_declared() -> Any:
    """A loop whose rows are counted by an input, and declared as two."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Add", ["b", "b"], ["a"])],
        "body",
        [value("i", INT64, []), value("c", onnx.TensorProto.BOOL, []), value("b", FLOAT, [1])],
        [value("d", onnx.TensorProto.BOOL, []), value("a", FLOAT, [1]), value("b", FLOAT, [1])],
    )
    node = helper.make_node("Loop", ["m", "", "x"], ["y", "rows"], body=body)
    outputs = [value("y", FLOAT, [1]), value("rows", FLOAT, [2, 1])]
    return made([node], [value("m", INT64, [1]), value("x", FLOAT, [1])], outputs)


def _empty_factor() -> Any:
    nodes = [helper.make_node("MatMul", ["x", "a"], ["t"]), helper.make_node("MatMul", ["t", "b"], ["u"])]
    constants = {"a": np.zeros((3, 0), np.float32), "b": np.zeros((0, 3), np.float32)}
    return made([*nodes, helper.make_node("Add", ["x", "u"], ["y"])], [X], [Y], constants)


def _empty_bytes() -> Any:
    outputs = [value("y", onnx.TensorProto.UINT8, [0]), value("z", onnx.TensorProto.INT8, [2, 0])]
    return made([], [], outputs, {"y": np.zeros(0, np.uint8), "z": np.zeros((2, 0), np.int8)})


def _empty_output() -> Any:
    constants = {"a": np.int64([2]), "b": np.int64([2]), "c": np.int64([0])}
    return made([helper.make_node("Slice", ["x", "a", "b", "c"], ["y"])], [X], [value("y", FLOAT, [0, 3])], constants)


def _of_no_images(kind: str, constants: dict[str, Any], dims: list[int]) -> Any:
    cut = {"a": np.int64([0]), "c": np.int64([0])}
    nodes = [helper.make_node("Slice", ["x", "a", "a", "c"], ["t"]), helper.make_node(kind, ["t", *constants], ["y"])]
    return made(nodes, [value("x", FLOAT, [1, 2, 4, 4])], [value("y", FLOAT, dims)], {**cut, **constants})


def _learned(kind: str, outputs: int = 1, **attributes: Any) -> Any:
    """An operator of ai.onnx.ml, whose results other nodes read."""
    nodes = [helper.make_node(kind, ["x"], [f"t{i}" for i in range(outputs)], domain="ai.onnx.ml", **attributes)]
    nodes += [helper.make_node("Identity", [f"t{i}"], [f"y{i}"]) for i in range(outputs)]
    types = [INT64, FLOAT] if outputs == 2 else [FLOAT]
    model = made(nodes, [X], [value(f"y{i}", type, None) for i, type in enumerate(types)])
    model.opset_import.add(domain="ai.onnx.ml", version=3)
    return model


_VECTORS: dict[str, Any] = {
    "kernel_type": "RBF", "kernel_params": [0.5, 0.0, 3.0], "coefficients": [1.0, -1.0],
    "support_vectors": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], "rho": [0.2],
}  # fmt: skip
LEARNED = {
    "Scaler": {"offset": [0.1] * 3, "scale": [2.0] * 3},
    "Normalizer": {"norm": "L2"},
    "Imputer": {"imputed_value_floats": [1.0], "replaced_value_float": 0.5},
    "FeatureVectorizer": {"inputdimensions": [3]},
    "LinearRegressor": {"coefficients": [0.1] * 3, "intercepts": [1.0]},
    "SVMRegressor": {**_VECTORS, "n_supports": 2},
    "SVMClassifier": {**_VECTORS, "vectors_per_class": [1, 1], "classlabels_ints": [0, 1], "outputs": 2},
}


def _changed(change: Callable[[Any], object], kind: str = "Add", opset: int = 17, **options: Any) -> Any:
    """x and a constant, in a file that is changed after it is made."""
    reads = ["x", "s"] if kind == "Add" else ["x"]
    model = made([helper.make_node(kind, reads, ["y"], **options)], [X], [Y], ROW if kind == "Add" else {}, opset=opset)
    change(model)
    return model


def _tensor(name: str, *numbers: float) -> Any:
    return onnx.numpy_helper.from_array(np.float32(numbers), name)


def _sparse(dims: list[int], indices: Any) -> Any:
    places = onnx.numpy_helper.from_array(np.int64(indices), "indices")
    return helper.make_sparse_tensor(_tensor("s", 7, -7), places, dims)


def _sparse_constant(dims: list[int], indices: Any) -> Any:
    constant = helper.make_node("Constant", [], ["s"], sparse_value=_sparse(dims, indices))
    return made([constant, helper.make_node("Add", ["x", "s"], ["y"])], [X], [Y], opset=13)


def _with_sparse(dims: list[int], indices: Any) -> Any:
    def change(model: Any) -> None:
        del model.graph.initializer[:]
        model.graph.sparse_initializer.append(_sparse(dims, indices))

    return _changed(change)


def _constant_of_the_name(model: Any) -> None:
    model.graph.node.insert(0, helper.make_node("Constant", [], ["s"], value=_tensor("", 4, 5, 6)))


def _called(domain: str, kind: str, opset: int) -> Any:
    """A function, of another opset than the model's, or of an operator that ONNX has."""
    model = made([helper.make_node(kind, ["x"], ["y"], domain=domain)], [X], [Y], opset=17)
    inner = [helper.make_node("Neg", ["a"], ["b"])]
    model.functions.append(helper.make_function(domain, kind, ["a"], ["b"], inner, [helper.make_opsetid("", opset)]))
    model.opset_import.extend([helper.make_opsetid(domain, 1)] if domain else [])
    return model


MINUS_ONE = onnx.TensorShapeProto.Dimension(dim_value=-1)


def _sides(values: Any) -> Any:
    return values[0].type.tensor_type.shape.dim


def _constant_of(model: Any, **options: Any) -> None:
    del model.graph.initializer[:]
    model.graph.node.insert(0, helper.make_node("Constant", [], ["s"]))
    model.graph.node[0].attribute.extend(helper.make_attribute(name, value) for name, value in options.items())


def _new_operator_without_opset() -> Any:
    """RMSNormalization came with opset 23."""
    model = made([helper.make_node("RMSNormalization", ["x", "s"], ["y"])], [X], [Y], ROW)
    model.opset_import[0].domain, model.opset_import[0].version = MICROSOFT, 1
    return model


def _softmax_of(versions: tuple[int, ...]) -> Any:
    """Over all of the last axes before opset 13, over one after it."""
    x, y = (value(name, FLOAT, [2, 3, 2]) for name in "xy")
    model = made([helper.make_node("Softmax", ["x"], ["y"], axis=1)], [x], [y], opset=versions[0])
    model.opset_import.extend(helper.make_opsetid("", version) for version in versions[1:])
    return model


def _attributes_of_a_named_domain(*axes: int) -> Any:
    model = made([helper.make_node("Softmax", ["x"], ["y"], domain="ai.onnx")], [X], [Y])
    model.opset_import[0].domain = "ai.onnx"
    model.graph.node[0].attribute.extend(helper.make_attribute("axis", axis) for axis in axes)
    return model


def _flag(keepdims: int) -> Any:
    """ONNX Runtime retains the reduced axis for 1 alone."""
    return made([helper.make_node("ReduceMax", ["x"], ["y"], axes=[0], keepdims=keepdims)], [X], [value("y", FLOAT, [3])])


def _of_a_function_alone() -> Any:
    model = _called("local", "Foo", 17)
    del model.opset_import[0]
    return model


def _unread_statistics() -> Any:
    model = _simplified_normalisation()
    model.graph.node[0].output.append("deviation")
    return model


def _with_named_domain(model: Any) -> None:
    model.opset_import[0].domain = model.graph.node[0].domain = "ai.onnx"


def _group_normalisation() -> Any:
    x, y = (value(name, FLOAT, [1, 4, 3]) for name in "xy")
    node = helper.make_node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=2)
    return made([node], [x], [y], {"s": np.float32([1, 2]), "b": np.float32([0, 3])}, opset=18)


LENIENT = {
    "two constants of one name": _changed(lambda m: m.graph.initializer.append(_tensor("s", 4, 5, 6))),
    "three constants of one name": _changed(lambda m: m.graph.initializer.extend([_tensor("s", 4, 5, 6), _tensor("s", 7, 8, 9)])),
    "a constant and a Constant of one name": _changed(_constant_of_the_name),
    "two constants of a name that nothing reads": _changed(lambda m: m.graph.initializer.extend([_tensor("u", 1)] * 2)),
    "a sparse constant by flat indexes": _with_sparse([3], [0, 2]),
    "a sparse constant by indexes of each axis": _with_sparse([2, 3], [[0, 1], [1, 2]]),
    "a sparse Constant": _sparse_constant([3], [0, 2]),
    "a sparse Constant by indexes of each axis": _sparse_constant([2, 3], [[0, 1], [1, 2]]),
    "bytes and numbers of one constant": _changed(lambda m: m.graph.initializer[0].float_data.extend([9, 9, 9])),
    "a constant without a name": _changed(lambda m: m.graph.initializer.append(_tensor("", 1))),
    "another shape stated of a constant": _changed(lambda m: m.graph.value_info.append(value("s", FLOAT, [9]))),
    "one key twice among the metadata": _changed(lambda m: [m.metadata_props.add(key="k", value=v) for v in "ab"]),
    "ONNX's domain by its name": _changed(_with_named_domain),
    "an IR version before 3": _changed(lambda m: setattr(m, "ir_version", 1), "Relu"),
    "a domain of ai.onnx.ml that is not imported": _changed(lambda m: None, "Normalizer", domain="ai.onnx.ml"),
    "a function of another opset": _called("local", "Foo", 13),
    "a function of an operator that ONNX has": _called("", "Relu", 17),
    "GroupNormalization where it is deprecated": _group_normalisation(),
    "MeanVarianceNormalization before ONNX had it": _changed(lambda m: None, "MeanVarianceNormalization", 8, across_channels=1),
    "inputs left out at the end": _changed(lambda m: m.graph.node[0].input.extend(["", ""]), "Clip"),
    "outputs left out at the end": _changed(lambda m: m.graph.node[0].output.append(""), "Dropout"),
    "a Constant with an input left out": _changed(lambda m: (_constant_of_the_name(m), m.graph.node[0].input.append(""))),
    "a dimension of -1": _changed(lambda m: _sides(m.graph.input)[0].CopyFrom(MINUS_ONE)),
    "a dimension of -1 in an output": _changed(lambda m: _sides(m.graph.output)[1].CopyFrom(MINUS_ONE)),
    "a flag that is neither 0 nor 1": _flag(3),
    "a negative flag": _flag(-1),
    "two versions of ONNX": _softmax_of((12, 13)),
    "two versions of ONNX, the older one last": _softmax_of((13, 12)),
    "two versions of ONNX, one by its name": _changed(lambda m: m.opset_import.add(domain="ai.onnx", version=13)),
    "two attributes of one name": _attributes_of_a_named_domain(0, 1),
    "three attributes of one name": _attributes_of_a_named_domain(1, 1, 0),
    "a Constant of two values": _changed(lambda m: _constant_of(m, value=_tensor("", 1, 2, 3), value_float=7.0)),
    "a Constant with an attribute that no one knows": _changed(lambda m: _constant_of(m, value=_tensor("", 1, 2, 3), note=1)),
    "no opset of ONNX for an operator of a late one": _new_operator_without_opset(),
    "a constant that is an input twice": _changed(lambda m: m.graph.input.extend([value("s", FLOAT, [3])] * 2)),
    "statistics of SimplifiedLayerNormalization that nothing reads": _unread_statistics(),
    "the opset of ONNX in a function alone": _of_a_function_alone(),
    "ThresholdedRelu before ONNX had it": _changed(lambda m: None, "ThresholdedRelu", 8, alpha=0.5),
}

FILES = LENIENT | {
    "constants that are no inputs, before IR version 4": _constants_alone(),
    "a domain that is not imported": _domain_not_imported(),
    "no opset of ONNX": _no_opset_of_onnx(),
    "a domain that is not imported, in a body": _domain_not_imported_in_a_body(),
    "a graph without a name": _graph_without_a_name(),
    "LayerNormalization before ONNX had it": _early_normalisation(),
    "LayerNormalization of float16 before ONNX had it": _early_normalisation_of_halves(),
    "LayerNormalization with its statistics before ONNX had it": _statistics_of_an_early_normalisation(),
    "SimplifiedLayerNormalization": _simplified_normalisation(),
    "CumSum with its axis in a list": _axis_in_a_list("CumSum", 14),
    "CumProd with its axis in a list": _axis_in_a_list("CumProd", 26),
    "another type declared than computed": _another_type_declared(),
    "another shape declared than computed": _another_shape_declared(),
    "negative sizes declared": _negative_sizes_declared(),
    "other rows declared than a loop computes": _other_rows_declared(),
    "a factor without elements": _empty_factor(),
    "bytes without elements": _empty_bytes(),
    "an output without elements": _empty_output(),
    "Einsum of an operand of size 1 along a longer axis": made(
        [helper.make_node("Einsum", ["x", "z"], ["y"], equation="bik,bkj->bij")],
        [value("x", FLOAT, [1, 3, 1]), value("z", FLOAT, [2, 2, 4])],
        [value("y", FLOAT, [2, 3, 4])],
    ),
    "Conv of no images": _of_no_images("Conv", {"w": np.ones((3, 2, 3, 3), np.float32)}, [0, 3, 2, 2]),
    "Flatten of no images": _of_no_images("Flatten", {}, [0, 32]),
    **{f"{kind} of ai.onnx.ml": _learned(kind, **options) for kind, options in LEARNED.items()},
    "GlobalAveragePool of no images": _of_no_images("GlobalAveragePool", {}, [0, 2, 1, 1]),
}


@pytest.mark.parametrize("mapping", MAPPINGS)
@pytest.mark.parametrize("name", FILES)
def test_a_file_that_onnx_runtime_runs_has_its_answers(name: str, mapping: str, tmp_path: Path) -> None:
    if name.startswith("CumProd"):  # Of opset 26.
        requires_recent_onnx_runtime()
    found = compared(FILES[name], tmp_path, mapping)
    assert found.passed, found.outputs


def test_several_constants_of_one_name_are_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    compared(LENIENT["two constants of one name"], tmp_path, "provider")
    assert "several constants of one name, of which the last counts" in caplog.text


def test_a_sparse_constant_with_an_index_outside_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match="one index below 3 for each value"):
        compared(_with_sparse([3], [0, 3]), tmp_path, "provider")


@pytest.mark.parametrize("mapping", MAPPINGS)
@pytest.mark.parametrize("kind", ["Bernoulli", "Multinomial"])
def test_random_draws_have_the_shape_and_type_of_onnx_runtimes(kind: str, mapping: str, tmp_path: Path) -> None:
    # Bernoulli is drawn from what are no probabilities.
    options = {"sample_size": 7} if kind == "Multinomial" else {}
    output = value("y", INT32, [2, 7]) if kind == "Multinomial" else Y
    found = compared(made([helper.make_node(kind, ["x"], ["y"], **options)], [X], [output], opset=15), tmp_path, mapping)
    assert not found.outputs[0].problem


def test_draws_follow_their_log_probabilities(tmp_path: Path) -> None:
    node = helper.make_node("Multinomial", ["x"], ["y"], sample_size=4000, seed=3.0)
    path = tmp_path / "model.onnx"
    path.write_bytes(made([node], [X], [value("y", INT32, [2, 4000])], opset=15).SerializeToString())
    compilation = Compilation.create(load(path), [])
    compilation.finish()
    odds = np.float32([[1, 2, 5], [1, 0, 1]])
    with np.errstate(divide="ignore"):
        (drawn,) = Execution(compilation).run([np.log(odds)]).values()
    for row, share in zip(drawn, odds, strict=True):
        np.testing.assert_allclose(np.bincount(row, minlength=3) / 4000, share / share.sum(), atol=0.03)


def test_random_numbers_are_named_as_the_cause_of_a_difference(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    node = helper.make_node("RandomNormal", [], ["y"], shape=[2, 3])
    path.write_bytes(made([node], [], [Y]).SerializeToString())
    found = CliRunner().invoke(cli, ["compare", str(path), "--reference", "onnxruntime"])
    assert found.exit_code == 1
    assert "draws random numbers, which differ from onnxruntime's" in found.output
    assert "float sums" not in found.output
