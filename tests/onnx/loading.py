"""ONNX files that ONNX Runtime may not load, drawn at random, and the installed runtime's verdict on them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, helper, numpy_helper

from nnbridge.converters import ConversionOptions
from nnbridge.converters.delegation import refusal_of
from nnbridge.engines.loading import load_by_onnx_runtime
from nnbridge.errors import NnbridgeError, Stage
from nnbridge.file import ModelFile
from tests.onnx.differential import DRAWS, Case

Rng = np.random.Generator
TYPES = tuple(range(1, 17))
"""Element types, FLOAT to BFLOAT16."""


def runtime_refusal(path: str) -> list[str]:
    """The reason why ONNX Runtime does not load a file, empty if it does; for a separate process, which some files end."""
    try:
        load_by_onnx_runtime(Path(path))
    except Exception as error:
        return [" ".join(str(error).split()) or "refused"]
    return [""]


def refusal(path: Path) -> tuple[str, bool]:
    """The reason why nnbridge refuses a file, empty if it does not; whether it says that ONNX Runtime does not load it."""
    try:
        file = ModelFile(path, ConversionOptions(mapping="provider"))
        _, mapped = file.converted
    except NnbridgeError as error:
        return str(error), error.reason is not None and error.reason.stage is Stage.LOADING
    found = refusal_of(mapped, "provider")
    lacking = next(iter(file.importer.graph(file.options).without_kernel.values()), None)
    if lacking is not None and (found is None or found.stage is not Stage.LOADING):
        return str(lacking), True  # The provider takes the node; the installed runtime is asked without it.
    loaded = found is None or found.stage is not Stage.LOADING
    return "" if loaded or found is None else str(found.reason), not loaded


def loading_outcome(theirs: str, ours: str, *, stated: bool) -> str:
    """Both sides' refusals in a word; ``stated``: ours says that ONNX Runtime does not load the file."""
    if bool(theirs) == bool(ours):
        return "both load" if not theirs else "both refuse" if stated else "both refuse, ours as no ONNX file"
    if theirs:
        return "only ONNX Runtime refuses"
    return "only nnbridge refuses" if stated else "nnbridge does not read it"


def candidate(seed: int, number: int) -> bytes | None:
    """A drawn file, mostly with one or two things changed; None if nothing can be drawn."""
    rng = np.random.default_rng([seed, number, 11])
    names = sorted(DRAWS)
    name = names[number % len(names)]
    case = Case(rng, name)
    try:
        DRAWS[name](case)
        model = case.model()
        if rng.random() < 0.8:
            for value, found in zip(model.graph.output, _typed(model), strict=True):
                value.CopyFrom(found)
    except Exception:  # What cannot be drawn is not compared.
        return None
    for _ in range(int(rng.integers(0, 3)) if rng.random() < 0.5 else 1):
        change = _CHANGES[int(rng.integers(len(_CHANGES)))]
        change(model, rng)
    return bytes(model.SerializeToString())


def _typed(model: Any) -> list[Any]:
    """The graph's outputs with the types and shapes that the onnx package infers, scalars of float for others."""
    inferred = onnx.shape_inference.infer_shapes(model)
    found = {value.name: value for value in (*inferred.graph.output, *inferred.graph.value_info)}
    return [found.get(value.name, value) for value in model.graph.output]


# -- one thing is changed ------------------------------------------------------------------------------------------------------


def _pick(rng: Rng, listed: Sequence[Any]) -> Any:
    return listed[int(rng.integers(len(listed)))]


def _node(model: Any, rng: Rng) -> Any:
    return _pick(rng, model.graph.node)


def _names(model: Any) -> list[str]:
    graph = model.graph
    made = [name for node in graph.node for name in node.output if name]
    return [*(value.name for value in graph.input), *(tensor.name for tensor in graph.initializer), *made]


def _node_names(model: Any, rng: Rng) -> None:
    """Names of nodes, all the same."""
    for node in model.graph.node:
        node.name = "same"


def _renamed_output(model: Any, rng: Rng) -> None:
    node = _node(model, rng)
    if node.output:
        node.output[int(rng.integers(len(node.output)))] = _pick(rng, [*_names(model), "", "nothing"])


def _renamed_input(model: Any, rng: Rng) -> None:
    node = _node(model, rng)
    if node.input:
        node.input[int(rng.integers(len(node.input)))] = _pick(rng, [*_names(model), "", "nothing"])


