"""Execution of the operations of ``ai.onnx``: nnbridge's host kernels, and the ``onnx`` package's reference evaluator.

The options of an operation hold its ``NodeProto``, the opset that defines its meaning, and what NNAPI's operands do not
state: which of them are scalars, empty, or of ONNX's boolean type. A node is prepared once; preparing and running are apart.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any, TypeAlias

import numpy as np

from nnbridge.errors import OpFailedError, Reason, first_line, pass_shortage
from nnbridge.extensions import (
    OPTIONS_TYPE,
    Arg,
    Dims,
    ExtensionOperandType,
    HostExtension,
    HostOperation,
    PreparedHostKernel,
)
from nnbridge.model import Array
from nnbridge.records import dataclass
from nnbridge_onnx.declaration import ML, REGISTRY
from nnbridge_onnx.host.bodies import Body, RunNode, can_prepare
from nnbridge_onnx.host.bounds import RULES, BoundOperands, check
from nnbridge_onnx.host.extension import EXTENSION, HELD, OTHER, UNSUPPORTED, options_of
from nnbridge_onnx.host.halves import Rounding
from nnbridge_onnx.host.messages import codec, decode, encode
from nnbridge_onnx.host.runtime import HostedNode
from nnbridge_onnx.read.graph import ELEMENT_TYPES, MESSAGES, Node, attribute_values, dtype_of

Options: TypeAlias = Mapping[str, Any]
RunBody: TypeAlias = "Callable[[Mapping[str, Any]], Sequence[Any]]"
"""From values by name to the outputs of a body."""
_FIRST_QUANTISED = 19
"""The oldest opset of QuantizeLinear and DequantizeLinear that the evaluator knows."""
_EARLY = {"LayerNormalization": 17, "RMSNormalization": 23}
"""Operators that ONNX Runtime writes into files before ONNX has them, and the opset that defines them."""


class HostNode:
    """A node that is prepared to run: its ``NodeProto``, attributes, and the evaluator of a graph that holds only it."""

    def __init__(self, options: Options) -> None:
        import onnx

        self.domain = str(options["domain"])
        self.version = max(int(options["opset"]), 0 if self.domain else _EARLY.get(options["op"], 0))
        self.proto = onnx.NodeProto.FromString(base64.b64decode(options["node"]))
        self.label = _label(options, self.proto.name)
        self.checked = bool(options.get("checked"))
        """True if numbers that do not fit are refused (casts that the conversion inserts)."""
        self.definition = REGISTRY.get(f"{self.domain}.{options['op']}" if self.domain else options["op"])
        self.attributes = attribute_values(self.proto)
        self._rules = RULES.get(f"{self.domain}.{self.proto.op_type}" if self.domain else self.proto.op_type, ())
        self._rounding = None if self.domain else Rounding(self.proto, self.version)
        self.types = dict(options["types"]) if self._rounding is None else self._rounding.types(options["types"])
        """The types of what kernels and evaluator read: numbers of 16 bits come as float32."""
        self.constants: dict[str, Any] = {}
        """Inputs that are the same in each run."""
        self._prepared: dict[Any, Any] = {}

    def prepared(self, key: object, prepare: Callable[[], Any]) -> Any:
        """The data that a kernel needs at each run, prepared once for each key."""
        if key not in self._prepared:
            self._prepared[key] = prepare()
        return self._prepared[key]

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Any]:
        """The outputs, by a kernel of our own where there is one for this form, by the evaluator, or by ONNX Runtime.

        Operators of ``ai.onnx.ml``, whose text leaves types and ties open, are ONNX Runtime's where it has them.
        """
        with _guarded(self.label), np.errstate(all="ignore"):
            refused: OpFailedError | None = None
            if self.domain == ML and HostedNode.installed():
                self._check(feeds)
                try:
                    return self.prepared("runtime", self._in_runtime).run(feeds, None)
                except OpFailedError as error:
                    refused = error
            try:
                return self._compute(feeds) if self._rounding is None else self._rounding.run(self._compute, feeds)
            except OpFailedError:
                raise
            except Exception as error:
                pass_shortage(error)
                if refused is not None:
                    raise refused from error
                if _is_of_values(error):  # A kernel in C++ might not look.
                    raise
                return self.prepared("runtime", self._in_runtime).run(feeds, error)

    def _in_runtime(self) -> HostedNode:
        return HostedNode(self.proto, {self.domain: self.version}, self.constants, self.label)

    def _check(self, feeds: Mapping[str, Array]) -> None:
        if self._rules:
            check(self._rules, BoundOperands(self.proto.input, feeds, self.attributes), self.label)

    def _compute(self, feeds: Mapping[str, Array]) -> Sequence[Any]:
        self._check(feeds)
        kernel = None if self.definition is None or self.domain else self.definition.kernel
        results = None if kernel is None else kernel(HostCall(self, feeds))
        return self.evaluate(feeds) if results is None else results

    def evaluate(self, feeds: Mapping[str, Array]) -> Sequence[Any]:
        """The outputs by the evaluator."""
        prepared = self.prepared("evaluator", lambda: evaluator(self.proto, self.domain, self.version, self.types))
        results: Sequence[Any] = prepared.run(None, dict(feeds))
        return results

    def body(self, outer: Sequence[str], name: str = "body") -> RunBody:
        """One of the node's bodies, a function of its inputs and values from outside by name."""
        return self.prepared((name, *outer), lambda: self._body(outer, name))

    def _body(self, outer: Sequence[str], name: str) -> RunBody:
        if can_prepare(self.attributes[name]):
            return Body(self.attributes[name], self.version, of_body).run
        import onnx
        from onnx import helper
        from onnx.reference import ReferenceEvaluator

        body = onnx.GraphProto()
        body.CopyFrom(self.attributes[name])
        body.input.extend(onnx.ValueInfoProto(name=name) for name in outer)
        model = helper.make_model(body, opset_imports=[helper.make_opsetid("", self.version)])
        return partial(ReferenceEvaluator(model, new_ops=_replaced_operators(self.version)).run, None)


