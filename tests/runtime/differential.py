"""A drawn NNAPI model's answers on both kernel tiers, split over three devices, with open dimensions, and out of process."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from nnbridge.compare import seeded_inputs
from nnbridge.conformance.cases import Case, build, inputs_of, read_cases, spec_files
from nnbridge.converters import ConversionOptions
from nnbridge.cpu.executor import Executor, Limits
from nnbridge.cpu.settings import Tier
from nnbridge.devices.device import Support
from nnbridge.devices.remote.client import RemoteDevice
from nnbridge.errors import NnapiError, NnbridgeError
from nnbridge.file import load
from nnbridge.model import Model
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.storage import save
from nnbridge.types import OperandCode, OperationCode
from tests.compiled.test_random_networks import Network
from tests.conftest import shared_folder
from tests.differential import Draws, Verdict, quietly, verdict_on
from tests.runtime.drivers import Driver

Rng = np.random.Generator
Inputs = list[Any]
Answer = list[Any] | str
"""Outputs, or the class of the error."""
LARGEST = 60_000
"""Bytes of the largest file of conformance cases that is drawn from."""
RANDOM = "RANDOM_MULTINOMIAL"
KINDS = OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_QUANT8_ASYMM_SIGNED
_RANGES = {
    "TENSOR_QUANT8_ASYMM": (0, 255),
    "TENSOR_QUANT8_ASYMM_SIGNED": (-128, 127),
    "TENSOR_QUANT8_SYMM": (-128, 127),
    "TENSOR_QUANT16_ASYMM": (0, 65535),
    "TENSOR_QUANT16_SYMM": (-32768, 32767),
    "TENSOR_BOOL8": (0, 1),
}

DRAWS: Draws[Callable[[Rng, Path], tuple[Model, Inputs] | None]] = Draws()


@DRAWS.of("networks")
def network(rng: Rng, folder: Path) -> tuple[Model, Inputs] | None:
    """A network of 4 to 13 operations."""
    model = Network(int(rng.integers(1 << 31)), KINDS[int(rng.integers(len(KINDS)))]).finish()
    return None if model is None else (model, _inputs(model, rng))


@DRAWS.of("operators")
def operator(rng: Rng, folder: Path) -> tuple[Model, Inputs] | None:
    """The outcome of a drawn TFLite operator."""
    from tests.tflite.differential import DRAWS as OPERATORS
    from tests.tflite.differential import content

    name = sorted(OPERATORS)[int(rng.integers(len(OPERATORS)))]
    drawn = OPERATORS[name](rng, name)
    path = folder / "case.tflite"
    path.write_bytes(content(drawn, [one.shape or (1,) for one in drawn.outputs]))
    try:
        model = load(path, ConversionOptions(mapping="wide"))
    except NnbridgeError:  # Most outputs need other dimensions, which LiteRT allocates.
        return None
    model = replace(model, states=())  # an execution would hold them back
    return model, _inputs(model, rng)


@DRAWS.of("cases")
def conformance(rng: Rng, folder: Path) -> tuple[Model, Inputs] | None:
    """One of Android's conformance cases with other values, parameters, lifetimes and open dimensions."""
    files = _files()
    cases = _cases(files[int(rng.integers(len(files)))]) if files else []
    if not cases:
        return None
    changed = _changed(cases[int(rng.integers(len(cases)))], rng)
    try:
        return build(changed), inputs_of(changed)
    except (NnbridgeError, ValueError, OverflowError):
        return None


@cache
def _files() -> list[Path]:
    folder = shared_folder() / "vts"
    return [path for path in spec_files(folder) if path.stat().st_size < LARGEST] if folder.is_dir() else []


@cache
def _cases(path: Path) -> list[Case]:
    return [case for case in read_cases(path) if not case.expects_failure and RANDOM not in case.operations]


