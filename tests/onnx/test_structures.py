"""Functions with attributes, bodies in bodies, sequences, optionals and defaults, beside ONNX Runtime."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from nnbridge.engines.onnx_session import open_session
from nnbridge.errors import InputError
from nnbridge.file import load
from nnbridge.inputs import Dataset
from nnbridge_onnx import backend
from tests.differential import computed
from tests.onnx.differential import DRAWS, verdicts

X = np.float32([-1, 0.5, 0.9, 1])
STRUCTURES = sorted(name for name in DRAWS if name.startswith("structure "))


@pytest.mark.parametrize("mapping", ["wide", "provider"])
def test_random_structures_agree_with_onnx_runtime(mapping: str) -> None:
    found = list(verdicts(range(120), 3, STRUCTURES, mapping))
    assert [verdict for verdict in found if verdict.outcome in ("differs", "fails")] == []
    assert Counter(verdict.outcome for verdict in found)["equal"] > 100


def both(tmp_path: Path, nodes: list[Any], functions: list[Any], mapping: str = "wide") -> tuple[Any, Any]:
    """The output ``y`` of ``x`` here and in ONNX Runtime."""
    kinds = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y")]
    opsets = [helper.make_opsetid("", 15), helper.make_opsetid("own", 1)]
    graph = helper.make_graph(nodes, "g", kinds[:1], kinds[1:])
    model = helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=10)
    onnx.save(model, tmp_path / "m.onnx")
    ((ours,), _) = computed(tmp_path / "m.onnx", mapping, [X])
    return ours, open_session(model.SerializeToString()).run(None, {"x": X})[0]


def referring(operator: str, inputs: list[str], outputs: list[str], attribute: str, own: str, domain: str = "") -> Any:
    """A node one of whose attributes is the function's own."""
    node = helper.make_node(operator, inputs, outputs, domain=domain)
    node.attribute.append(AttributeProto(name=attribute, ref_attr_name=own, type=AttributeProto.FLOAT))
    return node


def function(name: str, nodes: list[Any], default: float | None) -> Any:
    """A function from ``a`` to ``b`` with an attribute ``slope``, which may have a default."""
    opsets = [helper.make_opsetid("", 15), helper.make_opsetid("own", 1)]
    defaults = [] if default is None else [helper.make_attribute("slope", default)]
    return helper.make_function("own", name, ["a"], ["b"], nodes, opsets, ["slope"] if default is None else [], defaults)


def branches(inner: Any) -> list[Any]:
    """A branch with a node, in a function."""
    true = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.asarray(True)))
    result = helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)
    other = helper.make_graph([helper.make_node("Neg", ["a"], ["inner"])], "else", [], [result])
    return [
        true,
        helper.make_node("If", ["c"], ["b"], then_branch=helper.make_graph([inner], "then", [], [result]), else_branch=other),
    ]


LEAKY = referring("LeakyRelu", ["a"], ["b"], "alpha", "slope")


@pytest.mark.parametrize("mapping", ["wide", "provider"])
@pytest.mark.parametrize("stated", [{}, {"slope": 0.75}])
@pytest.mark.parametrize(
    "functions",
    [
        [function("F", [LEAKY], 0.25)],
        [function("F", [referring("Elu", ["a"], ["b"], "alpha", "slope")], 0.25)],
        [function("F", branches(referring("LeakyRelu", ["a"], ["inner"], "alpha", "slope")), 0.25)],
        # One function within another: by its own default, by the caller's, and with a number.
        [function("G", [LEAKY], 0.5), function("F", [helper.make_node("G", ["a"], ["b"], domain="own")], 0.25)],
        [function("G", [LEAKY], 0.5), function("F", [referring("G", ["a"], ["b"], "slope", "slope", "own")], 0.25)],
        [function("G", [LEAKY], None), function("F", [referring("G", ["a"], ["b"], "slope", "slope", "own")], 0.25)],
        [function("G", [LEAKY], 0.5), function("F", [helper.make_node("G", ["a"], ["b"], domain="own", slope=0.1)], 0.25)],
        [function("G", [LEAKY], 0.5), function("F", branches(helper.make_node("G", ["a"], ["inner"], domain="own")), 0.25)],
    ],
)  # fmt: skip
def test_attributes_of_functions_have_their_defaults(
    functions: list[Any], stated: dict[str, float], mapping: str, tmp_path: Path
) -> None:
    ours, theirs = both(tmp_path, [helper.make_node("F", ["x"], ["y"], domain="own", **stated)], functions, mapping)
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def defaulted(tmp_path: Path) -> Path:
    """A file with an input ``w`` that has a default."""
    kinds = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "w", "y")]
    weights = numpy_helper.from_array(np.float32([10, 20, 30, 40]), "w")
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", kinds[:2], kinds[2:], [weights])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8), path)
    return path


@pytest.mark.parametrize("texts", [["x={0}/w.npy", "w={0}/w.npy"], ["{0}/both.npz"]])
def test_a_file_for_an_input_with_a_default_is_refused(texts: list[str], tmp_path: Path) -> None:
    model = load(defaulted(tmp_path))
    np.save(tmp_path / "w.npy", X)
    np.savez(tmp_path / "both.npz", x=X, w=X)
    with pytest.raises(InputError, match=r"this model's inputs are: x \(float32"):
        Dataset.of(model, [text.format(tmp_path) for text in texts])


@pytest.mark.parametrize("values", [{"x": X, "w": X}, [X, X]])
def test_a_value_for_an_input_with_a_default_is_refused_by_the_backend(values: Any, tmp_path: Path) -> None:
    prepared = backend.prepare(onnx.load(defaulted(tmp_path)))
    with pytest.raises(InputError, match="x"):
        prepared.run(values)


def test_a_misspelt_input_of_the_backend_is_refused(tmp_path: Path) -> None:
    prepared = backend.prepare(onnx.load(defaulted(tmp_path)))
    with pytest.raises(InputError, match="no x"):
        prepared.run({"X": X})
