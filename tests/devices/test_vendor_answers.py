"""Single operations that disclosed mistakes of shipped profiles, with the answers of the drivers' own code."""

from __future__ import annotations

from typing import Any

import pytest

from nnbridge.conformance.cases import Case, build
from nnbridge.devices import device
from nnbridge.runtime.placement import answers_of
from tests.runtime.planning import while_model

Operand = dict[str, Any]
U8, S8, I32 = "TENSOR_QUANT8_ASYMM", "TENSOR_QUANT8_ASYMM_SIGNED", "TENSOR_INT32"


def tensor(kind: str, *dims: int, of: list[int] | None = None, scale: float = 0.5, zero: int = 0) -> Operand:
    """A tensor: of these values repeated, or else an input or output."""
    quantised = {"scale": scale, "zero_point": zero} if "QUANT" in kind else {}
    count = 1
    for side in dims:
        count *= side
    values = {} if of is None else {"value": (of * count)[:count], "lifetime": "CONSTANT_COPY"}
    return {"type": kind, "dims": list(dims), **quantised, **values}


def scalar(number: int | None, kind: str = "INT32") -> Operand:
    """A constant; an input of the model without a number."""
    return {"type": kind, "dims": []} | ({} if number is None else {"value": [number], "lifetime": "CONSTANT_COPY"})


def scalars(*numbers: int) -> list[Operand]:
    return [scalar(number) for number in numbers]


def model(operation: str, inputs: list[Operand], *outputs: Operand) -> dict[str, Any]:
    """The model of one operation."""
    ends = {"inputs": "SUBGRAPH_INPUT", "outputs": "SUBGRAPH_OUTPUT"}
    sides = {"inputs": inputs, "outputs": list(outputs)}
    operands = [{"lifetime": ends[side], **operand} for side, listed in sides.items() for operand in listed]
    places = {"inputs": list(range(len(inputs))), "outputs": list(range(len(inputs), len(operands)))}
    edges = {key: [i for i, o in enumerate(operands) if o["lifetime"] == end] for key, end in ends.items()}
    return {"operands": operands, "operations": [{"type": operation, **places}], **edges}


def row(*, constant: bool) -> dict[str, Any]:
    """A product of an image and a value for each channel."""
    return model(
        "MUL", [tensor(U8, 1, 9, 1, 4), tensor(U8, 1, 1, 1, 4, of=[1] if constant else None), scalar(0)], tensor(U8, 1, 9, 1, 4)
    )


