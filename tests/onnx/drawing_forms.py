"""Forms in which ONNX Runtime takes a file, whether ONNX's text has them or not, drawn at random over the other cases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, helper, numpy_helper

from tests.onnx.drawing import DRAWS, Case, Rng, draws

Form = Callable[[Any, Rng], None]
FORMS: dict[str, Form] = {}
"""Name → a change of a ModelProto in place."""
_NUMBERS = (-2, -1, 0, 1, 2, 3)


@draws("any form")
def any_form(case: Case) -> None:
    """Another case with one to three forms; its opset may be one that ONNX Runtime no longer promises to run."""
    rng, names = case.rng, sorted(DRAWS.keys() - {"any form", "text", "sequence"})
    name = names[int(rng.integers(len(names)))]
    case.__init__(rng, name, opset=int(rng.integers(1, 7)) if rng.random() < 0.1 else 0)  # type: ignore[misc]
    DRAWS[name](case)
    chosen = [list(FORMS)[int(i)] for i in rng.integers(len(FORMS), size=int(rng.integers(1, 4)))]
    case.forms = [(form, FORMS[form], int(rng.integers(1 << 30))) for form in chosen]


def form(function: Form) -> Form:
    FORMS[function.__name__] = function
    return function


def _one(items: Sequence[Any], rng: Rng) -> Any:
    return items[int(rng.integers(len(items)))] if len(items) else None


def _attribute(model: Any, rng: Rng) -> tuple[Any, Any]:
    """A node and one of its attributes; None where it has none."""
    node = _one(model.graph.node, rng)
    return node, _one(node.attribute, rng)


def _schema(node: Any, model: Any) -> Any:
    version = next((e.version for e in model.opset_import if e.domain == node.domain), 1)
    try:
        return onnx.defs.get_schema(node.op_type, version, node.domain)
    except onnx.defs.SchemaError:
        return None


# -- attributes ----------------------------------------------------------------------------------------------------------


@form
def attribute_left_out(model: Any, rng: Rng) -> None:
    node, attribute = _attribute(model, rng)
    if attribute is not None:
        node.attribute.remove(attribute)


@form
def default_stated(model: Any, rng: Rng) -> None:
    node = _one(model.graph.node, rng)
    schema = _schema(node, model)
    there = {a.name for a in node.attribute}
    stated = [a for n, a in (schema.attributes.items() if schema else ()) if n not in there and a.default_value.name]
    if stated:
        node.attribute.add().CopyFrom(_one(stated, rng).default_value)


@form
def other_attribute(model: Any, rng: Rng) -> None:
    """Another value of the attribute's type, which the operator may not have."""
    _, a = _attribute(model, rng)
    if a is None:
        return
    if a.type == AttributeProto.INT:
        a.i = int(_one(_NUMBERS, rng))
    elif a.type == AttributeProto.FLOAT:
        a.f = float(_one((-1.0, 0.0, 0.5, 2.0, np.inf), rng))
    elif a.type == AttributeProto.STRING:
        a.s = _one((a.s.lower(), a.s.upper(), b"", a.s + b"\0"), rng)
    elif a.type == AttributeProto.INTS and a.ints:
        values = [*a.ints]
        change = int(rng.integers(4))
        values = [values[:-1], [*values, values[-1]], [int(_one(_NUMBERS, rng)), *values[1:]], []][change]
        del a.ints[:]
        a.ints.extend(values)


@form
def attribute_without_a_type(model: Any, rng: Rng) -> None:
    _, a = _attribute(model, rng)
    if a is not None:
        a.ClearField("type")


@form
def attribute_of_another_type(model: Any, rng: Rng) -> None:
    node, a = _attribute(model, rng)
    if a is not None and a.type in (AttributeProto.INT, AttributeProto.INTS):
        value = float(a.i) if a.type == AttributeProto.INT else (a.ints[0] if a.ints else 1)
        node.attribute.remove(a)
        node.attribute.append(helper.make_attribute(a.name, value))


@form
def attribute_twice(model: Any, rng: Rng) -> None:
    node, a = _attribute(model, rng)
    if a is not None:
        node.attribute.add().CopyFrom(a)
        other_attribute(model, rng)


@form
def attribute_that_no_one_knows(model: Any, rng: Rng) -> None:
    name = str(_one(("consumed_inputs", "axis", "broadcast", "is_test", "note"), rng))
    _one(model.graph.node, rng).attribute.append(helper.make_attribute(name, _one(([1, 0], 1, "x"), rng)))


@form
def attribute_described(model: Any, rng: Rng) -> None:
    _, a = _attribute(model, rng)
    if a is not None:
        a.doc_string = "an attribute"


# -- domains and versions ------------------------------------------------------------------------------------------------


@form
def domain_by_name(model: Any, rng: Rng) -> None:
    for one in (*model.graph.node, *model.opset_import):
        if one.domain == "" and rng.random() < 0.7:
            one.domain = "ai.onnx"


@form
def opset_stated_twice(model: Any, rng: Rng) -> None:
    for stated in [*model.opset_import][:1]:
        model.opset_import.add(domain="", version=int(stated.version) + int(_one((0, 0, 1, -1), rng)))


@form
def opset_left_out(model: Any, rng: Rng) -> None:
    if model.opset_import:
        model.opset_import.remove(_one(model.opset_import, rng))


@form
def domains_that_no_node_has(model: Any, rng: Rng) -> None:
    model.opset_import.add(domain=_one(("ai.onnx.ml", "com.example", "ai.onnx.training", "com.microsoft.nchwc"), rng), version=1)


