"""The runtimes that are measured: nnbridge's tiers, LiteRT's, ONNX Runtime. Each is a function of arrays bound before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np

from nnbridge.apart import Apart
from nnbridge.compare.arrays import Array
from nnbridge.compare.samples import named_inputs
from nnbridge.converters import opened
from nnbridge.cpu import compiled
from nnbridge.engines.native import without_infos
from nnbridge.errors import InputError, Reason, first_line, pass_shortage
from nnbridge.extensions import is_tensor, operand_dtype
from nnbridge.model import Model, input_name
from nnbridge.records import dataclass
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution

Run: TypeAlias = Callable[[], object]

OURS = ("compiled", "reference")
LITERT = {
    "LiteRT XNNPACK": "BUILTIN",
    "LiteRT plain": "BUILTIN_WITHOUT_DEFAULT_DELEGATES",
    "LiteRT reference": "BUILTIN_REF",
}
"""Contender → LiteRT's name of its set of kernels."""
ONNXRUNTIME = "ONNX Runtime"


@dataclass(frozen=True)
class Contenders:
    """Functions that run a model, by the contender's name, and why others are missing."""

    runs: Mapping[str, Run]
    missing: Mapping[str, str]


def contenders(
    path: Path, model: Model, inputs: Mapping[str, Array], threads: int, tiers: tuple[str, ...] = OURS, *, few: bool = False
) -> Contenders:
    """All that run this file. The model's own tiers must; peers that do not are missing with their reason.

    ``few``: of LiteRT's kernels only its default ones.
    """
    runs: dict[str, Run] = {}
    missing: dict[str, str] = {}
    for tier in tiers:
        reason = compiled.unavailable() if tier == "compiled" else None
        if reason is None:
            runs[f"nnbridge {tier}"] = bound(model, inputs, tier, threads)
        else:
            missing[f"nnbridge {tier}"] = reason
    peers = list(_peers(path).items())
    for name, bind in peers[:1] if few else peers:
        try:
            # It is measured in this process: a file or a value that ends the runtime's ends another one first.
            Apart(name, f"{__name__}:tried", path, inputs, name, threads)
            runs[name] = bind(path, inputs, name, threads)
        except Exception as error:
            pass_shortage(error)
            # Runtimes raise errors of no common class for what they do not run.
            missing[name] = first_line(error)
    return Contenders(runs, missing)


def bound(model: Model, inputs: Mapping[str, Array], kernels: str, threads: int) -> Run:
    """A reusable execution on arrays of its own, after a first run."""
    compilation = Compilation.create(model, [], kernels=kernels, threads=threads)
    compilation.finish()
    main = model.main
    first = Execution(compilation)
    first.run(inputs)
    execution = Execution(compilation)
    execution.set_reusable(True)
    states = execution.states.inputs()
    for i, index in enumerate(main.inputs):
        name = input_name(main.operands[index], i)
        execution.set_input(i, states[i] if i in states and name not in inputs else inputs[name])
    for i, index in enumerate(main.outputs):
        operand = main.operands[index]
        dims = first.output_dims(i) if is_tensor(operand) else ()
        execution.set_output(i, np.zeros(max(1, int(np.prod(dims))), operand_dtype(operand)))
    execution.compute()
    return execution.compute


def runs(path: Path, inputs: Mapping[str, Array], name: str) -> bool:
    """True if a peer runs the file on these inputs, which is tried in another process."""
    try:
        Apart(name, f"{__name__}:tried", path, inputs, name, 1)
    except Exception as error:
        pass_shortage(error)
        return False
    return True


def tried(path: Path, inputs: Mapping[str, Array], name: str, threads: int) -> None:
    """In another process: a first run of a peer."""
    _peers(path)[name](path, inputs, name, threads)


def _peers(path: Path) -> dict[str, Callable[[Path, Mapping[str, Array], str, int], Run]]:
    form = opened(path).name
    if form == "tflite":
        return dict.fromkeys(LITERT, _litert)
    return {ONNXRUNTIME: _onnxruntime} if form == "onnx" else {}


def _litert(path: Path, inputs: Mapping[str, Array], name: str, threads: int) -> Run:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kernels = getattr(OpResolverType, LITERT[name])
    with without_infos():
        interpreter = Interpreter(str(path), num_threads=threads, experimental_op_resolver_type=kernels)
        details = interpreter.get_input_details()
        for detail, value in zip(details, inputs.values(), strict=True):
            if tuple(detail["shape"]) != value.shape:
                interpreter.resize_tensor_input(detail["index"], value.shape)
        interpreter.allocate_tensors()
    for detail, value in zip(details, inputs.values(), strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    run: Run = interpreter.invoke
    return run


def _onnxruntime(path: Path, inputs: Mapping[str, Array], name: str, threads: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    binding, fed = session.io_binding(), dict[str, Array]()
    for declared in session.get_inputs():
        value = inputs[declared.name]
        value = value.astype(np.float64) if declared.type == "tensor(double)" else value
        fed[declared.name] = np.ascontiguousarray(value.reshape(()) if declared.shape == [] else value)
        binding.bind_cpu_input(declared.name, fed[declared.name])
    for declared in session.get_outputs():
        binding.bind_output(declared.name)
    session.run_with_iobinding(binding)
    try:
        session.run_with_iobinding(binding)
    except Exception as error:
        pass_shortage(error)
        # Some files compute outputs of another rank than they declare, which an output that is bound does not take twice.
        return lambda: session.run(None, fed)
    return lambda: session.run_with_iobinding(binding)


def file_inputs(model: Model, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Only the inputs of the file, states left out; InputError if one is missing."""
    names = list(named_inputs(model))
    if absent := [name for name in names if name not in inputs]:
        raise InputError(Reason("a value for every input", f"none for {', '.join(absent)}"))
    return {name: inputs[name] for name in names}
