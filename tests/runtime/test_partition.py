"""Counterparts of TestPartitioning.cpp, under its names.

Those of control flow stand in test_control_flow.py, those of caching in test_caching.py.
"""

from __future__ import annotations

import numpy as np
import pytest

from nnbridge.devices.device import UNLISTED, Capabilities, Performance, uniform_capabilities
from nnbridge.errors import BadDataError, NnapiError, OpFailedError, OutputInsufficientSizeError
from nnbridge.model import Model
from nnbridge.runtime.compilation import Compilation, PartitioningMode
from nnbridge.runtime.execution import Execution
from nnbridge.types import OperandCode, OperationCode
from tests.runtime.drivers import CannotPrepare, Driver, FailsToExecute
from tests.runtime.planning import FLOAT, Graph, Picky, compiled, kind_of, picky, places, program

CPU = "nnapi-reference"
INT = OperandCode.TENSOR_INT32
UNKNOWN = (0,)


def step(compilation: Compilation, number: int) -> tuple[str, str, str, str]:
    """A step: its device, inputs, outputs, and operations as ``KIND(inputs)->output``."""
    plan = compilation.plan
    found = plan.steps[number]
    main = found.model.main

    def names(indexes: tuple[int, ...]) -> str:
        return " ".join(main.operands[i].name for i in indexes if main.operands[i].name)

    operations = sorted(f"{kind_of(found.model, o)}({names(o.inputs)})->{names(o.outputs)}" for o in main.operations)
    return plan.devices[found.device].name, names(main.inputs), names(main.outputs), ", ".join(operations)


def two_operations(dims: tuple[int, ...] = (2,)) -> Model:
    """``o4 = ADD1(ADD0(o0, o1), o3)``."""
    graph = Graph()
    o0, o1 = graph.operand("o0"), graph.operand("o1")
    o2 = graph.add("ADD0", [o0, o1], "o2", dims)
    o3 = graph.operand("o3")
    return graph.finish([o0, o1, o3], [graph.add("ADD1", [o2, o3], "o4")])


# -- PartitioningTest ------------------------------------------------------------------------------------------------


def test_simple_model() -> None:
    model = two_operations()
    assert program(compiled(model, picky("bad", 0.9), picky("good", 0.5))) == ["good"]
    assert program(compiled(model, picky("bad", 1.1), picky("bad2", 1.0))) == [CPU]
    compound = compiled(model, picky("0", 0.9, "ADD0"), picky("1", 0.5, "ADD1"))
    assert step(compound, 0) == ("0", "o0 o1", "o2", "ADD0(o0 o1)->o2")
    # Inputs of the model come before temporaries of other steps.
    assert step(compound, 1) == ("1", "o3 o2", "o4", "ADD1(o2 o3)->o4")


def four_levels(*figures: float) -> list[Picky]:
    """Drivers of feature levels 1 to 4 that take everything at theirs."""
    return [picky(f"V1_{level - 1}", figure, level=level) for level, figure in enumerate(figures, 1)]


def test_slice_model() -> None:
    graph = Graph()
    o0, o1 = graph.operand("o0"), graph.operand("o1")
    o2, o3 = graph.add("ADD0", [o0, o1], "o2"), graph.add("ADD1", [o0, o1], "o3")
    o4 = graph.add("SUB0", [o0, o1], "o4")
    o5 = graph.add("MAXIMUM", [o2, o3], "o5")
    o6 = graph.add("HARD_SWISH", [o2], "o6")
    model = graph.finish([o0, o1], [o2, o4, o5, o6])
    assert program(compiled(model, *four_levels(0.8, 0.7, 0.6, 0.5))) == ["V1_3"]
    compilation = compiled(model, *four_levels(0.6, 0.7, 0.8, 0.9))
    assert [step(compilation, k) for k in range(len(compilation.plan.steps))] == [
        ("V1_1", "o0 o1", "o4", "SUB0(o0 o1)->o4"),
        ("V1_0", "o0 o1", "o2 o3", "ADD0(o0 o1)->o2, ADD1(o0 o1)->o3"),
        ("V1_3", "o2", "o6", "HARD_SWISH(o2)->o6"),
        # Temporaries come before outputs of the model.
        ("V1_2", "o3 o2", "o5", "MAXIMUM(o2 o3)->o5"),
    ]


