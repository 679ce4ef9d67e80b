"""Time of planning, and its growth with the number of operations, which is to be linear.

    python scripts/benchmarks/benchmark_planning.py

Models of 100, 1,000 and 10,000 operations are planned over four drivers and NNAPI's CPU: every device is asked, the best
one found for each operation, steps and their models made. The time of a whole ``finish``, which prepares the steps as
well, stands beside it. Times are the processor's, so that other work on the machine counts little. Exit status 1 if a
finish takes more than 2 s for 10,000 operations or 20 ms for 100, or if planning ten times the operations takes more than
20 times as long.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from nnbridge import Compilation, ModelBuilder
from nnbridge.devices import cpu, device
from nnbridge.devices.device import Device, Performance, uniform_capabilities
from nnbridge.devices.samples import SampleDriver
from nnbridge.errors import Reason
from nnbridge.model import Model, Operation
from nnbridge.runtime.partitioner import make_steps
from nnbridge.runtime.placement import place
from nnbridge.types import OperandCode, OperationCode, PreferenceCode

CONDITIONS = (
    "input.dims[0] * input.dims[1] + {n} <= {m} or input.rank == 3",
    "input.dims[-1] % {k} < {k} and 0 <= input.rank <= 4",
    "input.type in [FLOAT32, FLOAT16] and input.elements < {m}",
    "max(input.dims[0], {n}) < {m} if input.rank == 2 else input.scale == 0",
)
"""Which all operations meet, so that every one is evaluated."""
RELU, EXP, ADD = OperationCode.RELU, OperationCode.EXP, OperationCode.ADD
SIZES = (100, 1_000, 10_000)
LIMITS = {100: 0.020, 10_000: 2.0}
"""Seconds that a finish may take."""
RULES_LIMIT = 1.0
GROWTH = 20.0
"""How much longer ten times the operations may take."""


@dataclass(frozen=True)
class Case:
    """One kind of model over one kind of devices."""

    name: str
    model: Callable[[int], Model]
    level: int
    claims: Callable[[int, Model, Operation], bool]


def chain(count: int, codes: Sequence[OperationCode] = (RELU, EXP)) -> Model:
    """Operations after one another, of these codes in turn."""
    builder = ModelBuilder("chain")
    first = previous = builder.add_operand(OperandCode.TENSOR_FLOAT32, (4,))
    for i in range(count):
        made = builder.add_operand(OperandCode.TENSOR_FLOAT32, (4,))
        builder.add_operation(codes[i % len(codes)], [previous], [made])
        previous = made
    builder.identify_inputs_and_outputs([first], [previous])
    return builder.finish()


def fan(count: int) -> Model:
    """Operations that all read one input, and a sum of what they make."""
    builder = ModelBuilder("fan")
    none = builder.add_operand(OperandCode.INT32)
    builder.set_operand_value(none, 0)
    x, total = (builder.add_operand(OperandCode.TENSOR_FLOAT32, (4,)) for _ in range(2))
    builder.add_operation(RELU, [x], [total])
    for i in range(count // 2):
        made, summed = (builder.add_operand(OperandCode.TENSOR_FLOAT32, (4,)) for _ in range(2))
        builder.add_operation((RELU, EXP)[i % 2], [x], [made])
        builder.add_operation(ADD, [total, made, none], [summed])
        total = summed
    builder.identify_inputs_and_outputs([x], [total])
    return builder.finish()


def sizes(count: int) -> Model:
    """Operations that each have a size of their own."""
    builder = ModelBuilder("sizes")
    pairs = []
    for i in range(count):
        pairs.append([builder.add_operand(OperandCode.TENSOR_FLOAT32, (1 + i % 97, 1 + i // 97)) for _ in range(2)])
        builder.add_operation(RELU, pairs[-1][:1], pairs[-1][1:])
    inputs, outputs = zip(*pairs, strict=True)
    builder.identify_inputs_and_outputs(inputs, outputs)
    return builder.finish()


def asked(model: Model, count: int) -> float:
    """The seconds in which a profile with so many conditions on RELU answers for a model."""
    rules = (CONDITIONS[n % len(CONDITIONS)].format(n=n, m=1_000_000 + n, k=2 + n) for n in range(count))
    lines = (
        "[[device]]",
        'name = "rules"',
        'source = "-"',
        "feature_level = 8",
        "[device.operations]",
        "RELU = { rules = [",
        *(f'"{rule}",' for rule in rules),
        "] }",
    )
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rules.toml"
        path.write_text("\n".join(lines))
        profile = device(str(path))
    seconds = min(_seconds(lambda: profile.supported_operations(model)) for _ in range(2))
    assert all(answer is True for answer in profile.supported_operations(model))
    return seconds


def _by_number(number: int, model: Model, operation: Operation) -> bool:
    return operation.inputs[0] % 5 == number


def _by_code(number: int, model: Model, operation: Operation) -> bool:
    return operation.type == RELU


def _all(number: int, model: Model, operation: Operation) -> bool:
    return True


CASES = (
    Case("chain, one driver takes all", chain, 8, _all),
    Case("chain, dealt to five devices", chain, 8, _by_number),
    Case("chain, drivers of level 1", chain, 1, _by_code),
    Case("fan, dealt to five devices", fan, 8, _by_number),
    Case("fan, drivers of level 1", fan, 1, _by_code),
)


def main() -> None:
    """Measure, print a table, check the limits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="plannings of each model; the quickest counts (default 3)")
    rounds = parser.parse_args().rounds
    print(f"{'model':32}{'operations':>12}{'steps':>8}{'planning':>12}{'finish':>12}{'growth':>9}")
    complaints = []
    for case in CASES:
        before = 0.0
        for size in SIZES:
            steps, planning, finish = measure(case, size, rounds)
            growth = planning / before if before else 0.0
            shown = f"{growth:8.1f}x" if before else f"{'':>9}"
            print(f"{case.name:32}{size:12,}{steps:8,}{planning * 1e3:9.1f} ms{finish * 1e3:9.1f} ms{shown}", flush=True)
            if finish > LIMITS.get(size, float("inf")):
                complaints.append(f"{case.name}, {size:,} operations: {finish:.3f} s, at most {LIMITS[size]} s allowed")
            if growth > GROWTH:
                complaints.append(f"{case.name}: 10 times the operations take {growth:.1f} times as long")
            before = planning
    for name, model in (("alike", chain(SIZES[-1], (RELU,))), ("each of its own size", sizes(SIZES[-1]))):
        seconds = asked(model, 1_000)
        print(f"1,000 conditions on each of {SIZES[-1]:,} operations, {name}: {seconds:.2f} s", flush=True)
        if seconds > RULES_LIMIT:
            complaints.append(f"1,000 conditions, operations {name}: {seconds:.2f} s, at most {RULES_LIMIT} s allowed")
    print("\n".join(complaints) or "grows linearly, within the limits")
    sys.exit(1 if complaints else 0)


