"""Pooling, normalisation, resizing, soft maxima."""

from __future__ import annotations

from nnbridge.converters.draft import Value
from nnbridge.types import OperationCode
from nnbridge_tflite.lower_conv import padding, strides
from nnbridge_tflite.lowering import FLOAT32, FLOATS, QUANT8, Lowerer, lowers

POOLS = {
    "AVERAGE_POOL_2D": OperationCode.AVERAGE_POOL_2D,
    "L2_POOL_2D": OperationCode.L2_POOL_2D,
    "MAX_POOL_2D": OperationCode.MAX_POOL_2D,
}

RESIZES = {
    "RESIZE_BILINEAR": OperationCode.RESIZE_BILINEAR,
    "RESIZE_NEAREST_NEIGHBOR": OperationCode.RESIZE_NEAREST_NEIGHBOR,
}


@lowers(*POOLS)
def pool(x: Lowerer) -> None:
    """The pooling of the same meaning with implicit padding."""
    window = (x.i32(x.option("filter_width")), x.i32(x.option("filter_height")))
    x.emit_fused(POOLS[x.name], x.input(0), padding(x), *strides(x), *window)


@lowers("SOFTMAX")
def softmax(x: Lowerer) -> None:
    """SOFTMAX over the last dimension."""
    x.emit(OperationCode.SOFTMAX, x.input(0), x.real(x.option("beta", 1.0), Value(_precision(x.input(0)))))


def _precision(value: Value) -> int:
    return value.type if value.type in FLOATS else FLOAT32


@lowers("SOFTMAX", wide=True)
def softmax_flattened(x: Lowerer) -> None:
    """Ranks that NNAPI does not take: all but the last dimension as one."""
    data = x.input(0)
    beta = x.real(x.option("beta", 1.0), Value(_precision(data)))
    x.require(0 not in data.dims, "known dimensions", data.dims)
    flat = x.reshaped(data, (-1 if data.rank == 1 else _leading(data), data.dims[-1]))
    soft = x.emit(OperationCode.SOFTMAX, flat, beta, out=x.out.like(dims=flat.dims))
    x.reshaped(soft, data.dims, out=x.out)


def _leading(value: Value) -> int:
    count = 1
    for d in value.dims[:-1]:
        count *= d
    return count


@lowers("LOG_SOFTMAX")
def log_softmax(x: Lowerer) -> None:
    """LOG_SOFTMAX over the last dimension, beta 1."""
    x.emit(OperationCode.LOG_SOFTMAX, x.input(0), x.real(1.0, x.input(0)), x.i32(-1))


@lowers("LOG_SOFTMAX", wide=True)
def log_softmax_through_float(x: Lowerer) -> None:
    """8-bit LOG_SOFTMAX by float32."""
    x.require(x.input(0).type in QUANT8, "an 8-bit tensor", x.tensor(0))
    real = x.dequantised(x.input(0))
    x.quantised(x.temp(OperationCode.LOG_SOFTMAX, real, x.real(1.0, real), x.i32(-1)))


@lowers("L2_NORMALIZATION")
def l2_normalization(x: Lowerer) -> None:
    """L2_NORMALIZATION over the last dimension."""
    fused = x.option("fused_activation_function")
    x.require(fused == 0, "no fused activation", fused)
    x.emit(OperationCode.L2_NORMALIZATION, x.input(0))


@lowers("LOCAL_RESPONSE_NORMALIZATION")
def local_response_normalization(x: Lowerer) -> None:
    """LOCAL_RESPONSE_NORMALIZATION over the last dimension."""
    data = x.input(0)
    reals = (x.real(x.option(name), data) for name in ("bias", "alpha", "beta"))
    x.emit(OperationCode.LOCAL_RESPONSE_NORMALIZATION, data, x.i32(x.option("radius")), *reals)


@lowers(*RESIZES)
def resize(x: Lowerer) -> None:
    """Resizing to a constant size: NNAPI has the width first."""
    sizes = x.integers(1)
    x.require(len(sizes) == 2, "height and width", sizes)
    height, width = sizes
    corners, centres = x.option("align_corners", False), x.option("half_pixel_centers", False)
    # RESIZE_NEAREST_NEIGHBOR always has its layout flag.
    layout = (x.flag(False),) if corners or centres or x.name == "RESIZE_NEAREST_NEIGHBOR" else ()
    alignment = (x.flag(corners), x.flag(centres)) if corners or centres else ()
    x.emit(RESIZES[x.name], x.input(0), x.i32(width), x.i32(height), *layout, *alignment)
