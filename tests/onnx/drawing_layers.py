"""Layers drawn at random: products, convolutions, pooling, normalisation, resizing, recurrent ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

from tests.onnx.drawing import I8, I32, I64, U8, Case, D, F, H, draws


@draws("MatMul", "Gemm", "MatMulInteger", "Einsum", "QLinearMatMul")
def products(case: Case) -> None:
    name, type = case.operator, case.type(0, (F, F, F, H, D, I32, I64, U8, I8))
    n, k, m = (case.whole(1, 5) for _ in range(3))
    if name == "Gemm":
        flips = case.whole(0, 1), case.whole(0, 1)
        a, b = case.data((k, n) if flips[0] else (n, k), type), case.value(case.values((m, k) if flips[1] else (k, m), type))
        c = (
            case.value(case.values(case.pick((), (1,), (m,), (1, m), (n, 1), (n, m)), type))
            if case.opset < 11 or case.chance(0.7)
            else ""
        )
        factor = {key: case.maybe(float(case.pick(1, 0.5, 2))) for key in ("alpha", "beta")}
        case.node([a, b, c], transA=case.maybe(1) if flips[0] else 0, transB=flips[1], **factor)
        if flips[0] and all(x.name != "transA" for x in case.nodes[0].attribute):
            case.nodes[0].attribute.append(helper.make_attribute("transA", 1))
        return
    if name == "Einsum":
        equation, sizes = case.pick(
            ("ij,jk->ik", ((n, k), (k, m))), ("bij,bjk->bik", ((2, n, k), (2, k, m))), ("ij->ji", ((n, k),)), ("ij->", ((n, k),)),
            ("i,j->ij", ((n,), (m,))), ("...ij,...kj->...ik", ((2, n, k), (2, m, k))),
            ("bhwc,hkc->bhwk", ((2, 3, n, k), (3, m, k))), ("ij,ij->i", ((n, k), (n, k))), ("ii->i", ((n, n),)),
        )  # fmt: skip
        case.node([case.value(case.values(s, type), None if i else False) for i, s in enumerate(sizes)], equation=equation)
        return
    outer = case.dims(0, 2, 3)
    left = (*(1 if case.chance(0.2) else d for d in outer), n, k) if case.chance(0.9) else (k,)
    right = (*(outer if case.chance(0.5) else ()), k, m) if case.chance(0.9) else (k,)
    if name == "MatMul":
        case.node([case.data(left, type), case.value(case.values(right, type))])
        return
    right = right if case.chance(0.3) else (k, m)
    left = left if len(left) > 1 else (n, k)
    right = right if len(right) > 1 else (k, m)
    kinds = case.pick(U8, I8), case.pick(U8, I8)
    a, b = case.data(left, kinds[0]), case.value(case.values(right, kinds[1]))
    points = [case.value(case.values((), kind), True) for kind in kinds]
    if name == "MatMulInteger":
        case.node([a, b, *(point if case.chance(0.7) else "" for point in points)])
        return
    case.quantised = True
    steps = [case.value(np.float32(s), True) for s in (0.02, 0.03, 0.01)]
    out = case.value(case.values((), kinds[0]), True)
    case.node([a, steps[0], points[0], b, steps[1], points[1], steps[2], out])


@draws("Conv", "ConvTranspose", "ConvInteger", "QLinearConv")
def convolutions(case: Case) -> None:
    name, lines = case.operator, case.pick(1, 2, 2, 2, 3)
    type = case.type(0, (F, F, F, F, H, D)) if name.startswith("Conv") and name != "ConvInteger" else F
    group = case.pick(1, 1, 1, 2, 3)
    cin, cout = group * case.whole(1, 2), group * case.whole(1, 3)
    if case.chance(0.2):
        group = cin
        cout = cin * case.whole(1, 2)
    kernel = [case.whole(1, 3) for _ in range(lines)]
    dilations = [case.pick(1, 1, 2) for _ in range(lines)]
    strides = [case.pick(1, 1, 2, 3) for _ in range(lines)]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    size = [r + case.whole(0, 5) for r in reach]
    padding: dict[str, Any] = {}
    if case.chance(0.6):
        padding["pads"] = [case.whole(0, min(2, r)) for r in reach * 2]
    elif case.chance(0.6):
        # ONNX Runtime's transposed convolutions end early where windows leave gaps.
        gaps = name == "ConvTranspose" and any(s > r for s, r in zip(strides, reach, strict=True))
        padding["auto_pad"] = case.pick("VALID", "NOTSET", *(() if gaps else ("SAME_UPPER", "SAME_LOWER")))
    common = {
        "dilations": case.maybe(dilations) if max(dilations) == 1 else dilations,
        "group": group,
        "kernel_shape": case.maybe(kernel),
    }
    common |= {"strides": strides, **padding}
    shape, weights = (case.whole(1, 2), cin, *size), (cout, cin // group, *kernel)
    if name == "ConvTranspose":
        weights = (cin, cout // group, *kernel)
        if case.chance(0.3) and "auto_pad" not in padding:
            common["output_padding"] = [case.whole(0, max(s, d) - 1) for s, d in zip(strides, dilations, strict=True)]
    if name in ("Conv", "ConvTranspose"):
        bias = case.value(case.values((cout,), type)) if case.chance(0.6) else ""
        case.node([case.data(shape, type), case.value(case.values(weights, type), case.chance(0.8)), bias], **common)
        return
    kinds = case.pick((U8, U8), (U8, I8), (I8, I8))
    x, w = case.data(shape, kinds[0]), case.value(case.values(weights, kinds[1]), case.chance(0.8))
    points = [case.value(case.values((), kind), True) for kind in kinds]
    if kinds[1] == I8:
        points[1] = case.value(np.int8(0), True)
    if name == "ConvInteger":
        case.node([x, w, *(point if case.chance(0.7) else "" for point in points)], **common)
        return
    case.quantised = True
    bias = case.value(case.rng.integers(-500, 500, cout).astype(np.int32), True) if case.chance(0.6) else ""
    many = kinds[1] == I8 and case.chance(0.4)
    step = case.value(case.rng.uniform(0.005, 0.05, cout).astype(F) if many else np.float32(0.03), True)
    if many:
        points[1] = case.value(np.zeros(cout, np.int8), True)
    out = case.value(case.values((), kinds[0]), True)
    case.node(
        [x, case.value(np.float32(0.02), True), points[0], w, step, points[1], case.value(np.float32(0.1), True), out, bias],
        **common,
    )


@draws("MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", "LRN")
def pools(case: Case) -> None:
    name, lines, type = case.operator, case.pick(1, 2, 2, 2, 3), case.type(0, (F, F, F, H, D, U8, I8))
    kernel = [case.whole(1, 3) for _ in range(lines)]
    shape = (case.whole(1, 2), case.whole(1, 4), *(2 * k - 1 + case.whole(0, 5) for k in kernel))  # windows with dilations fit
    x = case.data(shape, type)
    if name == "LRN":
        options = {"alpha": 0.1, "beta": case.maybe(0.5), "bias": case.maybe(2.0)}
        case.node([x], size=case.whole(1, 5), **options)
        return
    if name.startswith("Global"):
        case.node([x], **({"p": case.maybe(case.whole(1, 3))} if name == "GlobalLpPool" else {}))
        return
    options = {"kernel_shape": kernel, "strides": case.maybe([case.whole(1, 3) for _ in kernel])}
    if case.chance(0.5):
        options["pads"] = [case.whole(0, k - 1) for k in kernel * 2]
    elif case.chance(0.5):
        options["auto_pad"] = case.pick("SAME_UPPER", "SAME_LOWER", "VALID")
    if case.opset >= {"MaxPool": 10, "AveragePool": 10, "LpPool": 18}[name]:
        options["ceil_mode"] = case.maybe(case.whole(0, 1))
    if case.opset >= {"MaxPool": 10, "AveragePool": 19, "LpPool": 18}[name] and "auto_pad" not in options:
        options["dilations"] = [case.pick(1, 1, 2) if k + case.whole(0, 1) else 1 for k in kernel] if case.chance(0.3) else None
    if name == "AveragePool":
        options["count_include_pad"] = case.maybe(case.whole(0, 1))
    if name == "LpPool":
        options["p"] = case.maybe(case.whole(1, 3))
    both = name == "MaxPool" and case.opset >= 8 and case.chance(0.2)
    case.node([x], 2 if both else 1, **options)


@draws(
    "BatchNormalization", "InstanceNormalization", "LayerNormalization", "GroupNormalization", "RMSNormalization",
    "MeanVarianceNormalization",
)  # fmt: skip
def normalisations(case: Case) -> None:
    name, type = case.operator, case.type(0, (F, F, F, H, D))
    shape = case.dims(3, 4) if name != "BatchNormalization" else case.dims(2, 5, 4)
    shape = (2, 3, 2, 4) if name == "MeanVarianceNormalization" else (*shape[:2], *(d + 1 for d in shape[2:]))
    x, channels = case.data(shape, type), shape[1]
    epsilon = case.maybe(float(case.pick(1e-5, 1e-3, 0.1)))

    def numbers(*dims: int) -> str:
        return case.value(case.values(dims, type), not case.chance(0.2))

    if name == "MeanVarianceNormalization":
        case.node([x], axes=case.maybe([int(a) for a in case.rng.permutation(4)[: case.whole(1, 4)]]))
    elif name == "BatchNormalization":
        variance = case.value(np.abs(case.values((channels,), type)) + np.asarray(0.1, type), not case.chance(0.2))
        case.node([x, numbers(channels), numbers(channels), numbers(channels), variance], epsilon=epsilon)
    elif name == "InstanceNormalization":
        case.node([x, numbers(channels), numbers(channels)], epsilon=epsilon)
    elif name == "GroupNormalization":
        case.feeds.clear()
        groups, each = case.whole(1, 3), case.whole(1, 3)
        x = case.data((2, groups * each, *case.dims(1, 2)), type)
        count = groups if case.opset < 21 else groups * each
        case.node([x, numbers(count), numbers(count)], num_groups=groups, epsilon=epsilon)
    else:
        axis = case.axis(len(shape))
        tail = shape[axis:]
        bias = numbers(*tail) if name == "LayerNormalization" and case.chance(0.6) else ""
        case.node([x, numbers(*tail), bias], axis=axis, epsilon=epsilon)


# -- images ------------------------------------------------------------------------------------------------------------------


@draws("Resize", "Upsample")
def resizes(case: Case) -> None:
    name, type = case.operator, case.type(0, (F, F, F, U8, I8, I32))
    if name == "Upsample":
        case.opset = case.whole(7, 9)
    rank = case.pick(2, 3, 4, 4, 4, 4)
    images = rank == 4 and case.chance(0.8)
    shape = (case.whole(1, 2), case.whole(1, 3), case.whole(1, 6), case.whole(1, 6))[4 - rank :]
    scales = [1.0 if images and i < 2 else float(case.pick(1, 2, 3, 0.5, 1.5, 2.5)) for i in range(rank)]
    scales = [max(s, 1.0) if name == "Upsample" else max(s, 1.01 / d) for s, d in zip(scales, shape, strict=True)]
    mode = case.pick("nearest", "linear", *(("cubic",) if case.opset >= 11 and type == F and images else ()))
    x = case.data(shape, type)
    if name == "Upsample" or case.opset < 11:
        if case.opset < 9:
            case.node([x], mode=mode, scales=scales)
        else:
            case.node([x, case.parameter(scales, F)], mode=mode)
        return
    more: dict[str, Any] = {"mode": mode}
    ways = (
        "half_pixel",
        "asymmetric",
        "align_corners",
        "pytorch_half_pixel",
        *(("half_pixel_symmetric",) if case.opset >= 19 else ()),
    )
    more["coordinate_transformation_mode"] = case.maybe(case.pick(*ways))
    if mode == "nearest":
        more["nearest_mode"] = case.maybe(case.pick("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))
    if mode == "cubic":
        more |= {"cubic_coeff_a": case.maybe(-0.5), "exclude_outside": case.maybe(case.whole(0, 1))}
    if case.opset >= 18 and case.chance(0.3) and mode != "cubic":
        more["antialias"] = case.whole(0, 1) if mode == "linear" else None
    empty = case.value(np.zeros(0, np.float32), True) if case.opset < 13 else ""
    if case.chance(0.5):
        case.node([x, empty, case.parameter(scales, F)], **more)
    else:
        sizes = [d if images and i < 2 else case.whole(1, 9) for i, d in enumerate(shape)]
        case.node([x, empty, case.value(np.zeros(0, np.float32), True) if case.opset < 13 else "", case.parameter(sizes)], **more)


@draws("DepthToSpace", "SpaceToDepth", "GridSample", "AffineGrid", "RoiAlign", "MaxRoiPool", "Col2Im")
def images(case: Case) -> None:
    name, type, block = case.operator, case.type(0, (F, F, F, H, D, U8, I32)), case.whole(1, 3)
    n, c, h, w = case.whole(1, 2), case.whole(1, 3), case.whole(2, 5), case.whole(2, 5)
    if name == "DepthToSpace":
        mode = case.maybe(case.pick("DCR", "CRD")) if case.opset >= 11 else None
        case.node([case.data((n, c * block * block, h, w), type)], blocksize=block, mode=mode)
    elif name == "SpaceToDepth":
        case.node([case.data((n, c, h * block, w * block), type)], blocksize=block)
    elif name == "GridSample":
        type = case.pick(F, F, D)
        grid = case.values((n, *case.dims(2, 2), 2), type) * np.asarray(0.7, type)
        ways = ("bilinear", "nearest", "bicubic") if case.opset < 20 else ("linear", "nearest", "cubic")
        more = {"mode": case.maybe(case.pick(*ways)), "padding_mode": case.maybe(case.pick("zeros", "border", "reflection"))}
        case.node([case.data((n, c, h, w), type), case.value(grid)], align_corners=case.maybe(case.whole(0, 1)), **more)
    elif name == "AffineGrid":
        type = case.pick(F, D)
        size = (n, c, h, w) if case.chance(0.7) else (n, c, h, w, 2)
        rows = len(size) - 2
        case.node([case.data((n, rows, rows + 1), type), case.parameter(size)], align_corners=case.maybe(case.whole(0, 1)))
    elif name == "Col2Im":
        type = case.pick(F, F, D)
        kernel = [case.whole(1, 2), case.whole(1, 2)]
        blocks = (h - kernel[0] + 1) * (w - kernel[1] + 1)
        case.node([case.data((n, c * kernel[0] * kernel[1], blocks), type), case.parameter([h, w]), case.parameter(kernel)])
    else:
        boxes = np.sort(case.rng.uniform(0, 5, (3, 2, 2)), axis=1).reshape(3, 4).astype(F)
        batch = case.rng.integers(0, n, 3)
        x = case.data((n, c, h + 3, w + 3), F)
        if name == "MaxRoiPool":
            rois = np.concatenate([batch[:, None], np.round(boxes)], axis=1).astype(F)
            case.node([x, case.value(rois)], pooled_shape=[case.whole(1, 3), case.whole(1, 3)], spatial_scale=case.maybe(1.0))
            return
        half = (
            {"coordinate_transformation_mode": case.maybe(case.pick("half_pixel", "output_half_pixel"))}
            if case.opset >= 16
            else {}
        )
        sizes = {key: case.whole(1, 3) for key in ("output_height", "output_width")}
        ratio = case.maybe(case.whole(1, 3))
        case.node(
            [x, case.value(boxes), case.value(batch)],
            mode=case.maybe("avg"),
            sampling_ratio=ratio,
            **sizes,
            **half,
        )


# -- sequences ---------------------------------------------------------------------------------------------------------------


@draws("LSTM", "GRU", "RNN")
def recurrent(case: Case) -> None:
    name, type = case.operator, case.type(0, (F, F, F, D))
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[name]
    steps, batch, size, hidden = (case.whole(1, 3) for _ in range(4))
    direction = case.pick("forward", "reverse", "bidirectional")
    ways = 2 if direction == "bidirectional" else 1
    last = case.opset >= 14 and case.chance(0.2)
    x = case.data((batch, steps, size) if last else (steps, batch, size), type)

    def weights(*dims: int) -> str:
        return case.value(case.values(dims, type) * np.asarray(0.5, type), not case.chance(0.15))

    inputs = [x, weights(ways, gates * hidden, size), weights(ways, gates * hidden, hidden)]
    inputs.append(weights(ways, 2 * gates * hidden) if case.chance(0.7) else "")
    lengths = case.value(case.rng.integers(1, steps + 1, batch).astype(np.int32), True) if case.chance(0.2) else ""
    state = (batch, ways, hidden) if last else (ways, batch, hidden)
    inputs += [lengths, case.value(case.values(state, type)) if case.chance(0.4) else ""]
    if name == "LSTM":
        inputs.append(case.value(case.values(state, type)) if case.chance(0.4) else "")
        inputs.append(weights(ways, 3 * hidden) if case.chance(0.3) else "")
    more: dict[str, Any] = {"direction": case.maybe(direction) if ways == 1 and direction == "forward" else direction}
    more |= {"hidden_size": hidden, "layout": 1 if last else None}
    if name == "GRU":
        more["linear_before_reset"] = case.maybe(case.whole(0, 1))
    if case.chance(0.2):
        kinds = {"LSTM": ["Sigmoid", "Tanh", "Relu"], "GRU": ["HardSigmoid", "Tanh"], "RNN": ["Relu"]}[name]
        more["activations"] = kinds * ways
    if case.chance(0.1):
        more["clip"] = 0.5
    case.node(inputs, case.whole(1, 3 if name == "LSTM" else 2), **more)
