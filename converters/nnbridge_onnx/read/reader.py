"""Reading an ONNX file through the ``onnx`` package: nodes, constants and inferred shapes as plain data.

Nothing of the model is run. External data is mapped, and may only lie in the model's own folder.
"""

from __future__ import annotations

import itertools
import math
import mmap
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np

from nnbridge.converters import ConversionOptions
from nnbridge.errors import ConversionError, NnbridgeError, PackageError, Reason, Stage, cannot_read, first_line, pass_shortage
from nnbridge.model import Array
from nnbridge.reading import open_file, read_file
from nnbridge_onnx import native
from nnbridge_onnx.passes import FILE_PASSES, FileContext, opset_of
from nnbridge_onnx.passes.inline import check_nodes
from nnbridge_onnx.passes.loading import not_loaded
from nnbridge_onnx.passes.shape_inference import infer_shapes
from nnbridge_onnx.read.graph import (
    FLOAT,
    MAP,
    OPTIONAL,
    SEQUENCE,
    STRING,
    Graph,
    Node,
    Tensor,
    dtype_of,
    free_names,
    subgraphs,
    type_name,
)
from nnbridge_onnx.read.repair import has_type, repair, unchecked
from nnbridge_onnx.weights import INSIDE

_TERM = rb"[A-Za-z ]*(?:\.\.\.[A-Za-z ]*)?"
_NUMBERS = {
    **{("TfIdfVectorizer", name): (1, 2**16) for name in ("min_gram_length", "max_gram_length")},
    ("TfIdfVectorizer", "max_skip_count"): (0, 2**12),
}
"""(operator, attribute) -> the numbers that the onnx package can do with.

Its evaluator tries every number of items to skip, however short the rows.
"""
_EQUATION = re.compile(rb"%(term)s(?:,%(term)s)*(?:->%(term)s)?" % {b"term": _TERM})
_OVERRIDABLE_IR = 4
"""Constants that are inputs too can be replaced from this IR version on; before it, all constants are inputs."""
_OTHERS = {
    "sequence_type": Tensor(SEQUENCE),
    "optional_type": Tensor(OPTIONAL),
    "map_type": Tensor(MAP),
    "sparse_tensor_type": Tensor(0, instead="a sparse tensor"),
}
"""Kinds of values that are no tensors."""


def read(path: Path, options: ConversionOptions) -> Graph:
    """The file as data; ConversionError for whatever is wrong with it."""
    onnx, source = _onnx(path), str(path)
    with native.checking(path) as check:
        model = _parsed(onnx, path)
        _check_versions(onnx, model, source)
        with _refusing(onnx, source, stage=Stage.LOADING):
            checked = _checked(onnx, model, source, check)
    size = _size(model, path.parent)
    with _refusing(onnx, source):
        check_nodes(checked, source, size)
        refused, without_kernel = not_loaded(onnx, model, checked)
    try:
        graph = _graph(onnx, checked, FileContext(onnx, options, source, size), path.parent, {})
    except ConversionError as error:
        if refused is None:
            raise
        raise type(error)(replace(refused, rule=f"a file that ONNX Runtime loads, with {refused.rule}", file=source)) from error
    return replace(graph, refused=refused, without_kernel=without_kernel, ir_version=int(model.ir_version))


def graph_of(
    model: Any, options: ConversionOptions, source: str, weights: Mapping[str, Array] | None = None, *, checked: bool = False
) -> Graph:
    """A ``ModelProto`` without external data as data.

    ``weights``: values of the constants, of which large ones need no data in a model that a runtime has checked already.
    ``checked``: the nodes are a file's, with whose graph the checker has seen its bodies, and theirs.
    """
    onnx = _onnx(source)
    _check_versions(onnx, model, source)
    if weights is None and not checked:
        with _refusing(onnx, source):
            model = _checked(onnx, model, source, None)
    size = model.ByteSize() + sum(array.nbytes for array in (weights or {}).values())
    return _graph(onnx, model, FileContext(onnx, options, source, size), None, weights or {})


def _parsed(onnx: Any, path: Path) -> Any:
    try:
        return onnx.load_model_from_string(read_file(path))
    except OSError as error:
        raise ConversionError(Reason("a readable ONNX file", cannot_read(error), str(path))) from error
    except Exception as error:
        pass_shortage(error)
        # protobuf's own errors: DecodeError, and RecursionError for messages within messages.
        raise ConversionError(Reason("an ONNX model", first_line(error), file=str(path))) from error


