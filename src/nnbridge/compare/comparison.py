"""Comparing a model's outputs with a reference: LiteRT, ONNX Runtime or stored arrays.

Inputs are seeded with NumPy's ``default_rng(seed)`` in model-input order: float standard normal, 8- and 16-bit integers
over their full range, int32 and int64 in [0, 8), booleans fair. Floating outputs may differ by 1e-4 of the reference
output's range (those of a single operation by 1e-5 + 5 ulp), 8- and 16-bit ones by 1 step, everything else not at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from nnbridge.errors import BadDataError, InputError, Reason
from nnbridge.extensions import operand_dtype
from nnbridge.model import Model, Operand, input_name, output_name
from nnbridge.runtime.arguments import check_array
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.runtime.plan import Share
from nnbridge.runtime.states import States
from nnbridge.types import OperandCode

Array = npt.NDArray[Any]

RELATIVE_TO_RANGE = 1e-4
"""Largest difference of a floating output of a network, as a share of the reference output's range."""

SINGLE_ATOL, SINGLE_RTOL = 1e-5, 5 * 2.0**-23
"""Largest difference of a floating output of a single operation: that of Android's conformance harness."""


@dataclass(frozen=True)
class Sample:
    """One set of inputs, and the reference's answer to it."""

    label: str
    inputs: Mapping[str, Array]
    outputs: Sequence[Array] | Mapping[str, Array]
    goes_on: bool = False
    """True if states keep what the sample before left in them."""


class Reference(Protocol):
    """Something that answers inputs."""

    name: str

    def run(self, inputs: Mapping[str, Array]) -> Sequence[Array] | Mapping[str, Array]:
        """Outputs in model-output order or by name, for inputs by name; states go on from the call before."""

    def reset(self) -> None:
        """Put states back to their first values."""


@dataclass
class OutputComparison:
    """One output over all samples."""

    name: str
    type: str
    elements: int = 0
    max_abs_diff: float = 0.0
    max_quant_diff: int | None = None
    """Largest difference in steps, for integer outputs."""
    sum_abs_diff: float = 0.0
    mismatches: int = 0
    """Elements that are not equal."""
    problem: str = ""
    """Why the arrays could not be compared."""
    single: bool = False
    """The output of a single operation, which is held to the harness's tolerance."""
    _pairs: list[tuple[Array, Array]] = field(default_factory=list, repr=False)
    """Differences and expected values of each sample; the tolerance depends on the range over all of them."""
    _dtype: np.dtype[Any] = field(default_factory=lambda: np.dtype(np.float32), repr=False)

    @property
    def atol(self) -> float:
        """The absolute difference that is allowed."""
        return self._tolerance[0]

    @property
    def rtol(self) -> float:
        """What is allowed beside, relative to the expected value."""
        return self._tolerance[1]

    @property
    def beyond(self) -> int:
        """Elements outside tolerance."""
        atol, rtol = self._tolerance
        return sum(int(np.count_nonzero(d > atol + rtol * np.abs(np.nan_to_num(want)))) for d, want in self._pairs)

    @property
    def passed(self) -> bool:
        """True if something was compared and all of it is within tolerance."""
        return self.beyond == 0 and not self.problem and self.elements > 0

    def add(self, actual: Array, expected: Array) -> None:
        """Compare one pair of arrays."""
        if not expected.shape and actual.shape == (1,):
            # NNAPI has no scalars among tensors.
            expected = expected.reshape(1)
        if actual.shape != expected.shape or actual.dtype.kind != expected.dtype.kind:
            self.problem = f"{expected.dtype}{list(expected.shape)} in the reference, {actual.dtype}{list(actual.shape)} here"
            return
        self.elements += actual.size
        if actual.size == 0:
            return
        want, got = _numbers(expected), _numbers(actual)
        with np.errstate(invalid="ignore"):
            difference = np.where((want == got) | (np.isnan(want) & np.isnan(got)), 0.0, np.abs(got - want))
        difference = np.where(np.isnan(difference), np.inf, difference)
        if expected.dtype.kind not in "fc":
            self.max_quant_diff = max(self.max_quant_diff or 0, int(min(difference.max(), 2**53)))
        self._pairs.append((difference, want))
        self._dtype = expected.dtype
        self.max_abs_diff = max(self.max_abs_diff, float(difference.max()))
        self.sum_abs_diff += float(difference.sum())
        self.mismatches += int(np.count_nonzero(difference))

    @property
    def _tolerance(self) -> tuple[float, float]:
        """Absolute and relative tolerance for the reference's values."""
        if self._dtype.kind not in "fc":
            return (1.0 if self._dtype.itemsize <= 2 and self._dtype.kind in "iu" else 0.0), 0.0
        if self.single:
            return SINGLE_ATOL, SINGLE_RTOL
        finite = [want[np.isfinite(want)] for _, want in self._pairs]
        low = min((float(v.min()) for v in finite if v.size), default=0.0)
        high = max((float(v.max()) for v in finite if v.size), default=0.0)
        # A constant output has no range; its magnitude stands in.
        return RELATIVE_TO_RANGE * (high - low or abs(high)), 0.0

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready figures."""
        return {
            "name": self.name,
            "type": self.type,
            "elements": self.elements,
            "max_abs_diff": self.max_abs_diff,
            "max_quant_diff": self.max_quant_diff,
            "mean_abs_diff": self.sum_abs_diff / self.elements if self.elements else 0.0,
            "mismatches": self.mismatches,
            "atol": self.atol,
            "rtol": self.rtol,
            "pass": self.passed,
            **({"problem": self.problem} if self.problem else {}),
        }


@dataclass(frozen=True)
class Comparison:
    """Every output of a model on some devices against a reference."""

    model: str
    device: str
    """The devices that ran something."""
    reference: str
    samples: int
    outputs: tuple[OutputComparison, ...]
    fallbacks: tuple[str, ...] = ()
    """What fell back to the CPU, when the model was compiled or while it ran, and why."""
    shares: tuple[Share, ...] = ()
    """What each driver that was offered the model got of it."""

    @property
    def passed(self) -> bool:
        """True if every output is within tolerance."""
        return all(output.passed for output in self.outputs) and bool(self.outputs)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready figures."""
        return {
            "model": self.model,
            "device": self.device,
            "reference": self.reference,
            "samples": self.samples,
            "pass": self.passed,
            "outputs": [output.as_dict() for output in self.outputs],
            "fallbacks": list(self.fallbacks),
            "offered": [asdict(share) for share in self.shares],
        }