def _input_count(model: Any, rng: Rng) -> None:
    node = _node(model, rng)
    if rng.random() < 0.5 and node.input:
        del node.input[-1]
    else:
        node.input.append(_pick(rng, [*_names(model), ""]))


def _output_count(model: Any, rng: Rng) -> None:
    node = _node(model, rng)
    if rng.random() < 0.5 and len(node.output) > 1:
        del node.output[-1]
    else:
        node.output.append("another")


def _graph_output(model: Any, rng: Rng) -> None:
    way, outputs = int(rng.integers(4)), model.graph.output
    if way == 0:
        outputs.add().CopyFrom(helper.make_tensor_value_info("nothing", 1, [1]))
    elif way == 1:
        outputs.add().CopyFrom(outputs[0])
    elif way == 2 and outputs:
        outputs[0].name = _pick(rng, _names(model))
    else:
        del outputs[:]


def _order(model: Any, rng: Rng) -> None:
    """Nodes in another order."""
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend(nodes[i] for i in rng.permutation(len(nodes)))


def _removed(model: Any, rng: Rng) -> None:
    del model.graph.node[int(rng.integers(len(model.graph.node)))]
    if not model.graph.node:
        model.graph.node.add(op_type="Identity", input=_names(model)[:1], output=["nothing"])


def _opset(model: Any, rng: Rng) -> None:
    way = int(rng.integers(5)) if model.opset_import else 4
    if way < 3:
        model.opset_import[0].version = int(rng.integers(0, 30))
    elif way == 3:
        model.opset_import[0].domain = _pick(rng, ["ai.onnx", "com.microsoft", "my.domain"])
    else:
        del model.opset_import[:]


def _ir(model: Any, rng: Rng) -> None:
    model.ir_version = int(rng.integers(0, 16))


def _operator(model: Any, rng: Rng) -> None:
    node, way = _node(model, rng), int(rng.integers(4))
    if way == 0:
        node.op_type = _pick(rng, ["Nothing", "Relu", "Add", "Conv", "Sin", "Identity", "Upsample", "Scatter"])
    elif way == 1:
        node.domain = _pick(rng, ["ai.onnx", "com.microsoft", "my.domain", "ai.onnx.ml"])
    else:
        names = sorted({schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain})
        node.op_type = _pick(rng, names)


def _attribute(model: Any, rng: Rng) -> None:
    node, way = _node(model, rng), int(rng.integers(8))
    held = list(node.attribute)
    if way == 0 or not held:
        node.attribute.append(
            helper.make_attribute(_pick(rng, ["axis", "axes", "own", "mode", "to"]), _pick(rng, [1, "x", [1], 0.5]))
        )
        return
    chosen = _pick(rng, held)
    if way == 1:
        node.attribute.remove(chosen)
    elif way == 2:
        chosen.name = _pick(rng, ["axis", "own", "axes"])
    elif way == 3:
        node.attribute.append(chosen)
    elif way == 4:
        chosen.CopyFrom(helper.make_attribute(chosen.name, _pick(rng, [1, "x", [1], 0.5, [0.5]])))
    elif chosen.type == AttributeProto.INT:
        chosen.i = int(_pick(rng, [-3, -1, 0, 1, 2, 5, 100]))
    elif chosen.type == AttributeProto.INTS:
        numbers = [int(i) for i in chosen.ints]
        chosen.ints[:] = _pick(rng, [[], numbers[:-1], [*numbers, 1], [-1] * len(numbers), [0] * len(numbers), numbers[::-1]])
    elif chosen.type == AttributeProto.STRING:
        chosen.s = _pick(rng, [b"", b"SAME_UPPER", b"VALID", b"x", b"linear"])
    elif chosen.type == AttributeProto.FLOAT:
        chosen.f = float(_pick(rng, [-1, 0, 1, np.inf]))


def _value_type(model: Any, rng: Rng) -> None:
    """An input, a constant or an output has another element type."""
    graph, after = model.graph, int(_pick(rng, TYPES))
    way = int(rng.integers(3))
    values = graph.input if way == 0 else graph.output
    if way < 2 and values:
        _pick(rng, values).type.tensor_type.elem_type = after
    elif graph.initializer:
        tensor = _pick(rng, graph.initializer)
        dtype = helper.tensor_dtype_to_np_dtype(after)
        with np.errstate(all="ignore"):
            try:
                tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(dtype), tensor.name))
            except (TypeError, ValueError, NotImplementedError):
                return