@form
def another_ir_version(model: Any, rng: Rng) -> None:
    model.ir_version = int(rng.integers(1, 14))


@form
def metadata_twice(model: Any, rng: Rng) -> None:
    for value in ("a", "b"):
        model.metadata_props.add(key="key", value=value)


# -- constants -----------------------------------------------------------------------------------------------------------


@form
def constants_as_inputs(model: Any, rng: Rng) -> None:
    there = {value.name for value in model.graph.input}
    for tensor in model.graph.initializer:
        if tensor.name not in there and rng.random() < 0.7:
            model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))


@form
def constants_as_nodes(model: Any, rng: Rng) -> None:
    tensor = _one(model.graph.initializer, rng)
    if tensor is None or tensor.name in {value.name for value in model.graph.input}:
        return
    array, options = numpy_helper.to_array(tensor), {"value": tensor}
    if array.dtype == np.float32 and array.ndim < 2 and array.size and rng.random() < 0.5:
        options = {"value_floats": array.tolist()} if array.ndim else {"value_float": float(array)}
    if array.dtype == np.int64 and array.ndim < 2 and array.size and rng.random() < 0.5:
        options = {"value_ints": array.tolist()} if array.ndim else {"value_int": int(array)}
    model.graph.node.insert(0, helper.make_node("Constant", [], [tensor.name], **options))
    model.graph.initializer.remove(tensor)


@form
def constants_in_typed_fields(model: Any, rng: Rng) -> None:
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype.kind in "fiub":
            values = array.view(np.uint16) if array.dtype == np.float16 else array
            tensor.CopyFrom(helper.make_tensor(tensor.name, tensor.data_type, tensor.dims, values.ravel().tolist()))


@form
def constants_that_nothing_reads(model: Any, rng: Rng) -> None:
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(int(rng.integers(3)), np.float32), "unread"))


@form
def constants_twice(model: Any, rng: Rng) -> None:
    tensor = _one(model.graph.initializer, rng)
    if tensor is not None:
        model.graph.initializer.add().CopyFrom(tensor)


@form
def constants_described(model: Any, rng: Rng) -> None:
    tensor = _one(model.graph.initializer, rng)
    if tensor is not None:
        shape = _one((list(tensor.dims), None, [1]), rng)
        model.graph.value_info.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, shape))


# -- nodes and values ----------------------------------------------------------------------------------------------------


@form
def empty_inputs_at_the_end(model: Any, rng: Rng) -> None:
    _one(model.graph.node, rng).input.extend([""] * int(rng.integers(1, 3)))


@form
def empty_outputs_at_the_end(model: Any, rng: Rng) -> None:
    _one(model.graph.node, rng).output.extend([""] * int(rng.integers(1, 3)))


@form
def another_output(model: Any, rng: Rng) -> None:
    """An output that the operator may not have, which nothing reads."""
    _one(model.graph.node, rng).output.append("one_more")


@form
def names_of_nodes(model: Any, rng: Rng) -> None:
    for node in model.graph.node:
        node.name, node.doc_string = str(_one(("", "same", "a b/c:0", "ä"), rng)), "node"


@form
def nodes_out_of_order(model: Any, rng: Rng) -> None:
    nodes = [*model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes[i] for i in rng.permutation(len(nodes)))


@form
def nodes_that_nothing_reads(model: Any, rng: Rng) -> None:
    value = _one(model.graph.input, rng)
    if value is not None:
        model.graph.node.append(helper.make_node("Shape", [value.name], ["dead"]))


@form
def inputs_of_open_dimensions(model: Any, rng: Rng) -> None:
    for value in model.graph.input:
        for d in value.type.tensor_type.shape.dim:
            if rng.random() < 0.5:
                change = int(rng.integers(3))
                d.ClearField("dim_value")
                if change:
                    d.dim_param = str(_one(("n", "", "n + 1", "?"), rng)) if change == 1 else f"d{int(rng.integers(99))}"


@form
def inputs_without_shape(model: Any, rng: Rng) -> None:
    value = _one(model.graph.input, rng)
    if value is not None:
        value.type.tensor_type.ClearField("shape")


@form
def inputs_of_negative_dimensions(model: Any, rng: Rng) -> None:
    value = _one(model.graph.input, rng)
    if value is not None and len(value.type.tensor_type.shape.dim):
        _one(value.type.tensor_type.shape.dim, rng).dim_value = -1


@form
def outputs_declared_otherwise(model: Any, rng: Rng) -> None:
    for value in model.graph.output:
        tensor = value.type.tensor_type
        change = int(rng.integers(4))
        if change == 0:
            value.ClearField("type")
        elif change == 1 and value.type.HasField("tensor_type"):
            tensor.ClearField("shape")
        elif change == 2 and len(tensor.shape.dim):
            _one(tensor.shape.dim, rng).dim_value = int(rng.integers(0, 6))
        elif change == 3 and value.type.HasField("tensor_type"):
            tensor.shape.dim.add().dim_value = 1


@form
def values_on_the_way_described(model: Any, rng: Rng) -> None:
    for node in model.graph.node[:-1]:
        for name in filter(None, node.output):
            shape = _one((None, ["a", "b"], [1, 2, 3]), rng)
            model.graph.value_info.append(helper.make_tensor_value_info(name, int(_one((0, 1, 7), rng)), shape))


@form
def a_graph_without_a_name(model: Any, rng: Rng) -> None:
    model.graph.name = ""
