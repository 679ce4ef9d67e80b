"""Conformance cases: reading them, building their models, checking outputs as Android's harness does.

A folder holds one gzipped JSON file per spec, ``<suite>/<spec>.json.gz``; see the README beside the data for the format.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nnbridge.budget import parse_json, unpacked_limit
from nnbridge.builder import ModelBuilder
from nnbridge.conformance.outcome import Failure
from nnbridge.conformance.schema import SPECIAL, schema_error
from nnbridge.errors import NO_SUCH_FILE, InputError, Reason, cannot_read, similar
from nnbridge.model import Model
from nnbridge.reading import open_file
from nnbridge.records import dataclass
from nnbridge.types import TYPE_FACTS, OperandCode, OperationCode

Array = npt.NDArray[Any]

FLOAT32_ATOL, FLOAT32_RTOL = 1e-5, 5 * 2.0**-23
MAX_BYTES, _TIMES = 16 << 20, 4
"""Of a file of cases, unpacked; the largest of Android's has 3.5 million."""
HALF_TOLERANCE = 5 * 2.0**-10


@dataclass(frozen=True)
class Case:
    """One conformance case."""

    suite: str
    spec: str
    data: Mapping[str, Any]
    true_dims: tuple[tuple[int, ...], ...] | None = None
    """Dimensions of the main model's operands, where the model itself leaves them open."""

    def dims(self, operand: int) -> tuple[int, ...]:
        """Dimensions of an operand of the main model in the case's data."""
        return self.true_dims[operand] if self.true_dims else tuple(self.data["model"]["operands"][operand]["dims"])

    @property
    def name(self) -> str:
        """Unique within the spec."""
        return str(self.data["name"])

    @property
    def expects_failure(self) -> bool:
        """True if the model must be refused at build, compilation or execution."""
        return bool(self.data["expect_failure"])

    @property
    def operations(self) -> tuple[str, ...]:
        """The operations of the main model, each once."""
        return tuple(dict.fromkeys(operation["type"] for operation in self.data["model"]["operations"]))

    @property
    def subgraphs(self) -> list[Mapping[str, Any]]:
        """The main model, then the referenced ones."""
        model = self.data["model"]
        return [model, *model.get("referenced", [])]


def spec_files(folder: Path, suites: Sequence[str] = (), specs: Sequence[str] = ()) -> list[Path]:
    """The spec files under a folder, in order, or one file; ``suites`` and ``specs`` pick some by name or pattern."""
    found = [folder] if os.path.isfile(folder) else sorted(folder.glob("*/*.json.gz")) if os.path.isdir(folder) else []
    if not found:
        there = "none" if os.path.exists(folder) else NO_SUCH_FILE
        raise InputError(Reason("a folder with <suite>/<spec>.json.gz files", there, operand=str(folder)))
    known_suites = sorted({file.parent.name for file in found})
    unknown = next((suite for suite in suites if not any(fnmatchcase(name, suite) for name in known_suites)), None)
    if unknown is not None:
        raise InputError(Reason(f"a suite of {folder} ({', '.join(known_suites)})", unknown, operand="suite"))
    inside = [file for file in found if not suites or _named(file.parent.name, suites)]
    known_specs = sorted({_spec_name(file) for file in inside})
    for spec in specs:
        if not any(fnmatchcase(name, spec) for name in known_specs):
            near = ", ".join(similar(spec, known_specs, least=0.6)) or f"{known_specs[0]} to {known_specs[-1]}"
            rule = f"a spec of {', '.join(suites) or folder} ({len(known_specs)}, such as {near})"
            raise InputError(Reason(rule, spec, operand="spec"))
    return [file for file in inside if not specs or _named(_spec_name(file), specs)]


