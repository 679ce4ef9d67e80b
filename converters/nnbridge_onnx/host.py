"""What runs the operations of ``ai.onnx``: the ``onnx`` package's reference evaluator, and kernels of our own where it is slow.

The options of an operation hold its ``NodeProto``, the opset that gives it its meaning, and what NNAPI's operands do not
tell: which of them are scalars, empty, or of ONNX's boolean type.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

import nnbridge_onnx.kernels_sampling  # noqa: F401  # registers its kernels
from nnbridge.errors import OpFailedError, Reason
from nnbridge.extensions import OPTIONS_TYPE, ExtensionOperandType, HostExtension, HostOperation, HostTensor
from nnbridge_onnx.extension import ELEMENT_TYPES, EXTENSION, HELD, OPERATORS, OTHER, UNSUPPORTED
from nnbridge_onnx.graph import Array, Node, dtype_of
from nnbridge_onnx.kernels import KERNELS, Call

Options = Mapping[str, Any]
Run: TypeAlias = "Callable[[str, Options, Mapping[str, Array]], Sequence[Any]]"
_KEPT_EVALUATORS = 4096
_FIRST_QUANTISED = 19
"""The oldest opset of QuantizeLinear and DequantizeLinear that the evaluator knows."""
_FIRST_PLAIN_SCAN = 9
"""The oldest opset whose Scan has no batches."""


def options_of(node: Node, types: Mapping[str, int]) -> dict[str, Any]:
    """What the options of a node's operation say of the node; ``types`` are those of all values that it reads."""
    types = dict(types)
    return {"op": node.type, "domain": node.domain, "opset": node.version, "node": encoded(node.proto), "types": types}


def encoded(node: Any) -> str:
    """A ``NodeProto`` as text."""
    return base64.b64encode(node.SerializeToString(deterministic=True)).decode()


def run_node(node: Node, arrays: Mapping[str, Array], types: Mapping[str, int]) -> Sequence[Array]:
    """Run a node on what its inputs are called; OP_FAILED if it cannot be computed."""
    return [np.asarray(result) for result in _compute(node.label, options_of(node, types), arrays)]


def run(inputs: Sequence[HostTensor], outputs: Sequence[HostTensor], options: Options) -> Sequence[Array]:
    """Run one node."""
    label = f"{options['domain'] or EXTENSION}.{options['op']}"
    if "refused" in options:
        raise OpFailedError(Reason(HELD, options["refused"], label))
    feeds = {
        name: _fed(i, tensor, options) for i, (name, tensor) in enumerate(zip(options["inputs"], inputs, strict=True)) if name
    }
    own = _OWN.get(options["op"], _compute) if not options["domain"] else _evaluate
    results = own(label, options, feeds)
    return [_answer(result, label) for result in results]


def _compute(label: str, options: Options, feeds: Mapping[str, Array]) -> Sequence[Any]:
    """By a kernel of our own where there is one for this form, else by the evaluator."""
    known = KERNELS.get(options["op"])
    answers = None if known is None else _guarded(by_kernel)(label, options, feeds)
    return _evaluate(label, options, feeds) if answers is None else answers


def by_kernel(label: str, options: Options, feeds: Mapping[str, Array]) -> Any:
    """What a kernel of our own answers, None for a form that it does not know."""
    inputs, outputs, attributes = _parts(options["node"])
    call = Call(tuple(feeds[name] if name else None for name in inputs), attributes, outputs, options["opset"])
    return KERNELS[options["op"]](call)