def seeded_inputs(model: Model, seed: int) -> dict[str, Array]:
    """Inputs by name for a seed; a dimension that the model leaves open is taken as 1."""
    return _drawn_inputs(model, np.random.default_rng(seed))


def _drawn_inputs(model: Model, rng: np.random.Generator) -> dict[str, Array]:
    inputs: dict[str, Array] = {}
    for i, index in enumerate(model.own_inputs):
        operand = model.main.operands[index]
        dims = tuple(d or 1 for d in operand.dims)
        boolean = operand.type in (OperandCode.TENSOR_BOOL8, OperandCode.BOOL)
        inputs[input_name(operand, i)] = random_array(rng, np.dtype(bool) if boolean else operand_dtype(operand), dims)
    return inputs


def _numbers(array: Array) -> Array:
    """An array as doubles; a complex number is two."""
    return (
        np.ascontiguousarray(array).astype(np.complex128).view(np.float64)
        if array.dtype.kind == "c"
        else array.astype(np.float64)
    )


def random_array(rng: np.random.Generator, dtype: np.dtype[Any], dims: tuple[int, ...]) -> Array:
    """Random values of an element type, as the module's description lays down."""
    if dtype.kind == "f":
        return rng.standard_normal(dims).astype(dtype)
    if dtype.kind == "c":
        return (rng.standard_normal(dims) + 1j * rng.standard_normal(dims)).astype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, dims).astype(bool)
    if dtype.kind in "iu" and dtype.itemsize <= 2:
        info: np.iinfo[Any] = np.iinfo(str(dtype))
        return rng.integers(info.min, info.max, dims, dtype=dtype.str, endpoint=True)
    if dtype.kind in "iu":
        return rng.integers(0, 8, dims).astype(dtype)
    raise InputError(Reason("an input whose values can be drawn at random", str(dtype)))


def compare(compilation: Compilation, reference: str, samples: Iterator[Sample] | Sequence[Sample]) -> Comparison:
    """Run every sample on a finished compilation and compare with the reference's answers."""
    model = compilation.model
    outputs = new_comparisons(model)
    count = 0
    states = States(model)
    fallbacks: dict[str, None] = {}
    ran: dict[str, None] = {}
    for sample in samples:
        if not sample.goes_on:
            states.reset()
        execution = Execution(compilation, states)
        add_sample(model, outputs, execution.run(sample.inputs), sample.outputs)
        fallbacks.update(dict.fromkeys(fallbacks_of(execution)))
        ran.update(dict.fromkeys(execution.report.devices))
        count += 1
    devices = ", ".join(ran) or "no device"
    return Comparison(model.name, devices, reference, count, tuple(outputs), tuple(fallbacks), compilation.shares())


def turned(operand: Operand, array: Array) -> Array:
    """An array of the source file's element type as the operand's, and back: the sign bit of int8 that became uint8."""
    if operand.source_type != "int8" or operand.type != OperandCode.TENSOR_QUANT8_ASYMM or array.dtype.itemsize != 1:
        return array
    other = np.int8 if array.dtype == np.uint8 else np.uint8
    return (array.view(np.uint8) ^ np.uint8(0x80)).view(other)


def in_model(operand: Operand, array: Array) -> Array:
    """An array of the source file's element type as the model has it."""
    return turned(operand, array) if array.dtype == np.int8 else array


def new_comparisons(model: Model) -> list[OutputComparison]:
    """A comparison for each of the model's outputs, with nothing in it yet."""
    operands = [model.main.operands[i] for i in model.own_outputs]
    return [OutputComparison(output_name(operand, i), str(operand_dtype(operand))) for i, operand in enumerate(operands)]


