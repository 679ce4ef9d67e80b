"""Samples: inputs with a reference's outputs, drawn with a seed or read from a file.

Inputs are drawn by NumPy's ``default_rng(seed)`` in model-input order: floats standard normal, 8- and 16-bit integers over
their full range, int32 and int64 in [0, 8), booleans with equal probability. Floats that the model casts to indexes are whole
numbers in [0, 8), too. Whole numbers that a reference refuses, as they may be indexes, are drawn smaller, with a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from nnbridge.compare.arrays import Array, load_arrays
from nnbridge.errors import BadDataError, InputError, NnbridgeError, OpFailedError, Reason, RefusalError, Why
from nnbridge.extensions import codec_of, is_tensor, operand_dtype, plain_operation, readable_operation
from nnbridge.model import Model, Operand, input_name, output_name
from nnbridge.records import dataclass
from nnbridge.runtime.arguments import check_array
from nnbridge.types import FLOATS, OperandCode

_log = logging.getLogger(__name__)
_Outputs = TypeVar("_Outputs")


@dataclass(frozen=True)
class Sample:
    """One set of inputs, and the reference's outputs for it."""

    label: str
    inputs: Mapping[str, Array]
    outputs: Sequence[Array] | Mapping[str, Array]
    continues: bool = False
    """True if states continue from the sample before."""


class Endings:
    """Samples at which a runtime's process ended: their rows, beside those that are compared."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str]] = []
        """Sample and how the process ended."""
        self._lost = False

    def left(self, samples: Iterable[Sample]) -> Iterator[tuple[int, Sample]]:
        """The samples that can be compared, numbered as all are."""
        for number, sample in enumerate(samples):
            if isinstance(sample.outputs, Missing):
                self._add(sample, sample.outputs.why)
            elif sample.continues and self._lost:
                self.rows.append((sample.label, "the sample before it, whose states it continues, is not known"))
            else:
                self._lost = False
                yield number, sample

    @contextmanager
    def at(self, sample: Sample) -> Iterator[None]:
        """The values computed for a sample; if the process ends while it computes one, that is a row."""
        try:
            yield
        except RefusalError as error:
            if error.reason.kind is not Why.ENDED:
                raise
            self._add(sample, error.reason)

    def _add(self, sample: Sample, why: Reason) -> None:
        self._lost = True
        self.rows.append((sample.label, str(why)))


class Missing(Mapping[str, Array]):
    """Outputs that a reference did not compute, as its process ended; whoever asks for them gets an InputError that says so."""

    def __init__(self, why: Reason) -> None:
        self.why = why

    def __getitem__(self, name: str) -> Array:
        raise InputError(self.why)

    def __iter__(self) -> Iterator[str]:
        raise InputError(self.why)

    def __len__(self) -> int:
        raise InputError(self.why)


class Reference(Protocol):
    """A runtime that computes the outputs to compare with."""

    name: str

    def run(self, inputs: Mapping[str, Array]) -> Sequence[Array] | Mapping[str, Array]:
        """Outputs in model-output order or by name, for inputs by name; states continue from the call before."""

    def reset(self) -> None:
        """Reset states to their first values."""


def named_inputs(model: Model) -> dict[str, Operand]:
    """The operands of the model's inputs, without those of states, by name."""
    return {input_name(model.main.operands[i], k): model.main.operands[i] for k, i in enumerate(model.own_inputs)}


def named_outputs(model: Model) -> dict[str, Operand]:
    """The operands of the model's outputs, without those of states, by name."""
    return {output_name(model.main.operands[i], k): model.main.operands[i] for k, i in enumerate(model.own_outputs)}


def unpacked(operands: Mapping[str, Operand], values: Mapping[str, Array]) -> dict[str, Array]:
    """Values by name; the tensors of a sequence each as ``NAME[0]``, ``NAME[1]`` and so on."""
    found: dict[str, Array] = {}
    for name, value in values.items():
        codec = codec_of(operands[name]) if name in operands else None
        if codec is None:
            found[name] = value
            continue
        for k, array in enumerate(codec.unpack(value)):
            found[f"{name}[{k}]" if codec.several else name] = array.astype(str) if array.dtype.kind == "O" else array
    return found


