"""Variants of a conformance case: signed 8-bit, relaxed float32, unknown dimensions.

Each function returns a new case, or None where the variant does not apply.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from nnbridge.conformance.cases import Case

Variant: TypeAlias = "Callable[[Case], Case | None]"

_NOT_SIGNED = {"HASHTABLE_LOOKUP", "LSH_PROJECTION", "PAD_V2", "CAST", "QUANTIZED_16BIT_LSTM"}
_SCALARS = {"FLOAT32", "INT32", "UINT32", "BOOL", "FLOAT16", "SUBGRAPH"}


def signed(case: Case) -> Case | None:
    """Every 8-bit asymmetric operand signed: type, zero point and values minus 128."""
    model = case.data["model"]
    used = {operation["type"] for operation in model["operations"]}
    unsigned = [i for i, o in enumerate(model["operands"]) if o["type"] == "TENSOR_QUANT8_ASYMM"]
    if len(model["operations"]) != 1 or model.get("referenced") or used & _NOT_SIGNED or not unsigned:
        return None
    data = copy.deepcopy(dict(case.data))
    data["name"] += "_as_signed"
    for i in unsigned:
        operand = data["model"]["operands"][i]
        operand["type"] = "TENSOR_QUANT8_ASYMM_SIGNED"
        operand["zero_point"] = operand.get("zero_point", 0) - 128
        if operand.get("value"):
            operand["value"] = [v - 128 for v in operand["value"]]
    for role in ("inputs", "outputs"):
        for position, i in enumerate(model[role]):
            if i in unsigned and data[role][position]:
                data[role][position] = [v - 128 for v in data[role][position]]
    return Case(case.suite, case.spec, data)


def relaxed(case: Case) -> Case | None:
    """The model relaxed, which has its own tolerance."""
    floats = any(o["type"] == "TENSOR_FLOAT32" for s in case.subgraphs for o in s["operands"])
    if case.data["relaxed"] or not floats:
        return None
    return Case(case.suite, case.spec, {**case.data, "relaxed": True, "name": case.name + "_as_relaxed"})


def unknown_dimensions(case: Case) -> Case | None:
    """Inputs, outputs and temporaries of the main model with every dimension unknown until execution."""
    model = case.data["model"]
    if any(model["operands"][i]["type"] in _SCALARS for i in model["outputs"]) or case.expects_failure:
        return None
    if any(o["type"] in ("IF", "WHILE") for o in model["operations"]):
        return None
    operands = [{**o, "dims": [0] * len(o["dims"])} if _can_be_unknown(o) else o for o in model["operands"]]
    data = {**case.data, "name": case.name + "_with_unknown_dimensions", "model": {**model, "operands": operands}}
    return Case(case.suite, case.spec, data, tuple(tuple(o["dims"]) for o in model["operands"]))


def _can_be_unknown(operand: Mapping[str, Any]) -> bool:
    # Per-channel scales need a known channel dimension.
    tensor = operand["type"] not in _SCALARS and "channel_quant" not in operand
    return tensor and operand["lifetime"] in ("SUBGRAPH_INPUT", "SUBGRAPH_OUTPUT", "TEMPORARY_VARIABLE")


VARIANTS: dict[str, Variant] = {"signed": signed, "relaxed": relaxed, "unknown-dimensions": unknown_dimensions}
"""Name of a variant → its function."""