def _is_of_values(error: Exception) -> bool:
    """True for errors of values that no kernel can use: indexes beyond an axis, a division by zero."""
    of_indexes = isinstance(error, IndexError) and not isinstance(error, np.exceptions.AxisError)
    return isinstance(error, ZeroDivisionError) or (of_indexes and "out of bounds" in str(error))


def of_body(proto: Any, version: int) -> RunNode:
    """The function that runs a ``NodeProto`` of ONNX's own operators in a body."""
    encoded = base64.b64encode(proto.SerializeToString()).decode()
    return HostNode({"domain": "", "opset": version, "op": proto.op_type, "types": {}, "node": encoded}).run


@dataclass(frozen=True)
class HostCall:
    """One run of a node, as a host kernel sees it.

    A kernel returns the outputs, or None for a form that it does not know; then the evaluator runs. It may raise what NumPy
    raises: the host reports that the operands do not fit.
    """

    node: HostNode
    feeds: Mapping[str, Array]
    """Every value that the node or its subgraphs read, by name."""

    @property
    def version(self) -> int:
        """The opset."""
        return self.node.version

    @property
    def outputs(self) -> int:
        """The number of listed outputs."""
        return len(self.node.proto.output)

    def input(self, i: int) -> Array:
        """An input that must be there."""
        found = self.optional(i)
        if found is None:
            raise ValueError(f"input {i} is missing")
        return found

    def optional(self, i: int) -> Array | None:
        """An input, None where it is omitted."""
        names = self.node.proto.input
        return self.feeds[names[i]] if i < len(names) and names[i] else None

    def option(self, name: str, default: Any = None) -> Any:
        """An attribute: the file's value, else the declared default, else ``default``."""
        assert self.node.definition is not None
        return self.node.definition.value(self.node.attributes, name, default)