def seeded_inputs(model: Model, seed: int, without: Collection[str] = ()) -> dict[str, Array]:
    """Inputs by name for a seed; a dimension that the model leaves open becomes 1. ``without``: names of those not drawn."""
    return _drawn_inputs(model, np.random.default_rng(seed), without)


def _drawn_inputs(model: Model, rng: np.random.Generator, without: Collection[str] = ()) -> dict[str, Array]:
    found, indexes = {}, {input_name(model.main.operands[i], model.main.inputs.index(i)) for i in _cast_to_indexes(model)}
    for name, operand in named_inputs(model).items():
        if codec_of(operand) is None:
            found[name] = drawn(rng, operand, whole=name in indexes)
        elif name not in without:
            rule = "a file (run and compare have --input NAME=FILE.npz): sequences and text are not drawn"
            raise InputError(Reason(rule, "none", operand=name))
    return {name: value for name, value in found.items() if name not in without}


_INDEXED = {"GATHER", "GATHER_ND", "EMBEDDING_LOOKUP", "ONE_HOT", "Gather", "GatherElements", "GatherND", "OneHot"}
_CASTS = {"CAST", "Cast"}


def _cast_to_indexes(model: Model) -> set[int]:
    """The inputs of floats that are tokens: a cast makes whole numbers of them, and these are indexes."""
    main, found = model.main, set[int]()
    names = [plain_operation(readable_operation(model, operation)) for operation in main.operations]
    todo = [i for name, operation in zip(names, main.operations, strict=True) if name in _INDEXED for i in operation.inputs]
    seen = set(todo)
    while todo:
        made_by = main.producers.get(todo.pop(), -1)
        for i in main.operations[made_by].inputs if made_by >= 0 else ():
            if _is_real(main.operands[i]):
                found |= {i} & set(main.inputs) if names[made_by] in _CASTS else set()
            elif i not in seen:
                seen.add(i)
                todo.append(i)
    return found


def _is_real(operand: Operand) -> bool:
    return operand.type in FLOATS or operand.scale != 0


def drawn(rng: np.random.Generator, operand: Operand, *, whole: bool = False) -> Array:
    """A random value of an operand; open dimensions are 1, and tensors of any rank are vectors, as NNAPI has no scalars among
    them. ``whole``: in [0, 8)."""
    boolean = operand.type in (OperandCode.TENSOR_BOOL8, OperandCode.BOOL)
    dims = tuple(d or 1 for d in operand.dims) or ((1,) if is_tensor(operand) else ())
    if whole:
        return rng.integers(0, 8, dims).astype(operand_dtype(operand))
    return random_array(rng, np.dtype(bool) if boolean else operand_dtype(operand), dims)


def random_array(rng: np.random.Generator, dtype: np.dtype[Any], dims: tuple[int, ...]) -> Array:
    """Random values of an element type, distributed as the module's description states."""
    if dtype.kind == "f" or (dtype.kind == "V" and "float" in dtype.name):
        return rng.standard_normal(dims).astype(dtype)
    if dtype.kind == "V" and dtype.name.startswith(("int", "uint")):
        signed, bits = dtype.name.startswith("int"), int(dtype.name.rpartition("int")[2])
        low = -(1 << bits - 1) if signed else 0
        return rng.integers(low, low + (1 << bits), dims).astype(dtype)
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


def open_dimensions(model: Model, stated: Iterable[str] = ()) -> str:
    """The inputs, except stated ones, with dimensions that the model leaves open, and the option that states them; empty for
    none."""
    found = [
        f"input {name} leaves dimension{'s' * (operand.dims.count(0) > 1)} "
        f"{', '.join(str(k) for k, d in enumerate(operand.dims) if not d)} of "
        f"[{', '.join(str(d or '?') for d in operand.dims)}] open and 1 was used: state it with "
        f"--shape {name}={','.join(str(d or 'N') for d in operand.dims)}"
        for name, operand in named_inputs(model).items()
        if 0 in operand.dims and name not in stated
    ]
    return "; ".join(found)


@contextmanager
def stating_open_dimensions(model: Model, stated: Iterable[str] = ()) -> Iterator[None]:
    """Operations that fail on random inputs state which of their dimensions were open."""
    try:
        yield
    except OpFailedError as error:
        hint = open_dimensions(model, stated)
        raise OpFailedError(replace(error.reason, found=f"{error.reason.found}; {hint}")) if hint else error from error