def _graph(onnx: Any, model: Any, file: FileContext, folder: Path | None, weights: Mapping[str, Array]) -> Graph:
    """A checked model as data. ``folder`` is where external data lies."""
    with _refusing(onnx, file.source):
        for run in FILE_PASSES:
            model = run(model, file)
        constants = {tensor.name for tensor in model.graph.initializer} if model.ir_version >= _OVERRIDABLE_IR else set()
        overridable = frozenset(value.name for value in model.graph.input if value.name in constants)
        reader = _ModelReader(onnx, file.source, folder, weights)
        graph = infer_shapes(onnx, model, reader, loops=file.options.mapping == "wide")
        return replace(graph, origins=file.origins, overridable=overridable, loops=_has_loops(model.graph.node), size=file.size)


def _size(model: Any, folder: Path) -> int:
    """Bytes of a model and of the files of its folder that hold constants."""
    entries = (entry for tensor in model.graph.initializer for entry in tensor.external_data if entry.key == "location")
    size: int = model.ByteSize()
    for name in {entry.value for entry in entries}:
        with suppress(OSError, ValueError, RuntimeError):  # a name that no file can have
            path = (folder / name).resolve()
            size += path.stat().st_size if folder.resolve() in path.parents else 0
    return size


@contextmanager
def _refusing(onnx: Any, source: str, stage: Stage | None = None) -> Iterator[None]:
    """ConversionError for what is wrong with a model. ``stage``: of the checker, which ONNX Runtime asks as well."""
    try:
        yield
    except NnbridgeError:
        raise
    except (
        ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError, MemoryError, RecursionError, RuntimeError,
        onnx.checker.ValidationError, onnx.shape_inference.InferenceError,
    ) as error:  # fmt: skip
        pass_shortage(error)
        rule = "a valid ONNX model" if stage is None else "a file that ONNX Runtime loads"
        raise ConversionError(Reason(rule, first_line(error), file=source, stage=stage)) from error


def _checked(onnx: Any, model: Any, source: str, check: native.Check | None) -> Any:
    """The model as the onnx package's checker accepts it; ``check``: the one of its file, which has what lies beside it."""
    for nodes in (model.graph.node, *(function.node for function in model.functions)):
        _check_attributes(nodes, source)
    repaired = repair(onnx, model, source)
    values = (*repaired.graph.input, *repaired.graph.output)
    hidden = unchecked(repaired)
    if check is not None and repaired is model and not hidden and all(map(_has_shape, values)):
        check.wait(onnx, model)
    else:
        with _described(repaired), _hidden(repaired, hidden):
            native.check_model(onnx, repaired, Path("/") if check is None else check.folder)
    # What inference reads is checked before: of values that nothing makes it has no types.
    return repaired if all(map(_has_shape, repaired.graph.output)) else _typed(onnx, repaired)


def _check_attributes(nodes: Iterable[Any], source: str) -> None:
    """ConversionError for attributes that the onnx package's shape inference reads without end, or beyond its memory."""
    for node in nodes:
        standard = node.domain in ("", "ai.onnx")
        for attribute in node.attribute:
            broken = _broken_rule(node, attribute) if standard else None
            if broken is not None:
                raise ConversionError(Reason(*broken, source, node.name or (node.output[0] if node.output else "")))
            for graph in subgraphs(attribute):
                _check_attributes(graph.node, source)


def _broken_rule(node: Any, attribute: Any) -> tuple[str, str] | None:
    """A rule that an attribute breaks, and what was found."""
    name, value = (node.op_type, attribute.name), attribute.i
    if name == ("Einsum", "equation") and not _EQUATION.fullmatch(attribute.s):
        rule = "an equation of letters, commas, '...' once for each operand, and '->'"
        return rule, attribute.s.decode(errors="backslashreplace")[:200]
    low, high = (len(node.output),) * 2 if name == ("Split", "num_outputs") else _NUMBERS.get(name, (value, value))
    if low <= value <= high:
        return None
    between = f"of {low}" if low == high else f"from {low} to {high}"
    return f"{attribute.name} {between}", str(value)


def _has_loops(nodes: Iterable[Any]) -> bool:
    bodies = (graph for node in nodes for attribute in node.attribute for graph in subgraphs(attribute))
    return any(node.op_type in ("Loop", "Scan") for node in nodes) or any(_has_loops(graph.node) for graph in bodies)


def _onnx(source: object) -> Any:
    try:
        native.NATIVE.start()
        import onnx
    except ImportError as error:
        raise PackageError.needed("the onnx package", "onnx", error, file=str(source)) from error
    return onnx


