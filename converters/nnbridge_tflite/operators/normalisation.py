"""Normalisation over channels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnbridge.converters.declaration import Option
from nnbridge.errors import Why
from nnbridge.types import OperationCode
from nnbridge_tflite import dims
from nnbridge_tflite.declaration import FUSED, TfliteOperator
from nnbridge_tflite.host.numbers import Array, Options, Tensors, real, stored
from nnbridge_tflite.loads import NOT_ACTIVATED, OUT, SAME, ranked, typed
from nnbridge_tflite.lowerer import Lowerer
from nnbridge_tflite.rules import OLD_FLOATS, Condition, DelegateRule, input_rank

_NO_ACTIVATION = Condition(
    "no fused activation",
    lambda node: node.option("fused_activation_function") == 0,
    lambda node: node.option("fused_activation_function"),
    kind=Why.ACTIVATION,
)
L2_NORMALIZATION = TfliteOperator(
    "L2_NORMALIZATION",
    "Divided by the root of the sum of squares over the last dimension.",
    options=(FUSED,),
    delegate=DelegateRule(version=2, conditions=(_NO_ACTIVATION, OLD_FLOATS, input_rank("an input of rank 4", 4, below=3))),
    rows=True,
    versions=(1, 2),
    written={"UINT8": (1 / 128, 128), "INT8": (1 / 128, 0)},
    loads=(
        ranked(0, 1, 0),
        typed(OUT, "FLOAT32", "UINT8", "INT8"),
        SAME,
        NOT_ACTIVATED,
    ),
    dims=dims.like(),
)
LOCAL_RESPONSE_NORMALIZATION = TfliteOperator(
    "LOCAL_RESPONSE_NORMALIZATION",
    "Divided by (bias + alpha · sum of squares of near channels) to the power of beta.",
    options=(
        Option("radius", 0, "channels on each side"),
        Option("bias", 0.0, "added to the sum"),
        Option("alpha", 0.0, "factor of the sum"),
        Option("beta", 0.0, "exponent"),
    ),
    delegate=DelegateRule(version=1),
    loads=(ranked(0, 4), typed(OUT, "FLOAT32"), SAME),
    dims=dims.like(),
)


@L2_NORMALIZATION.lowering()
def l2_normalization(to: Lowerer) -> None:
    """L2_NORMALIZATION over the last dimension."""
    fused = to.option("fused_activation_function")
    to.require(fused == 0, "no fused activation", fused)
    to.finish(OperationCode.L2_NORMALIZATION, to.input(0))


@L2_NORMALIZATION.host_kernel
def host_l2_normalization(inputs: Tensors, outputs: Tensors, options: Options) -> Sequence[Array]:
    """In float32: more dimensions than NNAPI's operation has."""
    a = real(inputs[0])
    length = np.sqrt(np.square(a).sum(-1, keepdims=True))
    return [stored(a / np.maximum(length, a.dtype.type(1e-6)), outputs[0])]


@LOCAL_RESPONSE_NORMALIZATION.lowering()
def local_response_normalization(to: Lowerer) -> None:
    """LOCAL_RESPONSE_NORMALIZATION over the last dimension."""
    data = to.input(0)
    reals = (to.float_scalar(to.option(name), data) for name in ("bias", "alpha", "beta"))
    to.finish(OperationCode.LOCAL_RESPONSE_NORMALIZATION, data, to.scalar(to.option("radius")), *reals)