def test_slice_model_to_empty() -> None:
    graph = Graph()
    o0 = graph.operand("o0")
    model = graph.finish([o0], [graph.add("HARD_SWISH", [o0], "o1")])
    drivers = four_levels(0.6, 0.7, 0.8, 0.9)
    assert program(compiled(model, *drivers)) == ["V1_3"]
    assert [len(driver.asked) for driver in drivers] == [0, 0, 0, 1]


def test_cpu() -> None:
    graph = Graph()
    o0, o1 = graph.operand("o0"), graph.operand("o1")
    o2 = graph.add("ADD2", [o0, o1], "o2")
    o3 = graph.add("ADD2", [o0, o2], "o3")
    o4 = graph.add("ADD1", [o0, o3], "o4")
    o5 = graph.add("ADD1", [o2, o4], "o5")
    o6 = graph.operand("o6")
    o7 = graph.add("ADD2", [o3, o5], "o7")
    o8 = graph.add("ADD2", [o6, o7], "o8")
    compilation = compiled(graph.finish([o0, o1, o6], [o4, o8]), picky("1", 0.5, "ADD2"))
    assert [step(compilation, k) for k in range(3)] == [
        ("1", "o0 o1", "o2 o3", "ADD2(o0 o1)->o2, ADD2(o0 o2)->o3"),
        (CPU, "o0 o3 o2", "o4 o5", "ADD1(o0 o3)->o4, ADD1(o2 o4)->o5"),
        ("1", "o6 o3 o5", "o8", "ADD2(o3 o5)->o7, ADD2(o6 o7)->o8"),
    ]


@pytest.mark.parametrize("mode", PartitioningMode)
def test_set_partitioning(mode: PartitioningMode) -> None:
    # The driver takes the first operation and then fails to prepare it.
    driver = CannotPrepare("hw", frozenset({OperationCode.ADD}))
    model = two_operations(UNKNOWN)
    if mode is PartitioningMode.WITHOUT_FALLBACK:
        with pytest.raises(OpFailedError):
            compiled(model, driver, mode=mode)
        return
    compilation = compiled(model, driver, mode=mode)
    assert program(compilation) == [CPU]
    assert bool(driver.asked) == (mode is PartitioningMode.WITH_FALLBACK)


def test_model_output_as_step_model_input() -> None:
    graph = Graph()
    o0, o1 = graph.operand("o0"), graph.operand("o1")
    o2 = graph.add("ADD0", [o0, o1], "o2")
    model = graph.finish([o0, o1], [o2, graph.add("ADD1", [o2, o2], "o3")])
    compilation = compiled(model, picky("0", 0.5, "ADD0"), picky("1", 0.5, "ADD1"))
    assert step(compilation, 0) == ("0", "o0 o1", "o2", "ADD0(o0 o1)->o2")
    assert step(compilation, 1) == ("1", "o2", "o3", "ADD1(o2 o2)->o3")
    x = np.array([1, -2], np.float32)
    outputs = Execution(compilation).run([x, x])
    np.testing.assert_array_equal(outputs["o2"], 2 * x)
    np.testing.assert_array_equal(outputs["o3"], [4, 0])


def oem_model(type: int = FLOAT, dims: tuple[int, ...] = (2,), **quantisation: float) -> Model:
    """The OEM operation alone, on an operand of some type."""
    graph = Graph()
    operands = [graph.builder.add_operand(type, dims, **quantisation) for _ in range(2)]  # type: ignore[arg-type]
    graph.builder.add_operation(OperationCode.OEM_OPERATION, operands[:1], operands[1:])
    return graph.finish(operands[:1], operands[1:])


class Oem(FailsToExecute):
    """Takes and prepares the OEM operation, at figures of its own; nothing computes it."""

    def __init__(self, name: str, figures: Capabilities) -> None:
        super().__init__(name, frozenset({OperationCode.OEM_OPERATION}))
        self.figures = figures

    @property
    def capabilities(self) -> Capabilities:
        return self.figures


def test_oem_operations() -> None:
    model = oem_model()
    bad, good = (Oem(name, uniform_capabilities(Performance(f, f))) for name, f in (("bad", 1.5), ("good", 1.2)))
    assert places(compiled(model, bad, picky("none", 0.5), good)) == ["good"]
    for drivers in ([picky("none", 0.5)], []):
        with pytest.raises(BadDataError):
            compiled(model, *drivers)
    with pytest.raises(NnapiError):
        compiled(model, CannotPrepare("indecisive", frozenset({OperationCode.OEM_OPERATION})))