@contextmanager
def _guarded(label: str) -> Iterator[None]:
    """The evaluator raises whatever its operators do; each of these means that the operator cannot be computed so."""
    try:
        yield
    except OpFailedError:
        raise
    except ImportError as error:
        raise OpFailedError(Reason("an installed package", str(error), label)) from error
    except Exception as error:
        pass_shortage(error)
        raise OpFailedError(Reason("operands that fit the operator", first_line(error), label)) from error


def _label(options: Options, name: str = "") -> str:
    """A node in messages: its operator and name."""
    return f"{options['domain'] or EXTENSION}.{options['op']}" + (f" '{name}'" if name else "")


def evaluator(proto: Any, domain: str, opset: int, types: Mapping[str, int]) -> Any:
    """The ``onnx`` package's evaluator of a graph that holds only one node, and reads values of these types."""
    import onnx
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    node = onnx.NodeProto()
    node.CopyFrom(proto)
    if node.op_type == "Scatter":
        # The older name; the evaluator knows the newer one only.
        node.op_type, opset = "ScatterElements", max(opset, 11)
    if node.op_type == "GridSample":
        # Older names of the ways to interpolate.
        for attribute in node.attribute:
            if attribute.name == "mode":
                attribute.s = {b"bilinear": b"linear", b"bicubic": b"cubic"}.get(attribute.s, attribute.s)
    if node.op_type == "BatchNormalization":
        # Inference is the same since opset 7; the evaluator's older ones train or do not run.
        opset = max(opset, 14)
    inputs = [helper.make_tensor_value_info(name, type, None) for name, type in types.items()]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([node], node.op_type, inputs, outputs)
    opsets = [helper.make_opsetid(domain, opset)]
    if domain:
        opsets.append(helper.make_opsetid("", onnx.defs.onnx_opset_version()))
    replaced = [_normalizer()] if domain else _replaced_operators(opset)
    return ReferenceEvaluator(helper.make_model(graph, opset_imports=opsets), new_ops=replaced)


def _replaced_operators(opset: int) -> list[Any]:
    """Operators of which the evaluator has no version, or another one than its own tests expect."""
    return [_optional(), *(_older_operators() if opset < _FIRST_QUANTISED else ())]


@lru_cache(1)
def _optional() -> Any:
    """An optional is its value or None; the evaluator's Optional makes a list, which OptionalGetElement does not open."""
    from onnx.reference.op_run import OpRun

    return type("Optional", (OpRun,), {"op_domain": "", "_run": lambda self, x=None, type=None: (x,)})


@lru_cache(1)
def _normalizer() -> Any:
    """ONNX divides by the largest value of a row; the evaluator by the largest magnitude."""
    from onnx.reference.ops.aionnxml.op_normalizer import Normalizer

    def run(self: Any, x: Array, norm: str | None = None) -> tuple[Array]:
        if norm != "MAX":
            found: tuple[Array] = Normalizer._run(self, x, norm)
            return found
        most = x.max(axis=-1, keepdims=True)
        return (x / np.where(most == 0, x.dtype.type(1), most),)

    return type("Normalizer", (Normalizer,), {"op_domain": "ai.onnx.ml", "_run": run})


@lru_cache(1)
def _older_operators() -> list[Any]:
    """Quantisation as it was before opset 19, which later versions only extended and the evaluator no longer supports."""
    from onnx.reference.ops import op_dequantize_linear, op_quantize_linear

    found = []
    for module, name in ((op_quantize_linear, "QuantizeLinear"), (op_dequantize_linear, "DequantizeLinear")):
        newest = max((n for n in vars(module) if n.startswith(f"{name}_")), key=lambda n: int(n.rsplit("_", 1)[1]))
        found.append(type(name, (getattr(module, newest),), {"op_domain": ""}))
    return found


# -- operations of the extension -------------------------------------------------------------------------------------------


