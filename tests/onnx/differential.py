"""A drawn ONNX file's answer beside ONNX Runtime's, and the differences that a rule explains."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from nnbridge.engines import OWN
from nnbridge.engines.onnx_session import open_session
from nnbridge_onnx.declaration import REGISTRY
from tests.differential import Failure, Fork, Verdict, computed, quietly, verdict_on
from tests.onnx import (  # noqa: F401 - they fill DRAWS
    drawing_bodies,
    drawing_elements,
    drawing_forms,
    drawing_groups,
    drawing_layers,
    drawing_structures,
)
from tests.onnx.drawing import DRAWS, Case

APPROXIMATED = ("Sigmoid", "Gelu", "Swish", "Silu", "LSTM", "GRU", "RNN", "EntropyLoss", "Cos")
"""Operators whose logistic function or error function ONNX Runtime approximates, or that subtract near numbers: to 1e-7 of 1.
Cos is 1 - 2 sin²(x/2)."""
POOLS = ("MaxPool", "AveragePool", "LpPool")
SUMS = ("ReduceSum", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")
_THEIR_FAULTS = {
    re.compile(
        r"(If|Loop|Scan) '[^']*': \w+ '[^']*': Missing Input|ONNX Runtime ended with signal"
    ): "ONNX Runtime frees values that only bodies read",  # "Missing Input" in a body, also of some whole files
    re.compile("InlineIfSubgraph"): "ONNX Runtime's optimiser cannot inline a branch of a function",  # also of the whole file
}
"""What ONNX Runtime, as the host, says of a file → its fault."""
LOWEST = 1e38
"""Numbers beyond this stand for infinity."""


def _interpret(model: bytes, feeds: Mapping[str, Any]) -> list[Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    try:
        session = open_session(model, options)
    except Exception as error:
        proto = onnx.load_from_string(model)
        if any(e.domain == "" and e.version < 7 for e in proto.opset_import):
            raise  # The evaluator computes these as later ones.
        nodes = proto.graph.node
        # Where nnbridge has a kernel of its own, the evaluator is wrong for some forms.
        own = any(definition.kernel is not None for n in nodes if (definition := REGISTRY.get(n.op_type)) is not None)
        if own or ("NOT_IMPLEMENTED" not in str(error) and "not a registered" not in str(error)):
            raise
        return evaluated(model, feeds)
    return [np.asarray(value) for value in session.run(None, dict(feeds))]


def evaluated(model: bytes, feeds: Mapping[str, Any]) -> list[Any]:
    """The answer of the ``onnx`` package's evaluator."""
    from onnx.reference import ReferenceEvaluator

    with np.errstate(all="ignore"):
        return [np.asarray(value) for value in ReferenceEvaluator(onnx.load_from_string(model)).run(None, dict(feeds))]


def unlike(ours: Any, theirs: Any, largest: float) -> str:
    """The difference of two outputs; empty if there is none. ``largest`` is the largest number of all outputs."""
    if ours.shape != theirs.shape and not (theirs.ndim == 0 and ours.size == 1):
        return f"shape {ours.shape} for {theirs.shape}"
    ours = ours.reshape(theirs.shape)
    if theirs.dtype.kind == "f":
        half = theirs.dtype == np.float16
        share = 4e-3 if half else 1e-5
        lowest = np.finfo(theirs.dtype).min  # which stands for minus infinity in the masks of ONNX Runtime
        ours, theirs = (np.where(array <= lowest, -np.inf, array.astype(np.float64)) for array in (ours, theirs))
        with np.errstate(all="ignore"):
            allowed = share * np.abs(theirs) + share * (max(largest, 1.0) if half else largest) + 1e-30
            close = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs)) | (np.abs(ours - theirs) <= allowed)
        return "" if close.all() else f"{(~close).sum()} of {close.size} floats"
    steps = np.abs(ours.astype(object) - theirs.astype(object)).astype(float) if theirs.dtype != bool else (ours != 0) ^ theirs
    return "" if not np.any(steps) else f"{np.count_nonzero(steps)} of {steps.size} integers, {int(np.max(steps))} steps at most"


