"""Random nodes of float16 and bfloat16 on the host, beside ONNX Runtime and beside the same node on float64.

A result is right within one unit in the last place of either: of ONNX Runtime's, which computes in float32 and rounds once, or of
what the node computes of the same numbers as float64.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx

from nnbridge.errors import OpFailedError
from nnbridge_onnx.host.evaluator import run_node
from nnbridge_onnx.read.graph import Node, attribute_values
from tests.differential import Fork, Verdict
from tests.onnx.differential import _interpret
from tests.onnx.drawing import DRAWS, Case, F

HALVES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
MAGNITUDES = (1.0, 1.0, 1e-7, 1e-4, 0.01, 100.0, 1e4, 6e4)


def has(operator: str, half: str) -> bool:
    """True if an operator computes on numbers of a type."""
    try:
        schema = onnx.defs.get_schema(operator)
    except onnx.defs.SchemaError:
        return False
    return any(f"tensor({half})" in value.types for value in schema.inputs)


def operators(half: str) -> list[str]:
    """The operators that are drawn."""
    return [name for name in sorted(DRAWS) if " " not in name and has(name, half)]


class HalfCase(Case):
    """A node whose real numbers are of 16 bits, and of any magnitude."""

    def __init__(self, rng: np.random.Generator, operator: str, half: str) -> None:
        super().__init__(rng, operator, 23)
        self.half = half

    def type(self, i: int = 0, of: Sequence[str] = ()) -> str:
        return F

    def values(self, shape: Sequence[int], type: str = F) -> Any:
        if type not in (F, "float16", "float64"):
            return super().values(shape, type)
        numbers = self.rng.standard_normal(shape) * self.pick(*MAGNITUDES)
        return np.clip(numbers, -65504, 65504).astype(HALVES[self.half]).astype(np.float32)

    def value(self, array: Any, constant: bool | None = None) -> str:
        """An input; numbers that draws change, such as moduli, are rounded again."""
        return super().value(np.asarray(array), False)


def _typed(case: HalfCase) -> dict[str, Any]:
    """The values as the node's schema types them."""
    (node,), feeds = case.nodes, dict(case.feeds)
    schema = onnx.defs.get_schema(node.op_type, case.opset)
    for i, name in enumerate(node.input):
        parameter = schema.inputs[min(i, len(schema.inputs) - 1)]
        if name and feeds[name].dtype.kind == "f":
            half = f"tensor({case.half})" in parameter.types
            feeds[name] = feeds[name].astype(HALVES[case.half] if half else np.float32)
    return feeds


def _run(case: HalfCase, feeds: dict[str, Any]) -> list[Any]:
    (proto,) = case.nodes
    node = Node(0, proto.op_type, "", "", case.opset, tuple(proto.input), tuple(proto.output), attribute_values(proto), proto)
    types = {name: int(onnx.helper.np_dtype_to_tensor_dtype(array.dtype)) for name, array in feeds.items()}
    return list(run_node(node, feeds, types))


def ordered(array: Any) -> Any:
    """Numbers of 16 bits as integers that count their units in the last place; both zeros are 0."""
    bits = np.asarray(array).view(np.int16).astype(np.int64)
    return np.where(bits < 0, -(bits & 0x7FFF), bits)


def near(ours: Any, theirs: Any) -> Any:
    """True where two arrays of 16 bits are one unit apart at most, or both no numbers."""
    nan = np.isnan(ours.astype(np.float32)) & np.isnan(theirs.astype(np.float32))
    return nan | (np.abs(ordered(ours) - ordered(theirs)) <= 1)


def _last_digits(feeds: dict[str, Any], ours: Any, theirs: Sequence[Any], exact: Sequence[Any], i: int, wrong: Any) -> bool:
    """True if results are as near as float32's last digits of the inputs' largest product allow."""
    largest = np.prod([np.abs(a.astype(np.float64)).max(initial=0) + 1 for a in feeds.values() if a.dtype.kind in "fV"])
    return any(
        others and bool(np.all(np.abs(ours.astype(np.float64) - np.asarray(others[i], np.float64))[wrong] <= largest * 2.0**-22))
        for others in (theirs, exact)
    )


def evaluate(number: int, seed: int, name: str, half: str, reference: Fork) -> Verdict:
    """Draw the case of a number and compare."""
    case = HalfCase(np.random.default_rng([seed, number]), name, half)
    DRAWS[name](case)
    if len(case.nodes) != 1 or case.nodes[0].op_type != name:
        return Verdict(number, name, "refused", "more than one node")
    case.feeds = feeds = _typed(case)
    if not any(array.dtype == HALVES[half] for array in feeds.values()):
        return Verdict(number, name, "refused", "drawn of other types")
    try:
        theirs = reference.run(case.model().SerializeToString(), feeds) if half == "float16" else []
    except RuntimeError as error:
        theirs, refusal = [], str(error)
    else:
        refusal = ""
    exact: list[Any] = []
    try:
        exact = _run(case, {n: a.astype(np.float64) if a.dtype == HALVES[half] else a for n, a in feeds.items()})
    except OpFailedError as error:
        refusal = refusal or str(error)
    if not theirs and not exact:
        return Verdict(number, name, "refused", refusal[:200])
    try:
        ours = _run(case, feeds)
    except OpFailedError as error:
        return Verdict(number, name, "fails", f"{case}: {error}"[:400])
    found = ""
    for i, result in enumerate(ours):
        if result.dtype.kind not in "fV":
            continue
        wrong = np.ones(result.shape, bool)
        if name == "GridSample" and any(a.s == b"nearest" for a in case.nodes[0].attribute):
            continue  # Positions at halves, which float64 rounds otherwise.
        for others in (theirs, exact):
            if others and result.dtype == HALVES[half]:
                with np.errstate(all="ignore"):
                    wrong &= ~near(result, np.asarray(others[i]).astype(result.dtype).reshape(result.shape))
            elif others:
                wrong &= ~np.isclose(result, np.asarray(others[i]).astype(result.dtype), 1e-4, 1e-6, equal_nan=True)
        if wrong.any() and _last_digits(feeds, result, theirs, exact, i, wrong):
            return Verdict(number, name, "explained", "the last digits of float32 sums of numbers that cancel each other")
        if wrong.any():
            at = tuple(np.argwhere(wrong)[0])
            numbers = [str(np.asarray(o[i]).reshape(result.shape)[at]) for o in (ours, theirs, exact) if o]
            found = f"{wrong.sum()} of {wrong.size} of output {i}, such as {', '.join(numbers)}"
    return Verdict(number, name, "differs" if found else "equal", f"{case}: {found}"[-500:] if found else "")


def verdicts(numbers: range, seed: int, names: Sequence[str], half: str) -> Iterator[Verdict]:
    """The verdicts on the cases of these numbers, of each operator."""
    import onnxruntime  # noqa: F401 - once, before the fork

    reference = Fork(_interpret)
    try:
        for name in names:
            for number in numbers:
                with np.errstate(all="ignore"):
                    yield evaluate(number, seed, name, half, reference)
    finally:
        reference.close()