def _named(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _spec_name(path: Path) -> str:
    return path.name.removesuffix(".json.gz")


def read_cases(path: Path) -> Iterator[Case]:
    """The cases of one spec file."""
    try:
        with open_file(path) as plain, gzip.open(plain) as file:
            most = unpacked_limit(path.stat().st_size, MAX_BYTES, _TIMES)
            text = file.read(most + 1)
        if len(text) > most:
            raise ValueError(f"more than {most:,} bytes")
        content = parse_json(text)
    except (OSError, ValueError, EOFError, zlib.error, RecursionError) as error:
        raise InputError(Reason("a gzipped JSON spec", cannot_read(error), file=str(path))) from error
    wrong = schema_error(content)
    if wrong is not None:
        raise InputError(replace(wrong, operand=f"{path}: {wrong.operand}"))
    for case in content["cases"]:
        yield Case(path.parent.name, _spec_name(path), case)


def type_of(operand: Mapping[str, Any]) -> OperandCode:
    """An operand's type; drivers' name SUBGRAPH is the NDK's MODEL."""
    return OperandCode.MODEL if operand["type"] == "SUBGRAPH" else OperandCode[operand["type"]]


def _real(values: Sequence[Any]) -> list[Any]:
    """Numbers, those that JSON lacks included."""
    return [SPECIAL.get(v, v) if isinstance(v, str) else v for v in values]


def _numbers(values: Sequence[Any], dtype: type) -> Array:
    return np.array(_real(values), dtype)


def array_of(values: Sequence[Any], code: int) -> Array:
    """Flat values as an array of a type's elements."""
    dtype = TYPE_FACTS[code].dtype
    assert dtype is not None
    with np.errstate(over="ignore"):
        return _numbers(values, np.float64 if dtype.kind == "f" else np.int64).astype(dtype)


def build(case: Case) -> Model:
    """The case's model, through the ordinary builder."""
    main, *referenced = case.subgraphs
    # A referenced model may refer to later ones: build from the last to the first.
    finished: dict[int, Model] = {}
    for index in reversed(range(len(referenced))):
        finished[index] = _build_subgraph(referenced[index], finished, case, inner=True)
    return _build_subgraph(main, finished, case, inner=False)


def _build_subgraph(subgraph: Mapping[str, Any], referenced: Mapping[int, Model], case: Case, *, inner: bool) -> Model:
    builder = ModelBuilder(f"{case.suite}/{case.spec}/{case.name}")
    for i, operand in enumerate(subgraph["operands"]):
        code = type_of(operand)
        (scale,) = _real([operand.get("scale", 0.0)])
        builder.add_operand(code, operand["dims"], scale=scale, zero_point=operand.get("zero_point", 0))
        quant = operand.get("channel_quant")
        if quant:
            builder.set_operand_symm_per_channel_quant_params(i, _real(quant["scales"]), quant["channel_dim"])
        value = operand.get("value")
        if operand["lifetime"] == "SUBGRAPH":
            builder.set_operand_value_from_model(i, referenced[int(value[0] if isinstance(value, list) else value)])
        elif operand["lifetime"] == "NO_VALUE" or (operand["lifetime"].startswith("CONSTANT") and value == []):
            builder.set_operand_value(i, None)
        elif value is not None:
            builder.set_operand_value(i, array_of(value, code))
    for operation in subgraph["operations"]:
        builder.add_operation(OperationCode[operation["type"]], operation["inputs"], operation["outputs"])
    builder.identify_inputs_and_outputs(subgraph["inputs"], subgraph["outputs"])
    if not inner or case.data["relaxed"]:
        builder.relax_computation_float32_to_float16(case.data["relaxed"])
    return builder.finish()


def inputs_of(case: Case) -> list[Array | None]:
    """The case's inputs in model-input order; an empty list is an omitted input."""
    operands = case.data["model"]["operands"]
    arrays: list[Array | None] = []
    for i, values in zip(case.data["model"]["inputs"], case.data["inputs"], strict=True):
        if not values:
            arrays.append(None)
            continue
        arrays.append(array_of(values, type_of(operands[i])).reshape(case.dims(i)))
    return arrays


def tolerance(case: Case, code: int, number: int = 0) -> tuple[float, float]:
    """Absolute and relative tolerance of an output: the case's own, or its type's; nnbridge requires INT32 to be exact."""
    if "tolerances" in case.data:
        atol, rtol = case.data["tolerances"][number]
        return atol, rtol
    half = case.data["relaxed"] or any(
        operand["type"] == "TENSOR_FLOAT16" for subgraph in case.subgraphs for operand in subgraph["operands"]
    )
    if code in (OperandCode.TENSOR_FLOAT16, OperandCode.FLOAT16):
        return HALF_TOLERANCE, HALF_TOLERANCE
    if code in (OperandCode.TENSOR_FLOAT32, OperandCode.FLOAT32):
        return (HALF_TOLERANCE, HALF_TOLERANCE) if half else (FLOAT32_ATOL, FLOAT32_RTOL)
    if code in (OperandCode.TENSOR_INT32, OperandCode.INT32, OperandCode.TENSOR_BOOL8, OperandCode.BOOL):
        return 0.0, 0.0
    return 1.0, 0.0


def check_outputs(case: Case, outputs: Sequence[Array]) -> Failure | None:
    """The first output value outside tolerance, or a wrong shape; None if all outputs are right."""
    if case.data.get("multinomial_tolerance"):
        return _check_multinomial(case, outputs)
    operands = case.data["model"]["operands"]
    numbered = enumerate(zip(case.data["model"]["outputs"], case.data["outputs"], outputs, strict=True))
    for number, (i, expected, actual) in numbered:
        dims = case.dims(i)
        # A dimension of 0 is unknown, unless the case has no values.
        exact = 0 not in dims or expected == []
        if len(dims) != actual.ndim or any(d != found and (d or exact) for d, found in zip(dims, actual.shape, strict=True)):
            return Failure(f"output {number}: dimensions {list(dims)}, found {list(actual.shape)}", number)
        failure = None if expected is None else _check_output(case, number, type_of(operands[i]), expected, actual)
        if failure is not None:
            return failure
    return None


def _check_output(case: Case, number: int, code: OperandCode, expected: Sequence[Any], actual: Array) -> Failure | None:
    reference, got = _numbers(expected, np.float64), actual.reshape(-1).astype(np.float64)
    if reference.shape != got.shape:
        return Failure(f"output {number}: {reference.size} values, found {got.size}", number)
    atol, rtol = tolerance(case, code, number)
    with np.errstate(invalid="ignore"):
        allowed = atol + rtol * np.abs(reference)
        off = ~((np.abs(got - reference) <= allowed) | (got == reference))
    if not off.any():
        return None
    k = int(np.argmax(off))
    message = f"output {number} at {k}: expected {reference[k]:g}, found {got[k]:g} ({int(off.sum())} of {off.size} off)"
    return Failure(message, number, k, float(reference[k]), float(got[k]), float(allowed[k]))


def _check_multinomial(case: Case, outputs: Sequence[Array]) -> Failure | None:
    """RANDOM_MULTINOMIAL: frequencies of the classes against the softmax of the logits, row by row."""
    allowed = float(case.data["multinomial_tolerance"])
    first = case.data["model"]["inputs"][0]
    values = array_of(case.data["inputs"][0], type_of(case.data["model"]["operands"][first])).astype(np.float64)
    logits: Array = values.reshape(case.dims(first))
    samples, classes = outputs[0], logits.shape[-1]
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    reference = weights / weights.sum(axis=-1, keepdims=True)
    if samples.ndim != 2 or len(samples) != len(logits) or samples.size == 0:
        return Failure(f"output 0: {len(logits)} rows of classes, found dimensions {list(samples.shape)}", 0)
    if samples.min() < 0 or samples.max() >= classes:
        return Failure(f"output 0: classes from 0 to {classes - 1}, found from {samples.min()} to {samples.max()}", 0)
    got = np.stack([np.bincount(row, minlength=classes) / len(row) for row in samples])
    worst = float(np.abs(got - reference).max())
    return None if worst <= allowed else Failure(f"class frequencies off by {worst:g}", 0, -1, None, worst, allowed)
