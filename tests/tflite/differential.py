"""A drawn operator's answer beside that of LiteRT's reference kernel, and the differences that a rule explains."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from tests.differential import Failure, Fork, Verdict, computed, quietly, verdict_on
from tests.tflite import drawing_more
from tests.tflite.drawing import I8, I16, I32, U8, Case, F, Tensor, values
from tests.tflite.drawing_varied import varied
from tests.tflite.explanations import COMPARISONS, rule
from tests.tflite.files import TfliteBuilder

DRAWS = drawing_more.DRAWS
VERSIONS = ((1, 2, 3, 4, 5), (2, 1, 3, 4, 5))
"""Versions of an operator in the order tried, by turns, until LiteRT has a kernel for one: converters write low ones."""
OPTIMISED = "BUILTIN_WITHOUT_DEFAULT_DELEGATES"
"""LiteRT's name of the set of optimised kernels."""
VARIED = 3
"""One case in so many is changed in ways that know nothing of its operator."""
POSITIVE = ("LOG", "SQRT", "RSQRT", "POW")

QUANT8 = (U8, I8)
MostSteps = Callable[[Case, Sequence[Any]], Any]
"""From a case and its inputs to the most steps of a difference, for the whole output or for each element of it."""


def _one_of_the_input(case: Case, feeds: Sequence[Any]) -> int:
    """The number of steps of the output that one step of the input is."""
    before, after = case.inputs[0], case.outputs[0]
    assert before is not None
    assert isinstance(before.scale, float)
    assert isinstance(after.scale, float)
    return math.ceil(before.scale / after.scale)


def _of_wide_inputs(most: int) -> MostSteps:
    """Steps of a function of 8 bits; 128 for 0 where one step of the input is 8 or more: NNAPI takes it for minus infinity."""

    def steps(case: Case, feeds: Sequence[Any]) -> Any:
        [x] = case.inputs
        assert x is not None
        assert isinstance(x.scale, float)
        return np.where((feeds[0] == x.zero_point) & (x.scale >= 8), 128, most)

    return steps


_RULES: tuple[tuple[Sequence[str], Sequence[str], int | MostSteps, str], ...] = (
    (("LOGISTIC",), QUANT8, _of_wide_inputs(5), "NNAPI takes inputs beyond a power of two of steps for infinite"),
    (("CAST",), (I32,), 255, "NNAPI's cast to 8 bits saturates, TFLite's wraps"),
    (COMPARISONS, QUANT8, 1, "NNAPI compares real numbers, TFLite integers on a common scale"),
    (("ELU",), (I8,), 1, "NNAPI divides by the output's scale, TFLite multiplies by its inverse: near halves"),
    (("LEAKY_RELU",), QUANT8, 1, "it is PRELU, whose multipliers have another rounding"),
    (("MEAN",), QUANT8, _one_of_the_input, "NNAPI's 8-bit MEAN truncates"),
    (("MUL", "PRELU"), QUANT8, 1, "LiteRT's multipliers are quotients of float32 numbers"),
    (("QUANTIZE",), QUANT8, 1, "the delegate goes through float32"),
    (("RESIZE_BILINEAR",), (U8,), 1, "NNAPI truncates what it interpolates in float32, TFLite rounds it"),
    (("SQUARED_DIFFERENCE",), (I8,), 3, "it is SUB and MUL, whose difference is rounded to 8 bits"),
    (("TANH",), QUANT8, _of_wide_inputs(1), "NNAPI computes in fixed point, TFLite rounds floats"),
)
DELEGATE_ALONE = ("CAST", "LEAKY_RELU", "MEAN")
EXPLAINED = {
    (name, mapping, type): (steps, why)
    for names, types, steps, why in _RULES
    for name in names
    for type in types
    for mapping in (["delegate"] if name in DELEGATE_ALONE else ["delegate", "wide"])
}
"""(operator, how it was mapped, element type) -> the most steps of a difference, and the rule of docs/tflite.md that explains it.

Only what NNAPI computes of these operators is explained: all else is computed as LiteRT's reference kernels do.
"""

Answer = Callable[[bytes, Sequence[Any], str], list[Any]]
"""From a file's content, its inputs and a name of LiteRT's sets of kernels to its outputs; RuntimeError if there are none."""
LAST_DIGIT = 2.0**-21
"""Eight units in the last place of float32 numbers near 1."""
LSTMS = ("LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_LSTM")
CELLS = (*LSTMS, "SVDF", "RNN", "UNIDIRECTIONAL_SEQUENCE_RNN", "BIDIRECTIONAL_SEQUENCE_RNN")