def _value_shape(model: Any, rng: Rng) -> None:
    """An input or an output has a dimension more, one less, another one, or none that is stated."""
    values = [one for one in (*model.graph.input, *model.graph.output) if one.type.HasField("tensor_type")]
    if not values:
        return
    kind = _pick(rng, values).type.tensor_type
    dims, way = kind.shape.dim, int(rng.integers(5))
    if way == 0:
        dims.add().dim_value = int(rng.integers(0, 4))
    elif way == 1 and dims:
        del dims[-1]
    elif way == 2 and dims:
        _pick(rng, dims).dim_value = int(rng.integers(0, 6))
    elif way == 3 and dims:
        _pick(rng, dims).dim_param = "N"
    elif way == 4:
        kind.ClearField("shape")


def _constant(model: Any, rng: Rng) -> None:
    """A constant has other numbers, another shape, or too few bytes; or there are two of one name."""
    if not model.graph.initializer:
        return
    tensor, way = _pick(rng, model.graph.initializer), int(rng.integers(6))
    array = numpy_helper.to_array(tensor)
    if way == 0 and array.dtype.kind in "iu":
        tensor.CopyFrom(
            numpy_helper.from_array((array.astype(np.int64) + _pick(rng, [-3, -1, 1, 2])).astype(array.dtype), tensor.name)
        )
    elif way == 1:
        tensor.CopyFrom(numpy_helper.from_array(array.reshape((1, *array.shape)), tensor.name))
    elif way == 2:
        tensor.CopyFrom(numpy_helper.from_array(array.ravel()[:1].reshape(()) if array.size else array, tensor.name))
    elif way == 3:
        tensor.CopyFrom(numpy_helper.from_array(np.zeros(0, array.dtype), tensor.name))
    elif way == 4:
        tensor.dims.append(2)
    else:
        model.graph.initializer.append(tensor)


def _value_info(model: Any, rng: Rng) -> None:
    """The graph states a type and a shape of an inner value."""
    made = [name for node in model.graph.node for name in node.output if name]
    if made:
        shape = [int(d) for d in rng.integers(1, 4, int(rng.integers(0, 4)))]
        model.graph.value_info.append(helper.make_tensor_value_info(_pick(rng, made), int(_pick(rng, TYPES)), shape))


_CHANGES: Sequence[Callable[[Any, Rng], None]] = (
    *(_node_names, _renamed_output, _renamed_input, _renamed_input, _input_count, _output_count, _graph_output, _order, _removed),
    *(_opset, _ir, _operator, _operator, _attribute, _attribute, _attribute, _value_type, _value_type, _value_type),
    *(_value_shape, _value_shape, _constant, _constant, _value_info),
)


# -- everything is changed, one after the other --------------------------------------------------------------------------------


_ODD: dict[int, list[Any]] = {
    AttributeProto.INT: [-100, -3, -2, -1, 0, 1, 2, 3, 4, 5, 100],
    AttributeProto.FLOAT: [-1.0, 0.0, 1.0, 2.0, float("inf"), float("nan")],
    AttributeProto.STRING: [b"", b"SAME_UPPER", b"VALID", b"x", b"linear", b"NEAREST", b"Relu"],
    AttributeProto.INTS: [[], [1, 1], [0, 0], [-1, -1], [2, 2], [100, 100], [1]],
    AttributeProto.FLOATS: [[], [0.5], [1.0, 1.0], [-1.0, -1.0]],
}
"""Values of attributes, by their type."""
_LARGEST = 6
"""Nodes of a drawn file that is swept."""


def sweep(seed: int, number: int) -> Iterator[tuple[str, bytes]]:
    """A drawn file in which everything is changed, each time one thing, with what it is: attributes to odd values, operands to
    every type, other operands and other shapes, the opset."""
    name = sorted(DRAWS)[number % len(DRAWS)]
    case = Case(np.random.default_rng([seed, number, 99]), name)
    try:
        DRAWS[name](case)
        model = case.model()
        for value, found in zip(model.graph.output, _typed(model), strict=True):
            value.CopyFrom(found)
    except Exception:  # What cannot be drawn is not compared.
        return
    if len(model.graph.node) > _LARGEST:
        return
    for what, changed in itertools.chain(*(one(model) for one in (_attributes, _types, _constants, _operands, _shapes))):
        yield f"{name}: {what}", bytes(changed.SerializeToString())


def _copied(model: Any) -> Any:
    found = onnx.ModelProto()
    found.CopyFrom(model)
    return found