def explanation(case: Case, found: str) -> str:
    """The rule of docs/onnx.md that explains a difference; empty if there is none."""
    if case.quantised and found.endswith(" 1 steps at most"):
        return "NNAPI rounds halves away from zero where ONNX rounds them to even"
    if case.operator in ("Resize", "Upsample", "ReduceLogSum", "ReduceLogSumExp") and found.endswith(" 1 steps at most"):
        return "ONNX does not say how interpolated numbers and logarithms become whole numbers"
    if case.operator in POOLS and not found.startswith("shape") and _skips(case.nodes[0]):
        return "ONNX Runtime cuts elements off in front where automatic paddings would be below 0"
    if case.operator == "ReduceProd" and found.endswith("floats") and _may_leave_half(case):
        return "NNAPI's reductions round each partial result of float16, which may be infinite"
    if case.operator == "DynamicQuantizeLinear" and not any(np.any(feed) for feed in case.feeds.values()):
        return "ONNX does not say which scale nothing but zeros have"
    cancels = case.operator == "MeanVarianceNormalization" or (case.operator == "GroupNormalization" and _has_near_numbers(case))
    if cancels and found.endswith("floats"):
        return "ONNX Runtime subtracts the square of the mean from the mean of squares"
    if case.nodes[0].op_type == "LayerNormalization" and found.endswith("floats") and _has_near_halves(case):
        return "NNAPI rounds means of float16 and differences to them, which is much of those that are small"
    return ""


def _resize_rule(case: Case, theirs: Any) -> str:
    """The statement of ONNX's text or its tests on a Resize that ONNX Runtime computes otherwise; empty if there is none."""
    options = {a.name: onnx.helper.get_attribute_value(a) for a in case.nodes[0].attribute}
    if options.get("antialias") and theirs.dtype == np.int8 and theirs.min() >= 0:
        return "ONNX Runtime's antialias of int8 has no numbers below 0"
    return ""


def _second_opinion(case: Case, ours: Sequence[Any], largest: float) -> str:
    """The reason why ONNX Runtime's result is not the measure: the evaluator's differs from it and is ours."""
    try:
        theirs = evaluated(case.model().SerializeToString(), case.feeds)
    except Exception:  # It has no answer, or fails.
        return ""
    same = all(a.size == b.size and not unlike(a.reshape(b.shape), b, largest) for a, b in zip(ours, theirs, strict=True))
    return "ONNX Runtime differs from the onnx package's evaluator" if same else ""


def _jumps(case: Case, ours: Sequence[Any], theirs: Sequence[Any], reference: Fork) -> str:
    """The reason why a difference says nothing: ONNX Runtime's own result for numbers that differ in their last digits jumps
    as far.

    That is what Floor, Hardmax or a comparison do to numbers that lie on their thresholds but for rounding.
    """
    lowest, highest, rng = [*theirs], [*theirs], np.random.default_rng(0)
    stated = (case.feeds, case.constants)

    def moved(array: Any) -> Any:
        if array.dtype.kind != "f":
            return array
        return (array * (1 + rng.choice([-1, 1], array.shape) * 4 * np.finfo(array.dtype).eps)).astype(array.dtype)

    try:
        for _ in range(16):
            case.feeds, case.constants = ({name: moved(a) for name, a in arrays.items()} for arrays in stated)
            found = reference.run(case.model().SerializeToString(), case.feeds)
            lowest, highest = [*map(np.fmin, lowest, found)], [*map(np.fmax, highest, found)]
    except (RuntimeError, ValueError):  # Refused, or results of other sizes.
        return ""
    finally:
        case.feeds, case.constants = stated
    near = [1e-5 * np.maximum(np.abs(a), np.abs(b)) for a, b in zip(lowest, highest, strict=True)]
    within = [np.all((a - n <= o) & (o <= b + n)) for o, a, b, n in zip(ours, lowest, highest, near, strict=True)]
    return "ONNX Runtime's answer jumps as far where its inputs' last digits change" if all(within) else ""


def _may_leave_half(case: Case) -> bool:
    """True if a product of some numbers of float16 is beyond what float16 has."""
    numbers = next(iter(case.feeds.values()))
    return bool(
        numbers.dtype == np.float16 and np.prod(np.maximum(np.abs(numbers.astype(np.float64)), 1)) > np.finfo(np.float16).max
    )