class Rated(Driver):
    """Takes everything at figures of its own."""

    def __init__(self, name: str, figures: Capabilities) -> None:
        super().__init__(name)
        self.figures = figures

    @property
    def capabilities(self) -> Capabilities:
        return self.figures


def test_relaxed_fp() -> None:
    def rated(name: str, full: float, relaxed: float) -> Rated:
        figures = (Performance(figure, figure) for figure in (full, full, relaxed))
        return Rated(name, uniform_capabilities(*figures))

    for relax, expected in ((False, "f32"), (True, "f16")):
        graph = Graph()
        graph.builder.relax_computation_float32_to_float16(relax)
        o0, o1 = graph.operand(), graph.operand()
        model = graph.finish([o0, o1], [graph.add("ADD0", [o0, o1])])
        assert program(compiled(model, rated("f32", 0.8, 0.9), rated("f16", 0.9, 0.8))) == [expected]


_RATED = [code for code in OperandCode if code is not OperandCode.MODEL]


def _quantisation(code: OperandCode) -> dict[str, float]:
    return {"scale": 1.0} if "QUANT" in code.name and "PER_CHANNEL" not in code.name else {}


@pytest.mark.parametrize("code", [code for code in _RATED if "PER_CHANNEL" not in code.name], ids=lambda code: code.name)
def test_perf(code: OperandCode) -> None:
    tensor = code.name.startswith("TENSOR")
    model = oem_model(code, (2,) if tensor else (), **_quantisation(code))
    base = {rated: Performance(0.5, 0.5) for rated in _RATED}
    for figure, expected in ((0.25, "other"), (0.75, "base")):
        other = base | {code: Performance(figure, figure)}
        assert program(compiled(model, Oem("base", Capabilities(base)), Oem("other", Capabilities(other)))) == [expected]


def test_zero_input_step_model() -> None:
    graph = Graph()
    zero = graph.constant([0.0, 0.0], FLOAT, (2,))
    o1, o2 = graph.add("HARD_SWISH", [zero], "o1"), graph.operand("o2")
    model = graph.finish([o2], [graph.add("ADD1", [o1, o2], "o3")])
    compilation = compiled(model, picky("A", 0.8), picky("B", 0.5, "ADD1"))
    assert program(compilation) == [CPU]
    assert "a step with inputs" in str(compilation.plan.fallback)


def test_zero_output_step_model() -> None:
    graph = Graph()
    o0, o2 = graph.operand("o0"), graph.operand("o2")
    o1 = graph.add("HARD_SWISH", [o0], "o1")
    graph.add("ADD1", [o1, o2], "o3")
    model = graph.finish([o0, o2], [o1])
    compilation = compiled(model, picky("A", 0.8), picky("B", 0.5, "ADD1"))
    assert program(compilation) == [CPU]
    assert "a step with outputs" in str(compilation.plan.fallback)


# -- DynamicTemporariesTest ------------------------------------------------------------------------------------------


def padded_twice(o2: bool, o3: bool, o4: bool, unknown: tuple[int, ...] = ()) -> Model:
    """``o2, o3 = PAD(x), PAD(x); o4 = o2 + o3``; each of shape [4], or unknown where the flag is False."""
    graph = Graph()
    x, paddings = graph.operand("x"), graph.operand("paddings", (0, 0), INT)
    dims = [(4,) if known else unknown for known in (o2, o3, o4)]
    first, second = graph.add("PAD", [x, paddings], "o2", dims[0]), graph.add("PAD", [x, paddings], "o3", dims[1])
    return graph.finish([x, paddings], [first, graph.add("ADD0", [first, second], "o4", dims[2])])


def pad_and_add(level: int = 8) -> list[Picky]:
    return [picky("pad", 0.9, "PAD", level=level), picky("add", 0.9, "ADD0", level=level)]