def float_floor(case: Case, feeds: Sequence[Any]) -> float:
    """The permitted distance of floats that come of numbers near 1, whose last digits activations by other approximations change.

    GELU's approximation multiplies half its input by 1 + tanh; without input gates, cells multiply by 1 - the forget gate; sums
    of an RNN's products cancel each other, and RELU may leave one such sum alone.
    Sums and means near 0 are of numbers that are not: a last digit of the sum of their magnitudes, and eight of their mean.
    """
    if not feeds:
        return 0.0
    if case.operator in ("MEAN", "SUM") and feeds[0].size:
        count = feeds[0].size // math.prod(case.outputs[0].shape) if case.operator == "SUM" else 8
        return float(LAST_DIGIT / 8 * count * np.abs(feeds[0]).mean())
    if case.operator == "GELU":
        return float(LAST_DIGIT / 2 * np.abs(feeds[0]).max(initial=0))
    if case.operator == "ELU":  # NNAPI subtracts 1 from e^x.
        return float(LAST_DIGIT / 4)
    if case.operator in CELLS:
        bounded = case.options.get("fused_activation_function") in (
            2,
            4,
        )  # RELU1, TANH; others leave sums.
        return LAST_DIGIT if bounded else float(LAST_DIGIT * max(1.0, np.abs(feeds[0]).max(initial=0) / 4))
    return 0.0


def _ill_conditioned(case: Case, feeds: Sequence[Any], theirs: Sequence[Any], ours: Sequence[Any], answer: Answer) -> bool:
    """True if LiteRT's own cells move as far when their inputs change in the last digit: normalisation of near numbers."""
    rng, spread = np.random.default_rng(0), [np.zeros_like(array) for array in theirs]
    for _ in range(8):
        moved = [np.nextafter(feed, rng.choice([-np.inf, np.inf], feed.shape).astype(F)) for feed in feeds]
        again = answer(content(case, [array.shape for array in theirs]), moved, "BUILTIN_REF")
        spread = [np.maximum(s, np.abs(a - b)) for s, a, b in zip(spread, again, theirs, strict=True)]
    return all((np.abs(a - b) <= 16 * s.max(initial=0)).all() for a, b, s in zip(ours, theirs, spread, strict=True))


_FORMS: dict[tuple[str, Sequence[int]], tuple[str, int]] = {}
"""(operator, versions in the order tried) -> the kernels and version that LiteRT was found to have."""


def content(case: Case, shapes: Sequence[Sequence[int]]) -> bytes:
    """The file's bytes; its outputs have these shapes."""
    return content_of([case], case.outputs, dict(zip(map(id, case.outputs), shapes, strict=True)))


def content_of(nodes: Sequence[Case], outputs: Sequence[Tensor], shapes: Mapping[int, Sequence[int]]) -> bytes:
    """The bytes of a file of operators in run order; ``shapes`` are those of the tensors that they write, by identity."""
    builder = TfliteBuilder()
    indexes: dict[int, int] = {}
    given: list[int] = []
    for node in nodes:
        for one in node.inputs:
            if one is None or id(one) in indexes:
                continue
            if one.value is not None:
                index = builder.constant(one.value, None, scale=one.scale, zero_point=one.zero_point, axis=one.axis)
            else:
                parameters: dict[str, Any] = {"scale": one.scale, "zero_point": one.zero_point}
                parameters |= {} if one.open is None else {"shape_signature": list(one.open)}
                index = builder.tensor(one.shape, one.type, is_variable=one.variable, **parameters)
                given += [] if one.variable else [index]
            indexes[id(one)] = index
        for one in node.outputs:
            indexes[id(one)] = builder.tensor(shapes[id(one)], one.type, scale=one.scale, zero_point=one.zero_point)
        read, written = [-1 if one is None else indexes[id(one)] for one in node.inputs], [indexes[id(o)] for o in node.outputs]
        builder.operator(node.operator, read, written, node.options, node.version)
    return builder.content(given, [indexes[id(one)] for one in outputs])


@contextmanager
def litert() -> Iterator[Fork]:
    """LiteRT in a fork: some of its kernels end the process, or damage its memory."""
    import ai_edge_litert.interpreter  # noqa: F401 - once, before the fork

    fork = Fork(_answer)
    try:
        yield fork
    finally:
        fork.close()