def _check_versions(onnx: Any, model: Any, source: str) -> None:
    if not 0 <= model.ir_version <= onnx.IR_VERSION:
        raise ConversionError(Reason(f"an IR version of at most {onnx.IR_VERSION}", str(model.ir_version), file=source))
    opset, newest = opset_of(model), onnx.defs.onnx_opset_version()
    if opset is not None and opset > newest:
        raise ConversionError(Reason(f"an opset of {newest} at most", str(opset), file=source))


def _typed(onnx: Any, model: Any) -> Any:
    """The model with the types that inference finds of outputs that state none."""
    typed = onnx.ModelProto()
    typed.CopyFrom(model)
    inferred = native.infer_shapes(onnx, typed).graph
    found = {value.name: value.type for value in (*inferred.value_info, *inferred.output, *inferred.input)}
    for value in typed.graph.output:
        if not _has_shape(value) and value.name in found:
            value.type.CopyFrom(found[value.name])
    return typed


@contextmanager
def _described(model: Any) -> Iterator[None]:
    """Outputs whose type or shape only later passes find, and inputs of any shape, are scalars for the checker."""
    graph = model.graph
    open_values = [v for v in graph.output if not _has_shape(v)] + [v for v in graph.input if has_type(v) and not _has_shape(v)]
    types = [type(value.type).FromString(value.type.SerializeToString()) for value in open_values]
    for value in open_values:
        tensor = value.type.tensor_type
        tensor.elem_type = tensor.elem_type or FLOAT
        tensor.shape.SetInParent()
    try:
        yield
    finally:
        for value, found in zip(open_values, types, strict=True):
            value.type.CopyFrom(found)


_HIDDEN = "nnbridge.unchecked"


@contextmanager
def _hidden(model: Any, nodes: Sequence[Any]) -> Iterator[None]:
    """Nodes of which the checker knows nothing: those of another domain."""
    domains = [node.domain for node in nodes]
    for node in nodes:
        node.domain = _HIDDEN
    if nodes:
        model.opset_import.add(domain=_HIDDEN, version=1)
    try:
        yield
    finally:
        for node, domain in zip(nodes, domains, strict=True):
            node.domain = domain
        if nodes:
            del model.opset_import[-1]


def _has_shape(value: Any) -> bool:
    """True for a value with a type and, if it is a tensor, a shape."""
    return has_type(value) and (not value.type.HasField("tensor_type") or value.type.tensor_type.HasField("shape"))