def run_padded(compilation: Compilation, room2: int = 4, room4: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Outputs o2 and o4 in buffers of so many elements."""
    execution = Execution(compilation)
    execution.set_input(0, np.array([3, 5], np.float32))
    execution.set_input(1, np.array([[1, 1]], np.int32))
    o2, o4 = np.full(room2, -1, np.float32), np.full(room4, -1, np.float32)
    execution.set_output(0, o2)
    execution.set_output(1, o4)
    execution.compute()
    return o2, o4


def check_padded(compilation: Compilation) -> None:
    o2, o4 = run_padded(compilation)
    np.testing.assert_array_equal(o2, [0, 3, 5, 0])
    np.testing.assert_array_equal(o4, [0, 6, 10, 0])


def without_fallback(model: Model, *drivers: Driver) -> Compilation:
    return compiled(model, *drivers, mode=PartitioningMode.WITHOUT_FALLBACK)


DYNAMIC = {
    "model_outputs_sufficient_size": (False, True, False),
    "dynamic_temporaries_unspecified_outputs": (False, False, False),
    "dynamic_temporaries_specified_outputs": (True, False, True),
}


@pytest.mark.parametrize("known", DYNAMIC.values(), ids=DYNAMIC)
@pytest.mark.parametrize("level", [3, 8])
def test_dynamic_temporaries(known: tuple[bool, bool, bool], level: int) -> None:
    compilation = without_fallback(padded_twice(*known), *pad_and_add(level))
    assert [step(compilation, k) for k in range(2)] == [
        ("pad", "x paddings", "o2 o3", "PAD(x paddings)->o2, PAD(x paddings)->o3"),
        ("add", "o3 o2", "o4", "ADD0(o2 o3)->o4"),
    ]
    check_padded(compilation)


def test_model_outputs_sufficient_size_v1_1() -> None:
    # Disabled in AOSP: there, drivers below HAL 1.2 get requests with outputs of unknown dimensions that they may not see.
    check_padded(without_fallback(padded_twice(False, True, False, UNKNOWN), *pad_and_add(2)))


def test_dynamic_temporaries_specified_outputs_v1_1() -> None:
    model = padded_twice(True, False, True, UNKNOWN)
    with pytest.raises(OpFailedError, match="known sizes"):
        without_fallback(model, *pad_and_add(2))
    compilation = compiled(model, *pad_and_add(2))
    assert program(compilation) == [CPU]
    check_padded(compilation)


INSUFFICIENT = {
    "model_outputs_insufficient_size_with_dynamic_temporary": ((False, False, False), 3, 3),
    "model_outputs_insufficient_size_without_dynamic_temporary": ((False, True, False), 3, 3),
    "model_output_2_insufficient_size_without_dynamic_temporary": ((False, True, False), 3, 4),
    "model_output_4_insufficient_size_without_dynamic_temporary": ((False, True, False), 4, 3),
}


@pytest.mark.parametrize(("known", "room2", "room4"), INSUFFICIENT.values(), ids=INSUFFICIENT)
def test_model_outputs_insufficient_size(known: tuple[bool, bool, bool], room2: int, room4: int) -> None:
    with pytest.raises(OutputInsufficientSizeError):
        run_padded(without_fallback(padded_twice(*known), *pad_and_add()), room2, room4)


# -- PerfTest, MemoryStepRoleTest ------------------------------------------------------------------------------------


def test_perf_lookup() -> None:
    capabilities = Capabilities({code: Performance(float(code), float(code)) for code in _RATED})
    for code in _RATED:
        assert capabilities.of(code, relaxed=False).exec_time == float(code)
    assert capabilities.of(0x1_0000, relaxed=False).exec_time == UNLISTED


def test_memory_step_roles_without_control_flow() -> None:
    graph = Graph()
    o0, o1 = graph.operand("o0"), graph.operand("o1")
    o2, o3 = graph.add("ADD0", [o0, o1], "o2"), graph.operand("o3")
    o4 = graph.add("ADD1", [o1, o3], "o4")
    o5 = graph.add("ADD2", [o2, o4], "o5")
    compilation = compiled(
        graph.finish([o0, o1, o3], [o2, o5]), picky("A", 0.8), picky("B", 0.5, "ADD1"), picky("C", 0.5, "ADD2")
    )
    assert program(compilation) == ["B", "A", "C"]
    plan = compilation.plan
    names = {operand.name: i for i, operand in enumerate(compilation.model.main.operands)}

    def roles(name: str) -> set[str]:
        found = plan.partition.roles((0, names[name]))
        return {f"{plan.devices[plan.steps[role.step].device].name} {role.direction} {role.index}" for role in found}

    assert roles("o0") == {"A input 0"}
    assert roles("o1") == {"A input 1", "B input 0"}
    assert roles("o3") == {"B input 1"}
    assert roles("o2") == {"A output 0", "C input 1"}
    assert roles("o5") == {"C output 0"}
    assert roles("o4") == {"B output 0", "C input 0"}