def add_sample(
    model: Model,
    outputs: Sequence[OutputComparison],
    answers: Mapping[str, Array],
    expected: Sequence[Array] | Mapping[str, Array],
) -> None:
    """Compare one run's answers, by name, with a reference's."""
    operands = [model.main.operands[i] for i in model.own_outputs]
    in_order = [expected[output.name] for output in outputs] if isinstance(expected, Mapping) else list(expected)
    for output, operand, want in zip(outputs, operands, in_order, strict=True):
        output.add(answers[output.name], in_model(operand, want))


def fallbacks_of(execution: Execution) -> list[str]:
    """What fell back to the CPU in a run or already when the model was compiled, and why."""
    report, compiled = execution.report, execution.compilation.plan.fallback
    wholes = [f"whole model: {why}" for why in (compiled, report.fallback) if why is not None]
    return wholes + [f"step {step.step}: {step.fallback}" for step in report.steps if step.fallback is not None]


def seeded_samples(model: Model, reference: Reference, seeds: Sequence[int], steps: int = 1) -> Iterator[Sample]:
    """Seeded inputs with a reference's answers: for each seed so many calls in a row, states going on between them."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        reference.reset()
        for step in range(steps):
            inputs = _drawn_inputs(model, rng)
            yield Sample(f"seed {seed}, step {step}", inputs, reference.run(_in_source(model, inputs)), step > 0)


def _in_source(model: Model, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Inputs of the element types that the source file has."""
    operands = {input_name(model.main.operands[i], k): model.main.operands[i] for k, i in enumerate(model.own_inputs)}
    return {name: turned(operands[name], value) for name, value in inputs.items()}


def stored_samples(model: Model, path: Path) -> Iterator[Sample]:
    """Samples from an ``.npz``: arrays ``input:<name>`` and ``output:<name>``, each a stack of samples."""
    operands = [model.main.operands[i] for i in model.own_inputs]
    names = [input_name(operand, k) for k, operand in enumerate(operands)]
    outputs = [output_name(model.main.operands[i], k) for k, i in enumerate(model.own_outputs)]
    arrays = load_arrays(path)
    wanted = [f"input:{name}" for name in names] + [f"output:{name}" for name in outputs]
    missing = [name for name in wanted if name not in arrays]
    if missing:
        rule = f"{', '.join(missing)} (run --samples writes such a file)"
        raise InputError(Reason(rule, ", ".join(arrays) or "no arrays", operand=str(path)))
    for n in range(_samples([arrays[name] for name in wanted], path)):
        inputs = {name: in_model(operand, arrays[f"input:{name}"][n]) for name, operand in zip(names, operands, strict=True)}
        for name, operand in zip(names, operands, strict=True):
            try:
                check_array(operand, inputs[name], "")
            except BadDataError as error:
                raise InputError(replace(error.reason, operation=str(path), operand=f"a sample of input:{name}")) from error
        yield Sample(f"sample {n}", inputs, {name: arrays[f"output:{name}"][n] for name in outputs})


def _samples(arrays: Sequence[Array], path: Path) -> int:
    """How many samples the arrays are stacks of."""
    lengths = sorted({len(array) if array.ndim else 0 for array in arrays})
    if lengths[0] == 0:
        raise InputError(Reason("at least one sample in every array", "an array without any", operand=str(path)))
    if len(lengths) > 1:
        raise InputError(Reason("as many samples in every array", " and ".join(map(str, lengths)), operand=str(path)))
    return lengths[0]


def as_samples(inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> dict[str, Array]:
    """One run's inputs and outputs as the arrays that :func:`stored_samples` reads."""
    named = {**{f"input:{name}": array for name, array in inputs.items()}, **{f"output:{n}": a for n, a in outputs.items()}}
    return {name: np.expand_dims(array, 0) for name, array in named.items()}


_MARKS = {".npy": b"\x93NUMPY", ".npz": b"PK"}
"""The first bytes of NumPy's files; it takes everything else for a pickle, and says so."""


@contextmanager
def _numpy_file(path: Path, suffix: str, operand: str) -> Iterator[None]:
    """InputError for a file that does not begin as NumPy's, and for what NumPy raises while it is read."""
    rule = f"a {suffix} file of numbers"
    try:
        with path.open("rb") as file:
            head = file.read(8)
    except OSError as error:
        raise InputError(Reason(rule, error.strerror or str(error), operand=operand)) from error
    if not head.startswith(_MARKS[suffix]):
        raise InputError(Reason(rule, f"a file that begins with {head!r}" if head else "an empty file", operand=operand))
    try:
        yield
    except Exception as error:
        # Damaged archives raise what zipfile, zlib and NumPy's reader of headers raise.
        raise InputError(Reason(rule, f"{type(error).__name__}: {error}", operand=operand)) from error


def load_arrays(path: Path) -> dict[str, Array]:
    """The arrays of an ``.npz`` file; never unpickles anything."""
    with _numpy_file(path, ".npz", str(path)), np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def load_array(path: Path, option: str) -> Array:
    """The array of an ``.npy`` file that an option names; never unpickles anything."""
    with _numpy_file(path, ".npy", f"{option} {path}"):
        array: Array = np.load(path, allow_pickle=False)
    return array