class _ModelReader:
    """One model being read."""

    def __init__(self, onnx: Any, source: str, folder: Path | None, weights: Mapping[str, Array]) -> None:
        self._onnx = onnx
        self._source = source
        self._folder = folder
        self._mapped: dict[Path, Array] = {}
        self._read: dict[str, Array] = dict(weights)
        self._opsets: dict[str, int] = {}
        self._nodes: tuple[Node, ...] = ()
        self._elsewhere: frozenset[str] = frozenset()

    def read_nodes(self, model: Any, weights: Mapping[str, Any]) -> None:
        """Read the nodes of a model, and its constants, which are ``weights``."""
        self._opsets = {("" if e.domain == "ai.onnx" else e.domain): int(e.version) for e in model.opset_import}
        self._read.update({name: self._array(tensor) for name, tensor in weights.items() if name not in self._read})
        elsewhere = self._onnx.TensorProto.EXTERNAL
        self._elsewhere = frozenset(
            name
            for name, tensor in weights.items()
            if tensor.data_location == elsewhere and all(entry.key != INSIDE for entry in tensor.external_data)
        )
        self._nodes = tuple([self._node(index, proto) for index, proto in enumerate(model.graph.node)])
        self._check_names([*itertools.chain.from_iterable(map(_names_of, self._nodes))])

    def graph(self, model: Any) -> Graph:
        """A model, whose nodes and constants were read, as data."""
        graph, constants = model.graph, dict(self._read)
        tensors = {v.name: self._tensor(v.type) for v in (*graph.input, *graph.value_info, *graph.output)}
        for name, array in constants.items():
            tensors[name] = Tensor(self._type_of(array), array.shape)
        inputs = tuple(value.name for value in graph.input if value.name not in constants)
        outputs = tuple(value.name for value in graph.output)
        self._check_names([*tensors, *inputs, *outputs])
        name = graph.name if self._folder is None else Path(self._source).stem
        return Graph(name, self._opsets, inputs, outputs, self._nodes, constants, tensors, self._elsewhere)

    def _check_names(self, names: Sequence[object]) -> None:
        """The onnx package returns bytes for what is no UTF-8."""
        if set(map(type, names)) <= {str}:
            return
        wrong = next(name for name in names if not isinstance(name, str))
        self._fail("names in UTF-8", repr(wrong)[:80])

    def _fail(self, rule: str, found: object, place: str = "") -> NoReturn:
        raise ConversionError(Reason(rule, str(found), self._source, place))

    def _tensor(self, type: Any) -> Tensor:
        if not type.HasField("tensor_type"):
            return _OTHERS.get(type.WhichOneof("value"), Tensor(0, instead="a value of no type"))
        kind = type.tensor_type
        element, instead = int(kind.elem_type), ""
        if element != STRING and dtype_of(element) is None:
            instead, element = type_name(element), 0
        if not kind.HasField("shape"):
            return Tensor(element, None, instead)
        dims = tuple([int(d.dim_value) if d.HasField("dim_value") else -1 for d in kind.shape.dim])
        if min(dims, default=0) < -1:
            self._fail("dimensions of at least 0, or -1 for open ones", list(dims))
        return Tensor(element, dims, instead)

    def _type_of(self, array: Array) -> int:
        if array.dtype.kind in "OUS":
            return STRING
        known = int(self._onnx.helper.np_dtype_to_tensor_dtype(array.dtype))
        return known if dtype_of(known) is not None else 0

    def _node(self, index: int, proto: Any) -> Node:
        helper, constants = self._onnx.helper, self._onnx.AttributeProto
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        attributes = {}
        captured: dict[str, None] = {}
        for attribute in proto.attribute:
            if attribute.type in (constants.GRAPH, constants.GRAPHS):
                for graph in subgraphs(attribute):
                    captured.update(dict.fromkeys(free_names(graph)))
            else:
                attributes[attribute.name] = self._attribute(helper.get_attribute_value(attribute))
        return Node(
            index, proto.op_type, proto.name, domain, self._opsets.get(domain, 1), tuple(proto.input), tuple(proto.output),
            attributes, proto, tuple(captured),
        )  # fmt: skip

    def _attribute(self, value: Any) -> Any:
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        if isinstance(value, self._onnx.TensorProto):
            return self._array(value)
        listed = isinstance(value, (list, tuple)) or hasattr(value, "append")
        return [self._attribute(v) if isinstance(v, bytes) else v for v in value] if listed else value

    def _array(self, tensor: Any) -> Array:
        if any(d < 0 for d in tensor.dims):
            self._fail("dimensions of at least 0", list(tensor.dims), tensor.name)
        if tensor.data_location == self._onnx.TensorProto.EXTERNAL:
            return self._external(tensor)
        try:
            return np.asarray(self._onnx.numpy_helper.to_array(tensor))
        except (ValueError, TypeError, KeyError) as error:
            self._fail("a constant that NumPy can hold", first_line(error), tensor.name)

    def _external(self, tensor: Any) -> Array:
        """A constant in another file of the model's folder, seen through a mapping of that file."""
        entries: Mapping[str, str] = {entry.key: entry.value for entry in tensor.external_data}
        place = f"constant '{tensor.name}'"
        if self._folder is None:
            self._fail("constants inside the model", "external data", place)
        folder = self._folder.resolve()
        try:
            path = (folder / entries.get("location", "")).resolve()
            inside = folder in path.parents and path.is_file()
        except (ValueError, OSError, RuntimeError):  # a name that no file can have
            inside = False
        if not inside:
            self._fail("external data in a file of the model's folder", entries.get("location", ""), place)
        dtype = dtype_of(int(tensor.data_type))
        if dtype is None:
            self._fail("external data of a number type", tensor.data_type, place)
        try:
            offset = int(entries.get("offset", 0))
            count = math.prod(int(d) for d in tensor.dims)
            length = int(entries.get("length", count * dtype.itemsize))
        except ValueError as error:
            self._fail("whole numbers as offset and length", first_line(error), place)
        if path not in self._mapped:
            with self._opened(path, place) as file:
                size = path.stat().st_size
                self._mapped[path] = np.frombuffer(
                    mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b"", np.uint8
                )
        data = self._mapped[path]
        if offset < 0 or length != count * dtype.itemsize or offset + length > len(data):
            self._fail(f"{count * dtype.itemsize} bytes inside the file's {len(data)}", f"{offset}+{length}", place)
        return data[offset : offset + length].view(dtype).reshape(tuple(tensor.dims))

    def _opened(self, path: Path, place: str) -> IO[bytes]:
        """A file of external data."""
        try:
            return open_file(path)
        except OSError as error:
            self._fail("external data that can be read", cannot_read(error), place)


def _names_of(node: Node) -> tuple[str, ...]:
    return (node.type, node.name, node.domain, *node.inputs, *node.outputs, *node.captured, *node.attributes)