def _changed(case: Case, rng: Rng) -> Case:
    data = copy.deepcopy(dict(case.data))
    main = data["model"]
    operands = main["operands"]
    for operand in operands:
        bounds, outer = _RANGES.get(operand["type"]), operand["lifetime"].startswith(("SUBGRAPH_", "CONSTANT"))
        if bounds and outer and "ASYMM" in operand["type"] and rng.random() < 0.4:
            operand["zero_point"] = int(rng.choice([*bounds, sum(bounds) // 2]))
        if operand.get("scale") and operand["lifetime"] == "SUBGRAPH_OUTPUT" and rng.random() < 0.4:
            operand["scale"] = float(np.float32(operand["scale"] * rng.choice([0.01, 0.5, 1.0000001, 2, 3.7, 100])))
        if operand["lifetime"] == "SUBGRAPH_OUTPUT" and operand["type"].startswith("TENSOR") and rng.random() < 0.5:
            operand["dims"] = [0] * len(operand["dims"])
        value = operand.get("value")
        if operand["lifetime"].startswith("CONSTANT") and isinstance(value, list) and rng.random() < 0.6:
            operand["value"] = _values(operand["type"], value, rng)
    for k, index in enumerate(main["inputs"]):
        if rng.random() < 0.85:
            data["inputs"][k] = _values(operands[index]["type"], data["inputs"][k], rng)
    for k in range(len(main["inputs"]) - 1, 0, -1):
        operand = operands[main["inputs"][k]]
        if rng.random() < 0.4 and data["inputs"][k] and 0 not in operand["dims"]:
            operand.update(lifetime="CONSTANT_COPY", value=data["inputs"].pop(k))
            del main["inputs"][k]
    return Case(case.suite, case.spec, data)


def _values(type: str, old: list[Any], rng: Rng) -> list[Any]:
    """As many other values of a tensor; integers that may be parameters stay."""
    if type in ("TENSOR_FLOAT32", "TENSOR_FLOAT16"):
        drawn = rng.standard_normal(len(old)) * rng.choice([1, 1, 1, 10, 1e-3, 1e4])
        if rng.random() < 0.1:
            drawn[rng.random(len(old)) < rng.choice([0.03, 0.3, 1])] = rng.choice([np.nan, np.inf, -np.inf])
        return drawn.tolist()
    if type not in _RANGES:
        return old
    low, high = _RANGES[type]
    return (rng.integers(low, high + 1, len(old)) if rng.random() < 0.7 else rng.choice([low, high], len(old))).tolist()


def _inputs(model: Model, rng: Rng) -> Inputs:
    return list(seeded_inputs(model, int(rng.integers(1 << 31))).values())


@dataclass
class Dealt(Driver):
    """A driver that supports one of three shares of the operations, whatever they are."""

    share: int = 0
    seed: int = 0

    def supported_operations(self, model: Model) -> Sequence[Support]:
        """By a number of the operation's inputs and outputs: the same for each driver."""
        return [(sum(o.inputs) * 7 + sum(o.outputs) * 3 + self.seed) % 3 == self.share for o in model.main.operations]


def answer(run: Callable[[], Sequence[Any]]) -> Answer:
    """The outputs, or the class of nnbridge's error; any other error is a fault."""
    try:
        found = [np.array(value) for value in run()]
        return [array.view(np.uint8) if array.dtype == bool else array for array in found]
    except NnapiError as error:
        return type(error).__name__


def ways(model: Model, inputs: Inputs, seed: int, remote: RemoteDevice) -> Iterator[tuple[str, Callable[[], Sequence[Any]]]]:
    """The ways that must give the reference tier's results."""

    def compiled() -> Sequence[Any]:
        executor = Executor(model, kernels=Tier.COMPILED)
        executor.run(inputs, None, Limits())  # what a first run leaves behind must not matter
        return [arg.value for arg in executor.run(inputs, None, Limits())]

    def on(devices: Sequence[Any]) -> Sequence[Any]:
        compilation = Compilation.create(model, devices)
        compilation.finish()
        return list(Execution(compilation).run(inputs).values())

    yield "compiled", compiled
    yield "split over three devices", lambda: on([Dealt(f"driver {k}", share=k, seed=seed) for k in range(3)])
    yield "out of process", lambda: on([remote])


AVERAGES = frozenset({OperationCode.AVERAGE_POOL_2D, OperationCode.MEAN})
LAST_DIGIT = 2.0**-21
"""Four units in the last place of float32 numbers near 1."""


def float_floor(model: Model, inputs: Inputs) -> float:
    """The permitted distance of averages: last digits of the numbers averaged, which another order of the sum changes."""
    if not any(operation.type in AVERAGES for operation in model.main.operations):
        return 0.0
    sizes = [np.abs(array[np.isfinite(array)].astype(np.float64)) for array in map(np.asarray, inputs) if array.dtype.kind == "f"]
    return LAST_DIGIT * max((size.mean() for size in sizes if size.size), default=0.0)


HUGE = 1e18
"""From here on, float32 may not hold a sum of products, as the order of its terms has it (docs/compiled-kernels.md)."""


def reference(model: Model, inputs: Inputs) -> tuple[Sequence[Any], bool]:
    """The reference tier's outputs, and whether a value on the way there is huge but finite."""
    sizes = [0.0]

    def look(subgraph: int, operand: int, value: Any) -> None:
        if value.dtype.kind == "f":
            size = np.abs(value.astype(np.float64))
            sizes.append(size[np.isfinite(size)].max(initial=0))

    found = Executor(model, kernels=Tier.REFERENCE).run(inputs, None, Limits(observe=look))
    return [arg.value for arg in found], max(sizes) > HUGE


def unlike(found: Answer, expected: Answer, deep: bool, floor: float = 0.0, huge: bool = False) -> str:
    """The difference of a result from the reference tier's; integers are equal, floats within 1e-5, in networks 1e-3 of the
    range.

    Floats may differ by ``floor`` in any case, and where ``huge`` sums end at the largest number, in infinity or in NaN.
    """
    if isinstance(found, str) or isinstance(expected, str):
        return "" if isinstance(found, str) and isinstance(expected, str) else f"{_shown(found)} for {_shown(expected)}"
    share = 1e-3 if deep else 1e-5
    for ours, theirs in zip(found, expected, strict=True):
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            return f"{ours.dtype}{ours.shape} for {theirs.dtype}{theirs.shape}"
        close = ours == theirs
        if ours.dtype.kind == "f":
            with np.errstate(all="ignore"):
                wide = theirs.astype(np.float64)
                largest = np.abs(wide[np.isfinite(wide)]).max(initial=0)
                least = 2.0**-9 if ours.dtype == np.float16 else share
                near = np.abs(ours.astype(np.float64) - wide) <= max(least * max(1.0, largest), floor)
                close |= near | (np.isnan(ours) & np.isnan(theirs))
                if huge:
                    close |= ~(np.abs(ours) < HUGE) | ~(np.abs(wide) < HUGE)
        if not close.all():
            return f"{np.count_nonzero(~close)} of {close.size} {ours.dtype}"
    return ""


def _shown(found: Answer) -> str:
    return found if isinstance(found, str) else f"{len(found)} outputs"


def evaluate(number: int, seed: int, names: Sequence[str], folder: Path, keep: Path | None, remote: RemoteDevice) -> Verdict:
    """Draw the model of a number and compare."""
    rng = np.random.default_rng([seed, number])
    source = names[int(rng.integers(len(names)))]
    drawn = DRAWS[source](rng, folder)
    if drawn is None or any(not isinstance(model_operation.type, OperationCode) for model_operation in drawn[0].main.operations):
        return Verdict(number, source, "refused", "no model of NNAPI's operations")
    model, inputs = drawn
    code = "+".join(sorted({operation.type.name for operation in model.main.operations}))[:80]  # type: ignore[union-attr]
    try:
        huge = [False]

        def run() -> Sequence[Any]:
            outputs, huge[0] = reference(model, inputs)
            return outputs

        expected = answer(run)
        floor, deep = float_floor(model, inputs), source == "networks"
        found = {name: unlike(answer(way), expected, deep, floor, huge[0]) for name, way in ways(model, inputs, number, remote)}
    except Exception as error:
        found = {type(error).__name__: str(error)[-200:] or "raised"}
        expected = ""
    wrong = "; ".join(f"{name}: {text}" for name, text in found.items() if text)
    path = folder / "case.nnapi"
    if wrong:
        save(model, path)
    outcome = "differs" if wrong else "refused" if isinstance(expected, str) else "equal"
    return verdict_on(number, source, outcome, f"{code}: {wrong}" if wrong else "", path, keep, code)


def verdicts(
    numbers: range, seed: int, names: Sequence[str], mapping: str = "wide", keep: Path | None = None
) -> Iterator[Verdict]:
    """The verdicts on the models of these numbers."""
    remote = RemoteDevice.process("tests.devices.broken:GOOD")
    try:
        with quietly() as folder:
            for number in numbers:
                yield evaluate(number, seed, names, folder, keep, remote)
    finally:
        remote.close()