def _node_of(options: Options) -> HostNode:
    with _guarded(_label(options)):
        return HostNode(options)


def run_node(node: Node, arrays: Mapping[str, Array], types: Mapping[str, int]) -> Sequence[Array]:
    """Run a node on what its inputs are called; OP_FAILED if it cannot be computed."""
    return [np.asarray(result) for result in _node_of(options_of(node, types)).run(arrays)]


def prepare(inputs: Sequence[Arg], outputs: Sequence[Arg], options: Options) -> PreparedHostKernel:
    """The function that runs one operation on its operands, captured values among them. Their shapes do not matter."""
    if "refused" in options:
        raise OpFailedError(Reason(HELD, options["refused"], _label(options)))
    node, names = _node_of(options), options["inputs"]
    label = node.label
    dtypes = [dtype_of(options["types"][name]) if name else None for name in names]
    read = [options["types"][name] if name else 0 for name in names]
    written = options.get("written") or [0] * len(outputs)
    empty = {int(i): np.zeros(shape, dtypes[int(i)]) for i, shape in options["empty"].items()}

    def operand(i: int, data: Array | None) -> Any:
        """An operand as ONNX has it."""
        if i in empty:
            return empty[i]
        if data is None:
            raise OpFailedError(Reason("a value", "none", options["op"], names[i]))
        if read[i] in MESSAGES:
            return decode(data, read[i], names[i])
        data = data.view(np.bool_) if dtypes[i] == np.bool_ and data.dtype == np.uint8 else data
        return data.reshape(()) if i in options["scalars"] else data

    known = [(i, name, x.value) for i, (name, x) in enumerate(zip(names, inputs, strict=False)) if name and x.value is not None]
    node.constants = {name: operand(i, data) for i, name, data in known}

    def run(arrays: Sequence[Array | None]) -> Sequence[Array]:
        feeds = {name: operand(i, data) for i, (name, data) in enumerate(zip(names, arrays, strict=True)) if name}
        return [_result(result, number, label) for result, number in zip(node.run(feeds), written, strict=True)]

    preparing = None if node.definition is None or node.domain else node.definition.preparing
    try:
        stated = None if preparing is None else preparing(node, names, inputs, outputs, run)
    except (ValueError, IndexError):  # Operands that do not fit: the run says why.
        stated = None
    return stated or run


def _result(result: Any, number: int, label: str) -> Array:
    """A result as NNAPI has it: a scalar is a vector of one element, what is not a tensor of numbers a message."""
    if number in MESSAGES:
        with _guarded(label):
            return encode(result, number)
    if isinstance(result, (list, dict)) or result is None:
        raise OpFailedError(Reason("a tensor as a result", type(result).__name__, label))
    array = np.asarray(result)
    if array.dtype.kind in "OUS":
        raise OpFailedError(Reason("a tensor of numbers as a result", str(array.dtype), label))
    return array.reshape(1) if array.ndim == 0 else array


def _work(options: Mapping[str, Any]) -> Callable[[Dims, Dims], int] | None:
    """The counter of multiply-adds of the operator that options name; None for one that has none."""
    name, domain = options.get("op"), options.get("domain")
    definition = REGISTRY.get(f"{domain}.{name}" if domain else str(name))
    return None if definition is None or definition.work is None else definition.work.of([one.name for one in definition.inputs])


def host_extension() -> HostExtension:
    """The extension with all declared operators."""
    types = [ExtensionOperandType(n, True, size, name, dtype, codec(n)) for n, (name, size, dtype) in ELEMENT_TYPES.items()]
    types += [ExtensionOperandType(UNSUPPORTED, True, 1, "UNSUPPORTED", None), OPTIONS_TYPE]
    operations = {
        definition.number: HostOperation(definition.name, prepare=prepare, work=_work)
        for definition in REGISTRY
        if definition.number
    }
    return HostExtension(EXTENSION, tuple(types), {OTHER: HostOperation("other", prepare=prepare, work=_work), **operations})
