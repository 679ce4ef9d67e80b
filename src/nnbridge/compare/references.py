"""Reference runtimes that answers are compared with; each is imported when it is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from nnbridge.compare.arrays import Array
from nnbridge.compare.samples import Reference
from nnbridge.converters import converter_for
from nnbridge.errors import InputError, Reason
from nnbridge.loading import is_saved

RESOURCES = ("CALL_ONCE", "MULTINOMIAL", "RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM", "VAR_HANDLE")
"""Operators with state that outlives LiteRT's reset: variables, positions in streams of random numbers."""


def _summary(error: Exception) -> str:
    """The first line of a runtime's message that says something; the last one is often a mere "failed"."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


class LiteRT:
    """LiteRT (TFLite) with its reference kernels, on one thread."""

    name = "litert"

    def __init__(self, path: Path, signature: str = "", kernels: str = "reference") -> None:
        try:
            from ai_edge_litert.interpreter import Interpreter, OpResolverType
        except ImportError as error:
            raise InputError(Reason("LiteRT (pip install ai-edge-litert)", str(error), operand="--reference")) from error
        resolver = {"reference": OpResolverType.BUILTIN_REF, "optimised": OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES}
        self._signature = signature
        self._make = partial(Interpreter, str(path), experimental_op_resolver_type=resolver[kernels], num_threads=1)
        try:
            try:
                self._open()
            except ValueError:
                # A few operators have no reference kernel of their own.
                self._make = partial(Interpreter, str(path), experimental_op_resolver_type=resolver["optimised"], num_threads=1)
                self._open()
        except (ValueError, RuntimeError) as error:
            raise InputError(Reason("a model that LiteRT runs", _summary(error), operand=str(path))) from error

    def _open(self) -> None:
        self._interpreter = self._make()
        self._interpreter.allocate_tensors()
        self._runner = self._interpreter.get_signature_runner(self._signature) if self._signature else None

    def reset(self) -> None:
        """Reset variable tensors; resource variables need a new interpreter, as LiteRT cannot reset them."""
        if any(operator["op_name"] in RESOURCES for operator in self._interpreter._get_ops_details()):
            self._open()
        self._interpreter.reset_all_variables()

    def run(self, inputs: Mapping[str, Array]) -> Sequence[Array] | Mapping[str, Array]:
        """Outputs in the file's order, those of a signature by name; inputs in the file's order or by name."""
        try:
            return self._outputs(inputs)
        except (ValueError, RuntimeError, TypeError, KeyError) as error:
            raise InputError(Reason("inputs that LiteRT runs", _summary(error), operand="--reference litert")) from error

    def _outputs(self, inputs: Mapping[str, Array]) -> Sequence[Array] | Mapping[str, Array]:
        if self._runner is not None:
            outputs: Mapping[str, Array] = self._runner(**inputs)
            return {name: np.array(value) for name, value in outputs.items()}
        interpreter = self._interpreter
        details = interpreter.get_input_details()
        resized = False
        for detail, value in zip(details, inputs.values(), strict=True):
            if tuple(detail["shape"]) != value.shape:
                interpreter.resize_tensor_input(detail["index"], value.shape)
                resized = True
        if resized:
            interpreter.allocate_tensors()
        for detail, value in zip(details, inputs.values(), strict=True):
            interpreter.set_tensor(detail["index"], value)
        interpreter.invoke()
        return [np.array(interpreter.get_tensor(d["index"])) for d in interpreter.get_output_details()]


class OnnxRuntime:
    """ONNX Runtime's CPU provider on one thread.

    ``as_written`` runs the file's own operators: for quantised files ONNX Runtime has fused ones that approximate some of them.
    """

    name = "onnxruntime"

    def __init__(self, path: Path, signature: str = "", *, as_written: bool = False) -> None:
        if signature:
            raise InputError(Reason("no signature: ONNX files have none", signature, operand="--signature"))
        try:
            import onnxruntime
        except ImportError as error:
            raise InputError(Reason("ONNX Runtime (pip install onnxruntime)", str(error), operand="--reference")) from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 4  # what fails is raised as well
        if as_written:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise InputError(Reason("a model that ONNX Runtime runs", _summary(error), operand=str(path))) from error

    def reset(self) -> None:
        """ONNX models have no state."""

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Outputs in the file's order."""
        try:
            return [np.asarray(output) for output in self._session.run(None, self._typed(inputs))]
        except Exception as error:
            # ONNX Runtime's errors have no common class of their own.
            raise InputError(
                Reason("inputs that ONNX Runtime runs", _summary(error), operand="--reference onnxruntime")
            ) from error

    def _typed(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Inputs with ONNX's scalars, which are vectors of one element in NNAPI, and float64 where it was narrowed."""
        declared = {i.name: i for i in self._session.get_inputs()}
        scalars = {name for name, i in declared.items() if i.shape == []}
        doubles = {name for name, i in declared.items() if i.type == "tensor(double)"}
        typed = {name: value.astype(np.float64) if name in doubles else value for name, value in inputs.items()}
        return {name: value.reshape(()) if name in scalars else value for name, value in typed.items()}


FORMATS = {"litert": "tflite", "onnxruntime": "onnx"}
"""Name on the command line → the converter of the files that the reference reads."""
REFERENCES = {"litert": LiteRT, "onnxruntime": OnnxRuntime}
"""Name on the command line → reference."""


def reference(name: str, path: Path, signature: str = "") -> Reference:
    """A reference runtime by name for a model file, and maybe one signature of it."""
    if name not in REFERENCES:
        raise InputError(Reason(f"{', '.join(REFERENCES)} or a file ending in .npz", repr(name), operand="--reference"))
    form = "saved" if is_saved(path) else converter_for(path).name
    if form != FORMATS[name]:
        known = [reference for reference, read in FORMATS.items() if read == form]
        rule = f"{', '.join([*known, 'FILE.npz'])} for {path}, a {form} model"
        raise InputError(Reason(rule, name, operand="--reference"))
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise InputError(Reason(f"a path in UTF-8, which {name} can open", str(path), operand="MODEL")) from error
    return REFERENCES[name](path, signature)