def seeded_samples(model: Model, reference: Reference | None, seeds: Sequence[int], steps: int = 1) -> Iterator[Sample]:
    """Seeded inputs with a reference's outputs, if any: for each seed ``steps`` calls, between which states continue."""
    most: int | None = None
    for seed in seeds:
        rng = np.random.default_rng(seed)
        outputs: Sequence[Array] | Mapping[str, Array] = {}
        for step in range(steps):
            inputs = _below(most, _drawn_inputs(model, rng))
            if reference is not None and not isinstance(outputs, Missing):  # Later steps would continue from nothing.
                try:
                    outputs = _answered_or_missing(model, reference, inputs, anew=step == 0)
                except InputError as error:
                    if step:
                        raise
                    most, inputs, outputs = smaller(
                        inputs, lambda drawn: _answered_or_missing(model, reference, drawn, anew=True), error
                    )
            yield Sample(f"seed {seed}, step {step}", inputs, outputs, step > 0)


def _below(most: int | None, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Inputs whose whole numbers are below a number, if one is known: those of 32 and 64 bits may be indexes."""
    return {
        name: array % most if most is not None and array.dtype.kind in "iu" and array.dtype.itemsize >= 4 else array
        for name, array in inputs.items()
    }


def smaller(
    inputs: Mapping[str, Array], run: Callable[[Mapping[str, Array]], _Outputs], error: NnbridgeError
) -> tuple[int, dict[str, Array], _Outputs]:
    """The bound of smaller whole numbers that a run does not refuse, such as types of tokens, they and its outputs; else the
    error."""
    for most in (4, 2, 1):
        drawn = _below(most, inputs)
        if all(np.array_equal(drawn[name], array) for name, array in inputs.items() if array.dtype.kind in "iu"):
            continue
        try:
            outputs = run(drawn)
        except (InputError, OpFailedError):
            continue
        _log.warning("whole numbers are drawn below %d: larger ones are refused (%s)", most, error.reason.found)
        return most, drawn, outputs
    raise error


def input_samples(
    model: Model, reference: Reference | Path | None, inputs: Iterable[tuple[str, Mapping[str, Array]]]
) -> Iterator[Sample]:
    """Named inputs with a reference's outputs, each from the initial states on.

    The reference may be an ``.npz`` file with the outputs, in the inputs' order: stacks ``output:NAME``, or arrays NAME of
    a single sample, as ``run -o`` writes them.
    """
    stored = _stored_outputs(model, reference) if isinstance(reference, Path) else None
    number = 0
    for label, arrays in inputs:
        if isinstance(reference, Path):
            if stored is not None and number < len(stored):
                yield Sample(label, arrays, stored[number])
        elif reference is None:
            yield Sample(label, arrays, {})
        else:
            yield Sample(label, arrays, _answered_or_missing(model, reference, arrays, anew=True))
        number += 1
    if stored is not None and number != len(stored):
        raise InputError(Reason(f"outputs of {number} samples, as many as inputs", str(len(stored)), operand=str(reference)))


def _answered_or_missing(
    model: Model, reference: Reference, inputs: Mapping[str, Array], *, anew: bool
) -> Sequence[Array] | Mapping[str, Array]:
    """A reference's outputs, from its initial states or on; :class:`Missing` where its process ended."""
    try:
        if anew:
            reference.reset()
        return answered(model, reference, inputs)
    except InputError as error:
        if error.reason.kind is not Why.ENDED:
            raise
        return Missing(error.reason)


def answered(model: Model, reference: Reference, inputs: Mapping[str, Array]) -> Sequence[Array] | Mapping[str, Array]:
    """A reference's outputs; its refusal of dimensions that the model leaves open states how to set them."""
    operands = named_inputs(model)
    try:
        return reference.run({name: sign_flipped(operands[name], value) for name, value in inputs.items()})
    except InputError as error:
        hint = "" if error.reason.kind is Why.ENDED else open_dimensions(model)
        raise InputError(replace(error.reason, found=f"{error.reason.found}; {hint}") if hint else error.reason) from error


def _stored_outputs(model: Model, path: Path) -> list[dict[str, Array]]:
    names = list(named_outputs(model))
    arrays = load_arrays(path)
    if all(name in arrays for name in names):
        return [{name: arrays[name] for name in names}]
    lengths = _lengths(arrays, [f"output:{name}" for name in names], path)
    _require_equal(lengths, path)
    return [{name: arrays[f"output:{name}"][n] for name in names} for n in range(lengths[0])]


_SHOWN = 12
"""Names of arrays in a message."""


def _lengths(arrays: Mapping[str, Array], required: Sequence[str], path: Path) -> list[int]:
    """The numbers of samples of the required arrays, in ascending order without repetitions; InputError if one is missing."""
    missing = [name for name in required if name not in arrays]
    if missing:
        rule = f"{', '.join(missing)} (run --samples writes such a file)"
        found = ", ".join([*islice(arrays, _SHOWN), *([f"{len(arrays) - _SHOWN:,} more"] if len(arrays) > _SHOWN else [])])
        raise InputError(Reason(rule, found or "no arrays", file=str(path)))
    return sorted({len(arrays[name]) if arrays[name].ndim else 0 for name in required})


def _require_equal(lengths: Sequence[int], path: Path) -> None:
    if len(lengths) > 1:
        raise InputError(Reason("as many samples in every array", " and ".join(map(str, lengths)), file=str(path)))


def sign_flipped(operand: Operand, array: Array) -> Array:
    """An array of the source file's element type as the operand's, and back: int8 that became uint8 is offset by 128."""
    if operand.source_type != "int8" or operand.type != OperandCode.TENSOR_QUANT8_ASYMM or array.dtype.itemsize != 1:
        return array
    other = np.int8 if array.dtype == np.uint8 else np.uint8
    return (array.view(np.uint8) ^ np.uint8(0x80)).view(other)


def dequantised(operand: Operand, stored: Array) -> Array:
    """The real numbers that an output's stored values stand for; values without a scale as they are."""
    if not is_quantised(operand) or stored.dtype.kind not in "iu":
        return stored
    return (stored.astype(np.float64) - operand.zero_point) * operand.scale


def is_quantised(operand: Operand) -> bool:
    """True for integers with a scale."""
    return operand.scale != 0 and operand_dtype(operand).kind in "iu"


def in_model(operand: Operand, array: Array) -> Array:
    """An array of the source file's element type as the model has it."""
    return sign_flipped(operand, array) if array.dtype == np.int8 else array


def outputs_in_model(model: Model, found: Sequence[Array] | Mapping[str, Array]) -> dict[str, Array]:
    """A reference's outputs, in order or by name, as the model has them."""
    operands = named_outputs(model)
    named = found if isinstance(found, Mapping) else dict(zip(operands, found, strict=True))
    return {name: in_model(operand, named[name]) for name, operand in operands.items()}


def stored_samples(model: Model, path: Path) -> list[Sample]:
    """Samples from an ``.npz``: arrays ``input:<name>`` and ``output:<name>``, each a stack of samples."""
    operands, outputs = named_inputs(model), list(named_outputs(model))
    arrays = load_arrays(path)
    required = [f"input:{name}" for name in operands] + [f"output:{name}" for name in outputs]
    lengths = _lengths(arrays, required, path)
    if lengths[0] == 0:
        raise InputError(Reason("at least one sample in every array", "an array without any", file=str(path)))
    _require_equal(lengths, path)
    samples = []
    for n in range(lengths[0]):
        inputs = {name: in_model(operand, arrays[f"input:{name}"][n]) for name, operand in operands.items()}
        for name, operand in operands.items():
            try:
                check_array(operand, inputs[name], "")
            except BadDataError as error:
                raise InputError(replace(error.reason, operation=str(path), operand=f"a sample of input:{name}")) from error
        samples.append(Sample(f"sample {n}", inputs, {name: arrays[f"output:{name}"][n] for name in outputs}))
    return samples


def as_samples(inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> dict[str, Array]:
    """One run's inputs and outputs as the arrays that :func:`stored_samples` reads."""
    named = {**{f"input:{name}": array for name, array in inputs.items()}, **{f"output:{n}": a for n, a in outputs.items()}}
    return {name: np.expand_dims(array, 0) for name, array in named.items()}