def _declared(model: Any, node: Any) -> dict[str, int]:
    """The attributes that a node may have -> their types."""
    version = next((one.version for one in model.opset_import if one.domain == node.domain), 1)
    try:
        schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    except onnx.defs.SchemaError:
        return {}
    return {name: int(one.type.value) for name, one in schema.attributes.items()}


def _attributes(model: Any) -> Iterator[tuple[str, Any]]:
    for i, node in enumerate(model.graph.node):
        held = {one.name: int(one.type) for one in node.attribute}
        for name, type in (_declared(model, node) | held).items():
            for value in (*_ODD.get(type, ()), None):
                changed = _copied(model)
                others = [one for one in node.attribute if one.name != name]
                del changed.graph.node[i].attribute[:]
                changed.graph.node[i].attribute.extend(others)
                if value is not None:
                    changed.graph.node[i].attribute.append(helper.make_attribute(name, value, attr_type=type))
                yield f"{name} {value} of {node.op_type}", changed


def _types(model: Any) -> Iterator[tuple[str, Any]]:
    for side in ("input", "output"):
        for i, type in itertools.product(range(len(getattr(model.graph, side))), range(24)):
            changed = _copied(model)
            getattr(changed.graph, side)[i].type.tensor_type.elem_type = type
            yield f"{side} {i} of type {type}", changed
    for i, type in itertools.product(range(len(model.graph.initializer)), range(1, 24)):
        with np.errstate(all="ignore"):
            try:
                array = numpy_helper.to_array(model.graph.initializer[i]).astype(helper.tensor_dtype_to_np_dtype(type))
                tensor = numpy_helper.from_array(array, model.graph.initializer[i].name)
            except (KeyError, TypeError, ValueError, NotImplementedError):
                continue
        changed = _copied(model)
        changed.graph.initializer[i].CopyFrom(tensor)
        yield f"constant {i} of type {type}", changed


def _constants(model: Any) -> Iterator[tuple[str, Any]]:
    for i, tensor in enumerate(model.graph.initializer):
        array = numpy_helper.to_array(tensor)
        if array.dtype.kind not in "biuf":
            continue
        numbers = [(array.astype(np.float64) + d).astype(array.dtype) for d in (-3, -1, 1, 100)] if array.size else []
        first = [array.ravel()[:1], array.ravel()[:1].reshape(())] if array.size else []
        for other in (array[None], array[..., None], array.ravel(), np.zeros(0, array.dtype), array * 0, *first, *numbers):
            changed = _copied(model)
            changed.graph.initializer[i].CopyFrom(numpy_helper.from_array(np.asarray(other), tensor.name))
            yield f"constant {i} of {other.ravel()[:4]} {other.shape}", changed
            node = helper.make_node("Constant", [], [tensor.name], value=changed.graph.initializer[i])
            as_node = _copied(changed)
            del as_node.graph.initializer[i]
            as_node.graph.node.insert(0, node)
            yield f"constant {i} as a node of {other.ravel()[:4]} {other.shape}", as_node


def _operands(model: Any) -> Iterator[tuple[str, Any]]:
    names = ["", *(one.name for one in model.graph.input[:3]), *(one.name for one in model.graph.initializer[:3])]
    for i, node in enumerate(model.graph.node):
        for place, name in itertools.product(range(len(node.input) + 1), names):
            changed = _copied(model)
            if place < len(node.input):
                changed.graph.node[i].input[place] = name
            else:
                changed.graph.node[i].input.append(name)
            yield f"input {place} of {node.op_type} is {name!r}", changed
        shorter, longer = _copied(model), _copied(model)
        del shorter.graph.node[i].input[-1:]
        longer.graph.node[i].output.append("another")
        yield f"an input less of {node.op_type}", shorter
        yield f"an output more of {node.op_type}", longer
    for version in range(1, 27) if model.opset_import else ():
        changed = _copied(model)
        changed.opset_import[0].version = version
        yield f"opset {version}", changed


def _shapes(model: Any) -> Iterator[tuple[str, Any]]:
    for i, value in enumerate(model.graph.input):
        if not value.type.HasField("tensor_type"):
            continue
        dims = [one.dim_value for one in value.type.tensor_type.shape.dim]
        single = [[*dims[:k], d, *dims[k + 1 :]] for k in range(len(dims)) for d in (0, 1, 7, "N")]
        for other in ([*dims, 2], [1, *dims], dims[:-1], dims[1:], [], None, *single):
            changed = _copied(model)
            described = helper.make_tensor_value_info(value.name, value.type.tensor_type.elem_type, other)
            changed.graph.input[i].CopyFrom(described)
            yield f"input {i} of {other}", changed