def halves(*dims: int) -> dict[str, Any]:
    """A tensor cut in two along its last side."""
    half = tensor(U8, *dims[:-1], dims[-1] // 2)
    return model("SPLIT", [tensor(U8, *dims), scalar(len(dims) - 1), scalar(2)], half, half)


def relu(*dims: int) -> dict[str, Any]:
    return model("RELU", [tensor(U8, 1, 4, 4, 1)], tensor(U8, *dims))


def tanh(zero: int) -> dict[str, Any]:
    return model("TANH", [tensor(S8, 1, 7, 8, 16)], tensor(S8, 1, 7, 8, 16, scale=1 / 128, zero=zero))


def pool(scale: float, pads: int = 1, stride: int = 1) -> dict[str, Any]:
    """Averages of 3 x 3."""
    parameters = scalars(pads, pads, pads, pads, stride, stride, 3, 3, 0)
    return model("AVERAGE_POOL_2D", [tensor(U8, 1, 8, 8, 1), *parameters], tensor(U8, 1, 8, 8, 1, scale=scale))


def mean(*axes: int, channels: int = 1) -> dict[str, Any]:
    kept = [1, 1, 1, 1 if 3 in axes else channels]
    listed = tensor(I32, len(axes), of=list(axes))
    return model("MEAN", [tensor(U8, 1, 7, 7, channels), listed, scalar(1)], tensor(U8, *kept))


def add(activation: int | None) -> dict[str, Any]:
    return model("ADD", [tensor(U8, 1, 2, 2, 4), tensor(U8, 1, 2, 2, 4), scalar(activation)], tensor(U8, 1, 2, 2, 4))


def reshape(*target: int) -> dict[str, Any]:
    return model("RESHAPE", [tensor(U8, 1, 1, 3, 3), tensor(I32, len(target), of=list(target))], tensor(U8, 9))


def top_k(kind: str) -> dict[str, Any]:
    return model("TOPK_V2", [tensor(kind, 2, 3), scalar(2)], tensor(kind, 2, 2), tensor(I32, 2, 2))


def cast(kind: str) -> dict[str, Any]:
    return model("CAST", [tensor(kind, 2)], tensor(kind, 2))


def transpose(perm: Operand) -> dict[str, Any]:
    return model("TRANSPOSE", [tensor("TENSOR_FLOAT32", 1, 2, 2, 1), perm], tensor("TENSOR_FLOAT32", 1, 2, 2, 1))


def padded(*dims: int) -> dict[str, Any]:
    return model("PAD", [tensor(S8, 1, 9, 3, 1), tensor(I32, *dims, of=[0, 0, 0, 1, 1, 3, 0, 0])], tensor(S8, 1, 10, 7, 1))


def highest(count: int) -> dict[str, Any]:
    """The highest number along dimension 0, stated so many times."""
    return model(
        "REDUCE_MAX", [tensor("TENSOR_FLOAT32", 5), tensor(I32, count, of=[0]), scalar(1, "BOOL")], tensor("TENSOR_FLOAT32", 1)
    )


ANSWERS = [
    ("vsi-nn-sl", "whole numbers have no highest ones", top_k(I32), False),
    ("vsi-nn-sl", "floats have", top_k("TENSOR_FLOAT32"), True),
    ("vsi-nn-sl", "no cast from QUANT16_ASYMM", cast("TENSOR_QUANT16_ASYMM"), False),
    ("vsi-nn-sl", "an omitted permutation", transpose({"type": I32, "dims": [4], "lifetime": "NO_VALUE"}), False),
    ("vsi-nn-sl", "a constant permutation", transpose(tensor(I32, 4, of=[0, 2, 1, 3])), True),
    ("vsi-nn-sl", "paddings of 32 bytes", padded(4, 2), True),
    ("vsi-nn-sl", "paddings of 144 bytes kill it", padded(4, 9), False),
    ("vsi-nn-sl", "all dimensions reduced", highest(1), False),
    ("vsi-nn-sl", "axes of 132 bytes are not read", highest(33), True),
    ("ethos-n78-4tops", "NNAPI's output of a signed TANH", tanh(0), True),
    ("ethos-n78-4tops", "another zero point", tanh(127), False),
    ("ethos-n78-4tops", "the declared output", relu(1, 4, 4, 1), True),
    ("ethos-n78-4tops", "an output of other sides", relu(1, 4, 8, 1), False),
    ("ethos-n78-4tops", "parts of three sides", halves(1, 32, 20), True),
    ("ethos-n78-4tops", "the axis stays where a side is put before the others", halves(4, 32, 20), False),
    ("ethos-n78-4tops", "a pool that keeps the scale", pool(0.5), True),
    ("ethos-n78-4tops", "a pool that changes it", pool(0.25), False),
    ("ethos-n78-4tops", "a constant row as a depthwise convolution", row(constant=True), True),
    ("ethos-n78-4tops", "a row that is no constant", row(constant=False), False),
    ("ethos-n78-4tops", "the mean of a plane", mean(1, 2, channels=4), True),
    ("ethos-n78-4tops", "the mean of one channel too", mean(1, 2, 3), True),
    ("ethos-n78-4tops", "an activation that NNAPI has", add(3), True),
    ("ethos-n78-4tops", "one that it has not", add(7), False),
    ("ethos-n78-4tops", "one that only execution knows", add(None), False),
    ("qti-hvx", "an activation that is not read yet", add(None), True),
    ("qti-hvx", "as many elements", reshape(-1), True),
    ("qti-hvx", "a negative side other than -1", reshape(-2), False),
    ("qti-hvx", "SAME written out", pool(0.5), True),
    ("qti-hvx", "pads below 0", pool(0.5, pads=-1), False),
    ("qti-hvx", "strides of 0 kill it", pool(0.5, stride=0), False),
]


@pytest.mark.parametrize(("name", "question", "expected"), [pytest.param(n, m, e, id=f"{n}: {t}") for n, t, m, e in ANSWERS])
def test_a_profile_answers_as_the_drivers_own_code(name: str, question: dict[str, Any], *, expected: bool) -> None:
    case = Case("vendor", "", {"model": question, "relaxed": False, "name": ""})
    assert (answers_of(device(name), build(case)).reasons[0] is None) is expected


def test_a_profile_that_compares_outputs_answers_for_control_flow_too() -> None:
    (reason,) = answers_of(device("ethos-n78-4tops"), while_model()).reasons
    assert reason is not None
    assert reason.operation == "WHILE"