def reference(path: Path, feeds: Sequence[Any], kernels: str = "BUILTIN_REF") -> list[Any]:
    """LiteRT's outputs for one file, from a fork of their own."""
    with litert() as fork:
        return fork.run(path.read_bytes(), feeds, kernels)


def _answer(model: bytes, feeds: Sequence[Any], kernels: str) -> list[Any]:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    resolver = getattr(OpResolverType, kernels)
    interpreter = Interpreter(model_content=model, experimental_op_resolver_type=resolver, num_threads=1)
    interpreter.allocate_tensors()
    for detail, array in zip(interpreter.get_input_details(), feeds, strict=True):
        interpreter.set_tensor(detail["index"], array)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]).copy() for detail in interpreter.get_output_details()]


def expected(case: Case, feeds: Sequence[Any], versions: Sequence[int], answer: Answer) -> list[Any]:
    """LiteRT's outputs for the first version that it has a kernel for; of operators without a reference kernel, the other one."""
    shapes = [one.shape or (1,) for one in case.outputs]
    known = _FORMS.get((case.operator, versions))
    for kernels, case.version in (known,) if known else product(("BUILTIN_REF", OPTIMISED), versions):
        try:
            found = answer(content(case, shapes), feeds, kernels)
        except RuntimeError as error:
            message = str(error)
            if "find op" in message:
                continue
            raise
        _FORMS[case.operator, versions] = kernels, case.version
        return found
    raise RuntimeError(message)


def _steps(ours: Any, theirs: Any) -> Any:
    """The number of steps between integers of equal shape, element by element."""
    ours = ours.view(theirs.dtype) if ours.dtype.itemsize == theirs.dtype.itemsize else ours
    # Truth values are compared as bytes: 2 is true to NumPy, and wrong.
    ours, theirs = (np.asarray(a).view(np.uint8) if a.dtype == np.bool_ else a for a in (ours, theirs))
    return np.abs(ours.astype(np.int64) - theirs.astype(np.int64))


def _within(ours: Any, theirs: Any, most: Any) -> bool:
    """True for integers that are at most so many steps apart."""
    return ours.shape == theirs.shape and theirs.dtype.kind not in "fc" and bool((_steps(ours, theirs) <= most).all())


HUGE = 1e30
"""From here on, numbers do not count in the range of an output, of which its differences may be a part."""


def steps_apart(ours: Any, theirs: Any, floor: float = 0.0) -> tuple[str, int]:
    """The difference of two outputs, and the number of steps at most; an empty text if there is none. Floats may differ by
    ``floor``."""
    if ours.shape != theirs.shape:
        return f"shape {ours.shape} for {theirs.shape}", 1 << 62
    if (ours.dtype.kind in "fc") != (theirs.dtype.kind in "fc"):
        return f"{ours.dtype} for {theirs.dtype}", 1 << 62
    if theirs.dtype.kind in "fc":
        with np.errstate(all="ignore"):
            size = np.abs(theirs)
            usual = size[size < HUGE]
            allowed = np.where(np.isfinite(size), 1e-5 * size, 0) + 1e-5 * (usual.max() if usual.size else 1.0) + floor + 1e-30
            close = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs)) | (np.abs(ours - theirs) <= allowed)
        return ("", 0) if close.all() else (f"{(~close).sum()} of {close.size} floats", 1 << 62)
    steps = _steps(ours, theirs)
    most = int(steps.max(initial=0))
    return (f"{(steps != 0).sum()} of {steps.size} integers, {most} steps at most", most) if most else ("", 0)


def _optimised(case: Case, feeds: Sequence[Any], theirs: Sequence[Any], ours: Sequence[Any], answer: Answer) -> bool:
    """True if the answer is that of LiteRT's optimised kernels."""
    try:
        found = answer(content(case, [array.shape for array in theirs]), feeds, OPTIMISED)
    except RuntimeError:
        return False
    floor = float_floor(case, feeds)
    return either(ours, theirs, found) or not any(steps_apart(a, b, floor)[0] for a, b in zip(ours, found, strict=True))


def either(ours: Sequence[Any], theirs: Sequence[Any], optimised: Sequence[Any]) -> bool:
    """True if each number is that of one of LiteRT's kernels."""
    return all(
        a.shape == b.shape == c.shape and ((a == b) | (a == c)).all() for a, b, c in zip(ours, theirs, optimised, strict=True)
    )