@lru_cache(_KEPT_EVALUATORS)
def _parts(encoded: str) -> tuple[tuple[str, ...], int, Mapping[str, Any]]:
    """A node's inputs, the number of its outputs, its attributes."""
    import onnx

    node = onnx.NodeProto.FromString(base64.b64decode(encoded))
    return tuple(node.input), len(node.output), {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


def _guarded(run: Run) -> Run:
    """The evaluator raises whatever its operators do; each of these means that the operator cannot be computed so."""

    def guarded(label: str, options: Options, feeds: Mapping[str, Array]) -> Sequence[Any]:
        try:
            return run(label, options, feeds)
        except OpFailedError:
            raise
        except ImportError as error:
            raise OpFailedError(Reason("an installed package", str(error), label)) from error
        except Exception as error:
            first = (str(error).strip().splitlines() or [""])[0][:200]
            raise OpFailedError(Reason("operands that fit the operator", f"{type(error).__name__}: {first}", label)) from error

    return guarded


@_guarded
def _evaluate(label: str, options: Options, feeds: Mapping[str, Array]) -> Sequence[Any]:
    evaluator = _evaluator(options["node"], options["domain"], options["opset"], tuple(options["types"].items()))
    answers: Sequence[Any] = evaluator.run(None, dict(feeds))
    return answers


def _loop(label: str, options: Options, feeds: Mapping[str, Array]) -> Sequence[Any]:
    """Loop, iteration by iteration; the evaluator's own makes columns of stacked scalars."""
    node, body = _body(options["node"])
    count, condition = (feeds.get(name) if name else None for name in node.input[:2])
    names = [value.name for value in body.input]
    outer = {name: array for name, array in feeds.items() if name not in names}
    evaluate = _body_evaluator(options["node"], options["opset"], tuple(outer))
    states: list[Any] = [feeds[name] for name in node.input[2:]]
    going = condition is None or bool(np.ravel(condition)[0])
    stacked: list[list[Any]] = [[] for _ in range(len(body.output) - 1 - len(states))]
    iteration, last = 0, None if count is None else int(np.ravel(count)[0])
    while going and (last is None or iteration < last):
        known = dict(zip(names, [np.array(iteration, np.int64), np.array(going), *states], strict=True))
        answered = evaluate.run(None, {**outer, **known})
        going, states = bool(np.ravel(answered[0])[0]), answered[1 : 1 + len(states)]
        for group, value in zip(stacked, answered[1 + len(states) :], strict=True):
            group.append(value)
        iteration += 1
    kinds = [value.type.tensor_type for value in body.output[1 + len(states) :]]
    return [*states, *(np.stack(group) if group else _nothing(kind) for group, kind in zip(stacked, kinds, strict=True))]


def _nothing(kind: Any) -> Array:
    """What a loop without iterations stacks."""
    return np.zeros((0, *(max(int(d.dim_value), 0) for d in kind.shape.dim)), dtype_of(int(kind.elem_type)))


def _body(encoded: str) -> tuple[Any, Any]:
    import onnx

    node = onnx.NodeProto.FromString(base64.b64decode(encoded))
    return node, next(a.g for a in node.attribute if a.name == "body")


@lru_cache(_KEPT_EVALUATORS)
def _body_evaluator(encoded: str, opset: int, outer: tuple[str, ...]) -> Any:
    """The evaluator of a loop's body; values from outside are inputs more."""
    import onnx
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    body = onnx.GraphProto()
    body.CopyFrom(_body(encoded)[1])
    body.input.extend(onnx.ValueInfoProto(name=name) for name in outer)
    older = _older_operators() if opset < _FIRST_QUANTISED else None
    return ReferenceEvaluator(helper.make_model(body, opset_imports=[helper.make_opsetid("", opset)]), new_ops=older)


def _scan(label: str, options: Options, feeds: Mapping[str, Array]) -> Sequence[Any]:
    """The evaluator scans along axis 0 and forwards alone: inputs are brought into that order, and results back from it."""
    import onnx
    from onnx import helper

    if options["opset"] < _FIRST_PLAIN_SCAN:
        return _scan_batches(options, feeds)
    node = onnx.NodeProto.FromString(base64.b64decode(options["node"]))
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    count = attributes["num_scan_inputs"]
    states = len(node.input) - count
    scanned = node.input[states:]
    ordered = dict(feeds)
    for name, axis, backwards in zip(scanned, *_orders(attributes, "input", count), strict=True):
        moved = np.moveaxis(feeds[name], axis, 0)
        ordered[name] = np.ascontiguousarray(moved[::-1] if backwards else moved)
    for a in [a for a in node.attribute if a.name.startswith("scan_")]:
        node.attribute.remove(a)
    encoded = base64.b64encode(node.SerializeToString(deterministic=True)).decode()
    results = list(_evaluate(label, {**options, "node": encoded}, ordered))
    orders = zip(*_orders(attributes, "output", len(results) - states), strict=True)
    for i, (axis, backwards) in enumerate(orders, states):
        stacked = results[i][::-1] if backwards else results[i]
        results[i] = np.moveaxis(stacked, 0, axis)
    return results


def _scan_batches(options: Options, feeds: Mapping[str, Array]) -> Sequence[Any]:
    """Scan of opset 8: axis 0 of every input and output is that of batches, each of which has a length of its own."""
    from onnx import helper

    node, body = _body(options["node"])
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    names, count = list(node.input[1:]), attributes["num_scan_inputs"]
    first = len(names) - count
    backwards = attributes.get("directions") or [0] * count
    outer = {name: array for name, array in feeds.items() if name not in names and name != node.input[0]}
    evaluate = _body_evaluator(options["node"], options["opset"], tuple(outer))
    scanned = [feeds[name] for name in names[first:]]
    batches, longest = scanned[0].shape[:2]
    lengths = feeds[node.input[0]] if node.input[0] else np.full(batches, longest)
    kinds, made = [value.type.tensor_type for value in body.output[first:]], []
    for batch in range(batches):
        states = [feeds[name][batch] for name in names[:first]]
        rows: list[Sequence[Any]] = []
        for step in range(int(lengths[batch])):
            places = [int(lengths[batch]) - 1 - step if back else step for back in backwards]
            elements = [array[batch, place] for array, place in zip(scanned, places, strict=True)]
            known = dict(zip((value.name for value in body.input), [*states, *elements], strict=True))
            answered = evaluate.run(None, {**outer, **known})
            states, rows = answered[:first], [*rows, answered[first:]]
        # What lies behind a batch's own length is zero.
        stacked = [np.stack(group) for group in zip(*rows, strict=True)] or [_nothing(kind) for kind in kinds]
        padded = [np.pad(a, [(0, longest - len(a))] + [(0, 0)] * (a.ndim - 1)) for a in stacked]
        made.append([*states, *padded])
    return [np.stack(group) for group in zip(*made, strict=True)]


def _orders(attributes: Mapping[str, Any], side: str, count: int) -> tuple[Sequence[int], Sequence[int]]:
    """Axis and direction of each scanned input or output."""
    axes, directions = (attributes.get(f"scan_{side}_{what}") or [0] * count for what in ("axes", "directions"))
    return list(axes), list(directions)


def _fed(i: int, tensor: HostTensor, options: Options) -> Array:
    """An operand as ONNX has it."""
    type = options["types"][options["inputs"][i]]
    dtype = dtype_of(type)
    shape = options["empty"].get(str(i))
    if shape is not None:
        return np.zeros(shape, dtype)
    if tensor.data is None:
        raise OpFailedError(Reason("a value", "none", options["op"], options["inputs"][i]))
    data = tensor.data.view(np.bool_) if dtype == np.bool_ and tensor.data.dtype == np.uint8 else tensor.data
    return data.reshape(()) if i in options["scalars"] else data


def _answer(result: Any, label: str) -> Array:
    """A result as NNAPI has it: a scalar is a vector of one element."""
    if isinstance(result, (list, dict)) or result is None:
        raise OpFailedError(Reason("a tensor as a result", type(result).__name__, label))
    array = np.asarray(result)
    if array.dtype.kind in "OUS":
        raise OpFailedError(Reason("a tensor of numbers as a result", str(array.dtype), label))
    return array.reshape(1) if array.ndim == 0 else array


@lru_cache(_KEPT_EVALUATORS)
def _evaluator(encoded: str, domain: str, opset: int, types: tuple[tuple[str, int], ...]) -> Any:
    """The evaluator of a graph that holds this node alone; what its subgraphs read from outside are inputs of the graph."""
    import onnx
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    node = onnx.NodeProto.FromString(base64.b64decode(encoded))
    if node.op_type == "Scatter":
        # The older name; the evaluator knows the newer one alone.
        node.op_type, opset = "ScatterElements", max(opset, 11)
    if node.op_type == "BatchNormalization":
        # Inference is the same since opset 7; the evaluator's older ones train or do not run.
        opset = max(opset, 14)
    inputs = [helper.make_tensor_value_info(name, type, None) for name, type in types]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([node], node.op_type, inputs, outputs)
    opsets = [helper.make_opsetid(domain, opset)]
    if domain:
        opsets.append(helper.make_opsetid("", onnx.defs.onnx_opset_version()))
    older = _older_operators() if not domain and opset < _FIRST_QUANTISED else None
    return ReferenceEvaluator(helper.make_model(graph, opset_imports=opsets), new_ops=older)


@lru_cache(1)
def _older_operators() -> list[Any]:
    """Quantisation as it was before opset 19, which later versions only added to and the evaluator knows no more."""
    from onnx.reference.ops import op_dequantize_linear, op_quantize_linear

    made = []
    for module, name in ((op_quantize_linear, "QuantizeLinear"), (op_dequantize_linear, "DequantizeLinear")):
        newest = max((n for n in vars(module) if n.startswith(f"{name}_")), key=lambda n: int(n.rsplit("_", 1)[1]))
        made.append(type(name, (getattr(module, newest),), {"op_domain": ""}))
    return made


def _cast(label: str, options: Options, feeds: Mapping[str, Array]) -> Sequence[Any]:
    """Cast; where a conversion asks for it, numbers that do not fit are refused."""
    if options.get("checked"):
        for name, array in feeds.items():
            bad = array[(array < -(2**31)) | (array >= 2**31)]
            if bad.size:
                raise OpFailedError(Reason("values that fit into 32 bits", str(bad[0]), label, name))
    return _evaluate(label, options, feeds)


_OWN = {"Cast": _cast, "Loop": _guarded(_loop), "Scan": _guarded(_scan)}
"""What is run in another way than the evaluator's."""


def _types() -> tuple[ExtensionOperandType, ...]:
    listed = [ExtensionOperandType(number, True, size, name, dtype) for number, (name, size, dtype) in ELEMENT_TYPES.items()]
    unsupported = ExtensionOperandType(UNSUPPORTED, True, 1, "UNSUPPORTED", None)
    return (*listed, unsupported, OPTIONS_TYPE)


_OPERATIONS = {number: HostOperation(name, run) for number, name in enumerate(("other", *OPERATORS), OTHER)}

HOST = HostExtension(EXTENSION, _types(), _OPERATIONS)