def _has_near_numbers(case: Case) -> bool:
    """True if the numbers of one group lie near together, beside their mean."""
    images = next(iter(case.feeds.values())).astype(np.float64)
    groups = next(a.i for a in case.nodes[0].attribute if a.name == "num_groups")
    rows = images.reshape(len(images) * groups, -1)
    return bool(np.any(rows.var(axis=1) < 1e-2 * rows.mean(axis=1) ** 2))


def _has_near_halves(case: Case) -> bool:
    """True if float16 numbers of one row lie near together, beside their mean."""
    node = case.nodes[0]
    data = case.feeds.get(node.input[0])
    if data is None or data.dtype != np.float16:
        return False
    axis = next((a.i for a in node.attribute if a.name == "axis"), -1)
    rows = data.astype(np.float64).reshape(math.prod(data.shape[:axis]), -1)
    return bool(np.any(rows.var(axis=1) < 1e-2 * rows.mean(axis=1) ** 2))


def _skips(pool: Any) -> bool:
    """True for automatic padding with strides beyond the window."""
    options = {a.name: onnx.helper.get_attribute_value(a) for a in pool.attribute}
    strides, window = options.get("strides", []), options["kernel_shape"]
    return options.get("auto_pad", b"").startswith(b"SAME") and any(s > k for s, k in zip(strides, window, strict=False))


def evaluate(
    number: int, seed: int, names: Sequence[str], folder: Path, mapping: str, keep: Path | None, reference: Fork, host: str
) -> Verdict:
    """Draw the case of a number and compare."""
    rng = np.random.default_rng([seed, number])
    name = names[int(rng.integers(len(names)))]
    case = Case(rng, name)
    DRAWS[name](case)
    path = folder / "case.onnx"
    try:
        theirs = reference.run(case.model().SerializeToString(), case.feeds)
    except RuntimeError as error:
        return Verdict(number, name, "refused", str(error)[:200])
    path.write_bytes(case.model(theirs).SerializeToString())
    try:
        ours, _ = computed(path, mapping, list(case.feeds.values()), host)
    except Failure as error:
        why = next((why for words, why in _THEIR_FAULTS.items() if words.search(str(error))), "")
        return verdict_on(number, name, "explained" if why else "fails", why or f"{case}: {error}", path, keep)
    finite = [np.abs(a[np.isfinite(a)].astype(np.float64)).max(initial=0) for a in theirs if a.dtype.kind == "f"]
    if case.operator == "GridSample":  # weights of either sign cancel each other
        finite += [np.abs(case.feeds["x0"]).max()]
    if case.operator.endswith(APPROXIMATED) or case.operator.startswith("structure"):  # which have Sigmoid among others
        finite.append(0.1)
    if case.operator in SUMS and case.feeds and (first := next(iter(case.feeds.values()))).dtype == np.float16:
        finite.append(np.abs(first.astype(np.float64)).sum() / 8)  # NNAPI rounds each partial sum: half a half's last digit
    largest = max([a for a in finite if a < LOWEST], default=1.0)
    found = "; ".join(found for pair in zip(ours, theirs, strict=True) if (found := unlike(*pair, largest)))
    resize = case.operator == "Resize"  # nnbridge's own kernel, which its evaluator does not back
    second = (_resize_rule(case, theirs[0]) if resize else _second_opinion(case, ours, largest)) if found else ""
    why = (explanation(case, found) or second) if found else ""
    if found and not why and all(a.shape == b.shape and a.dtype.kind == "f" for a, b in zip(ours, theirs, strict=True)):
        why = _jumps(case, ours, theirs, reference)
    outcome = "equal" if not found else "explained" if why else "differs"
    return verdict_on(number, name, outcome, why or (f"{case}: {found}" if found else ""), path, keep)


def verdicts(
    numbers: range, seed: int, names: Sequence[str], mapping: str, keep: Path | None = None, host: str = OWN
) -> Iterator[Verdict]:
    """The verdicts on the cases of these numbers."""
    import onnxruntime  # noqa: F401 - once, before the fork

    reference = Fork(_interpret)
    with quietly() as folder:
        try:
            for number in numbers:
                yield evaluate(number, seed, names, folder, mapping, keep, reference, host)
        finally:
            reference.close()