def _why(case: Case, feeds: Sequence[Any], theirs: Sequence[Any], ours: Sequence[Any], answer: Answer) -> str:
    """The rule behind a difference that the answers themselves show; empty if there is none."""
    given = {id(one): one for one in case.inputs if one is not None and one.value is None and not one.variable}
    fed = dict(zip(given, feeds, strict=True))
    shown = rule(case, [None if one is None else fed.get(id(one), one.value) for one in case.inputs], theirs, ours)
    if shown:
        return shown
    if case.operator in LSTMS and _ill_conditioned(case, feeds, theirs, ours, answer):
        return "normalisation of numbers that are nearly equal"
    if _optimised(case, feeds, theirs, ours, answer):
        return "LiteRT's reference kernel differs from its optimised one, which phones run"
    return ""


def _enlarge(case: Case) -> None:
    """Let the output scale of 16-bit sums be one for which LiteRT shifts by no negative number."""
    out, scales = case.outputs[0], [one.scale for one in case.inputs if one is not None]
    if case.operator in ("ADD", "SUB") and out.type == I16:
        out.scale = max(out.scale, 2.1 * max(scales) / 2**15)  # type: ignore[type-var, operator]  # each has one scale


def evaluate(
    number: int, seed: int, names: Sequence[str], folder: Path, mapping: str, keep: Path | None, answer: Answer
) -> Verdict:
    """Draw the case of a number and compare; files that differ or fail are moved to ``keep``."""
    rng = np.random.default_rng([seed, number])
    name = names[int(rng.integers(len(names)))]
    case = DRAWS[name](rng, name)
    if number % VARIED == 0:
        case = varied(rng, case)
    _enlarge(case)
    path = folder / "case.tflite"
    given = {id(one): one for one in case.inputs if one is not None and one.value is None and not one.variable}
    inputs = list(given.values())
    type = next((one.type for one in (*inputs, *case.inputs) if one is not None), case.outputs[0].type)
    feeds = [values(rng, one.shape, one.type) if one.feed is None else one.feed for one in inputs]
    if name in POSITIVE and type == F:
        feeds = [np.abs(feed) + np.float32(0.01) for feed in feeds]
    try:
        theirs = expected(case, feeds, VERSIONS[number % 2], answer)
    except RuntimeError as error:
        return Verdict(number, name, "refused", str(error)[:200], type)
    if any(0 in array.shape for array in theirs):
        return Verdict(number, name, "refused", "an output without elements", type)
    path.write_bytes(content(case, [array.shape for array in theirs]))
    try:
        ours, placed = computed(path, mapping, feeds)
    except Failure as error:
        return verdict_on(number, name, "fails", f"{type}: {case}: {error}", path, keep, type)
    outcome, message = "equal", ""
    ours = [a.reshape(b.shape) if b.ndim == 0 and a.size == 1 else a for a, b in zip(ours, theirs, strict=True)]
    floor = float_floor(case, feeds)
    found = [steps_apart(a, b, floor) for a, b in zip(ours, theirs, strict=True)]
    if any(text for text, _ in found):
        steps, message = EXPLAINED.get((name, str(placed[0].mapping), type), (0, ""))
        most = steps if isinstance(steps, int) else steps(case, feeds)
        if not all(_within(a, b, most) for a, b, (text, _) in zip(ours, theirs, found, strict=True) if text):
            message = _why(case, feeds, theirs, ours, answer)
        texts = "; ".join(text for text, _ in found if text)
        outcome = "explained" if message else "differs"
        message = message or f"{type}, mapped {placed[0].mapping}: {case}: {texts}"
    return verdict_on(number, name, outcome, message, path, keep, type)


Evaluate = Callable[[int, int, Sequence[str], Path, str, Path | None, Answer], Verdict]
"""From a case's number, seed, names, a folder to work in, mapping, a folder to keep files in and LiteRT to the verdict."""


def verdicts(
    numbers: range,
    seed: int,
    names: Sequence[str],
    mapping: str = "wide",
    keep: Path | None = None,
    evaluate: Evaluate = evaluate,
) -> Iterator[Verdict]:
    """The verdicts on the cases of these numbers."""
    with quietly() as folder, litert() as fork:
        for number in numbers:
            verdict = evaluate(number, seed, names, folder, mapping, None, fork.run)
            if verdict.outcome in ("differs", "fails", "refused"):  # An earlier kernel may have damaged the fork's memory.
                fork.close()
                verdict = evaluate(number, seed, names, folder, mapping, keep, fork.run)
            yield verdict
