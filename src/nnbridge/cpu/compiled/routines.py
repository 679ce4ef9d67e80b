"""Host operations by compiled kernels: what an importer prepared, if there is a binding for its arithmetic.

A host operation's prepared kernel is any function of arrays. One whose type is in ``_BINDINGS`` says what it computes, with
its constants, and becomes a program of only that; its own ``__call__`` is the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nnbridge.cpu.compiled.bindings.binding import Binding
from nnbridge.cpu.compiled.bindings.layers import recurrent_layer
from nnbridge.cpu.compiled.bindings.recurrent import integer_lstm
from nnbridge.cpu.compiled.bindings.svdf import integer_svdf
from nnbridge.cpu.compiled.bindings.windows import integer_mean
from nnbridge.cpu.compiled.instructions import InstructionSet, chosen
from nnbridge.cpu.compiled.program import Candidate, Shared, Unsupported, program_of
from nnbridge.extensions import Arg, PreparedHostKernel, StatedKernel
from nnbridge.model import Array
from nnbridge.operations.call import Call
from nnbridge.operations.declaration import OperationDef
from nnbridge.operations.integer_lstm import IntegerLstm
from nnbridge.operations.integer_mean import IntegerMean
from nnbridge.operations.integer_svdf import IntegerSvdf
from nnbridge.operations.recurrent_layer import RecurrentLayer
from nnbridge.types import OperandCode, OperationCode

_TYPES: Mapping[str, OperandCode] = {
    "|i1": OperandCode.TENSOR_QUANT8_ASYMM_SIGNED,
    "|u1": OperandCode.TENSOR_QUANT8_ASYMM,
    "<i2": OperandCode.TENSOR_QUANT16_SYMM,
    "<f4": OperandCode.TENSOR_FLOAT32,
}

_HOSTED = OperationDef(
    OperationCode.OEM_OPERATION, since=1, summary="The host's.", types=(), inputs=(), outputs=(), shape=lambda call: []
)
"""The declaration of operations that are not NNAPI's: bindings look at the prepared kernel instead."""

_BINDINGS: Mapping[type, Callable[[Binding, Any], None]] = {
    IntegerLstm: integer_lstm,
    IntegerMean: integer_mean,
    IntegerSvdf: integer_svdf,
    RecurrentLayer: recurrent_layer,
}


def routine(prepared: StatedKernel, threads: int = 1, instructions: InstructionSet | None = None) -> PreparedHostKernel | None:
    """The same function by compiled kernels; None where there are none."""
    bind, places = _BINDINGS.get(type(prepared)), prepared.places
    if bind is None:
        return None
    isa = instructions or chosen()
    try:
        call = _call([prepared.inputs[i] for i in places], prepared.outputs)
        inputs = tuple(range(len(places)))
        candidate = Candidate(0, inputs, tuple(range(len(inputs), len(inputs) + len(call.outs))), call)
        binding = Binding(candidate, {}, isa, Shared())
        bind(binding, prepared)
    except Unsupported:
        return None
    program = program_of([(candidate, binding.bound)], set(candidate.outputs), isa)
    sources = [places[i] for i in program.inputs]
    shapes = [(out.dims, out.dtype) for out in call.outs]

    def run(arrays: Sequence[Array | None]) -> list[Array]:
        outputs = [np.empty(dims, dtype) for dims, dtype in shapes]
        program.run([np.ascontiguousarray(arrays[i]) for i in sources], outputs, threads)
        return outputs

    return run


def _call(inputs: Sequence[Arg], outputs: Sequence[Arg]) -> Call:
    """Operands for a binding."""
    return Call(_HOSTED, _HOSTED.signatures[0], tuple(map(_arg, inputs)), tuple(map(_arg, outputs)))


def _arg(arg: Arg) -> Arg:
    """The operand under the type of NNAPI's that has its elements, constant where its value is known."""
    kind = _TYPES.get(arg.dtype.str)
    if kind is None or not arg.dims or 0 in arg.dims:
        raise Unsupported("requires float32 or 8- and 16-bit integers of known dimensions")
    return Arg(kind, arg.dims, arg.scale, arg.zero_point, value=arg.value, constant=arg.value is not None)