def measure(case: Case, size: int, rounds: int) -> tuple[int, float, float]:
    """Steps, and the seconds of planning and of a whole finish: the quickest of several."""
    model, drivers = case.model(size), [_driver(case, number) for number in range(4)]
    devices = (*drivers, cpu())

    def plan() -> int:
        preference = PreferenceCode.FAST_SINGLE_ANSWER
        return len(make_steps(model, place(model, devices, preference), devices, preference).steps)

    def finish() -> int:
        return len(Compilation.create(model, drivers).finish().steps)

    found = [(_seconds(plan), _seconds(finish)) for _ in range(rounds)]
    return plan(), min(pair[0] for pair in found), min(pair[1] for pair in found)


def _driver(case: Case, number: int) -> Device:
    def claim(model: Model, operation: Operation) -> Reason | None:
        return None if case.claims(number, model, operation) else Reason("an operation dealt to this device")

    kind = SampleDriver if case.level > 1 else _Old
    return kind(f"driver-{number}", claim, uniform_capabilities(Performance(0.5, 0.5)), limited=False)


class _Old(SampleDriver):
    """A driver of feature level 1, which is asked about a slice."""

    feature_level = 1


def _seconds(work: Callable[[], int]) -> float:
    gc.collect()
    started = time.process_time()
    work()
    return time.process_time() - started


if __name__ == "__main__":
    main()
