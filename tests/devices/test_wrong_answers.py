"""A device cannot hurt the runtime: whatever it answers becomes the error that Android gives, and the CPU takes over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnbridge import devices
from nnbridge.devices.checks import description_fault
from nnbridge.devices.cpu import CpuPreparedModel
from nnbridge.devices.device import Capabilities, OutputShape, Performance, PreparedModel, Request, Result
from nnbridge.errors import ERROR_OF_CODE, BadDataError, InputError, NnapiError, OpFailedError, Reason
from nnbridge.model import Model
from nnbridge.runtime.compilation import Compilation, supported_operations
from nnbridge.runtime.execution import Execution
from nnbridge.types import OperandCode, ResultCode
from tests.graphs import add_then
from tests.runtime.drivers import Driver

X = np.array([[-1, 0, 1, 2]], np.float32)
RIGHT = Result(ResultCode.NO_ERROR, (OutputShape((1, 4)),))


@dataclass
class Does(Driver):
    """A driver that does this when it is asked, prepares or runs; the rest is right."""

    supports: Callable[[Model], Any] | None = None
    prepares: Callable[[Model], Any] | None = None
    runs: Callable[[Request], Any] | None = None

    def supported_operations(self, model: Model) -> Any:
        return super().supported_operations(model) if self.supports is None else self.supports(model)

    def prepare_model(self, model: Model, *args: object, **options: object) -> Any:
        if self.prepares is not None:
            return self.prepares(model)
        return _Prepared(CpuPreparedModel(model).execute if self.runs is None else self.runs)


class _Prepared(PreparedModel):
    def __init__(self, runs: Callable[[Request], Any]) -> None:
        self._runs = runs

    def execute(self, request: Request) -> Any:
        return self._runs(request)


def raises(error: BaseException) -> Callable[[object], Any]:
    def fail(_: object) -> Any:
        raise error

    return fail


def compiled(device: Driver, *, fallback: bool = False) -> Compilation:
    make = Compilation.create if fallback else Compilation.create_for_devices
    compilation = make(add_then(), [device])
    compilation.finish()
    return compilation


# -- getSupportedOperations --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        None,
        True,
        1,
        [],
        [True, True],
        [None],
        ["yes"],
        [1],
        [[True]],
        {"ADD": True},
        raises(MemoryError()),
        raises(SystemExit(0)),
    ],
    ids=lambda answer: "raises" if callable(answer) else repr(answer),
)
def test_d13_a_wrong_answer_of_get_supported_operations_supports_nothing(answer: Any) -> None:
    device = Does("d", supports=answer if callable(answer) else lambda model: answer)
    assert supported_operations(add_then(), [device]) == [False]
    assert compiled(device, fallback=True).plan.device_of(0).kind == "cpu"


@pytest.mark.parametrize("answer", [(True,), np.array([True]), iter([True])], ids=["tuple", "array", "iterator"])
def test_any_sequence_of_booleans_is_an_answer(answer: Any) -> None:
    assert compiled(Does("d", supports=lambda model: [True])).plan.device_of(0).name == "d"
    assert supported_operations(add_then(), [Does("d", supports=lambda model: answer)]) == [True]


# -- prepareModel ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "does",
    [lambda model: None, lambda model: 7, raises(ZeroDivisionError()), raises(SystemExit(3)), raises(RecursionError())],
    ids=["None", "7", "ZeroDivisionError", "SystemExit", "RecursionError"],
)
def test_a_wrong_prepared_model_is_op_failed_and_the_cpu_takes_over(does: Callable[[Model], Any]) -> None:
    with pytest.raises(OpFailedError):
        compiled(Does("d", prepares=does))
    compilation = compiled(Does("d", prepares=does), fallback=True)
    assert np.array_equal(Execution(compilation).run([X])["y"], X + 1)


CODES = {
    ResultCode.OUT_OF_MEMORY: ResultCode.OP_FAILED,
    ResultCode.INCOMPLETE: ResultCode.OP_FAILED,
    ResultCode.UNEXPECTED_NULL: ResultCode.BAD_DATA,
    ResultCode.BAD_DATA: ResultCode.BAD_DATA,
    ResultCode.OP_FAILED: ResultCode.OP_FAILED,
    ResultCode.BAD_STATE: ResultCode.OP_FAILED,
    ResultCode.UNMAPPABLE: ResultCode.OP_FAILED,
    ResultCode.UNAVAILABLE_DEVICE: ResultCode.UNAVAILABLE_DEVICE,
    ResultCode.MISSED_DEADLINE_TRANSIENT: ResultCode.MISSED_DEADLINE_TRANSIENT,
    ResultCode.MISSED_DEADLINE_PERSISTENT: ResultCode.MISSED_DEADLINE_PERSISTENT,
    ResultCode.RESOURCE_EXHAUSTED_TRANSIENT: ResultCode.RESOURCE_EXHAUSTED_TRANSIENT,
    ResultCode.RESOURCE_EXHAUSTED_PERSISTENT: ResultCode.RESOURCE_EXHAUSTED_PERSISTENT,
    ResultCode.DEAD_OBJECT: ResultCode.DEAD_OBJECT,
}


@pytest.mark.parametrize(("said", "seen"), CODES.items(), ids=lambda code: code.name)
def test_t1_t2_errors_of_drivers_reach_the_client_as_drivers_have_them(said: ResultCode, seen: ResultCode) -> None:
    error = ERROR_OF_CODE[said]("the driver's reason")
    with pytest.raises(NnapiError, match="the driver's reason") as prepared:
        compiled(Does("d", prepares=raises(error)))
    with pytest.raises(NnapiError, match="the driver's reason") as raised:
        Execution(compiled(Does("d", runs=raises(error)))).run([X])
    with pytest.raises(NnapiError, match="the driver's reason") as reported:
        Execution(compiled(Does("d", runs=lambda r: Result(said, reason=error.reason)))).run([X])
    assert [found.value.code for found in (prepared, raised, reported)] == [seen] * 3


# -- execute -----------------------------------------------------------------------------------------------------------

WRONG: dict[str, Any] = {
    "None": None,
    "a code alone": ResultCode.NO_ERROR,
    "an unknown code": Result(99, RIGHT.shapes),  # type: ignore[arg-type]
    "no code": Result("fine", RIGHT.shapes),  # type: ignore[arg-type]
    "too many shapes": Result(ResultCode.NO_ERROR, RIGHT.shapes * 2),
    "shapes that are none": Result(ResultCode.NO_ERROR, ((1, 4),)),  # type: ignore[arg-type]
    "no sequence of shapes": Result(ResultCode.NO_ERROR, 4),  # type: ignore[arg-type]
    "other dimensions": Result(ResultCode.NO_ERROR, (OutputShape((4, 1)),)),
    "another rank": Result(ResultCode.NO_ERROR, (OutputShape((4,)),)),
    "negative dimensions": Result(ResultCode.NO_ERROR, (OutputShape((-1, 4)),)),
    "fractions": Result(ResultCode.NO_ERROR, (OutputShape((1.0, 4)),)),  # type: ignore[arg-type]
    "success without space": Result(ResultCode.NO_ERROR, (OutputShape((1, 4), False),)),
    "space without success": Result(ResultCode.OUTPUT_INSUFFICIENT_SIZE, (OutputShape((1, 4)),)),
    "shapes beside an error": Result(ResultCode.BAD_DATA, RIGHT.shapes),
    "ZeroDivisionError": raises(ZeroDivisionError()),
    "SystemExit": raises(SystemExit(1)),
    "MemoryError": raises(MemoryError()),
}


@pytest.mark.parametrize("answer", WRONG.values(), ids=WRONG.keys())
def test_e34_e35_a_wrong_result_is_op_failed_and_the_cpu_takes_over(answer: Any) -> None:
    runs = answer if callable(answer) else lambda request: answer
    with pytest.raises(OpFailedError, match=r"^d: "):
        Execution(compiled(Does("d", runs=runs))).run([X])
    execution = Execution(compiled(Does("d", runs=runs), fallback=True))
    assert np.array_equal(execution.run([X])["y"], X + 1)
    assert execution.report.fallback is not None


_JUNK = st.none() | st.integers() | st.floats() | st.text() | st.booleans()


@given(
    st.builds(
        Result,
        _JUNK | st.sampled_from(ResultCode),
        _JUNK | st.lists(_JUNK | st.builds(OutputShape, _JUNK | st.lists(_JUNK).map(tuple), _JUNK)).map(tuple),
        _JUNK | st.just(Reason("why")),
        _JUNK,
        _JUNK,
    )
)
@settings(max_examples=200, deadline=None)
def test_any_result_gives_an_answer_or_an_nnapi_error(result: Any) -> None:
    execution = Execution(compiled(Does("d", runs=lambda request: result)))
    execution.set_measure_timing(True)
    execution.set_input(0, X)
    execution.set_output(0, np.empty_like(X))
    try:
        execution.compute()
    except NnapiError:
        return
    assert execution.output_dims(0) == (1, 4)
    assert execution.duration() >= 0


def test_times_that_make_no_sense_count_as_not_measured() -> None:
    execution = Execution(compiled(Does("d", runs=lambda request: replace(RIGHT, on_device=-5, in_driver="soon"))))
    execution.set_measure_timing(True)
    execution.run([X])
    assert execution.duration() == 2**64 - 1


def test_a_driver_cannot_write_the_clients_inputs() -> None:
    given = X.copy()

    def scribble(request: Request) -> Result:
        assert request.inputs[0] is not None
        request.inputs[0][...] = 7
        return RIGHT

    execution = Execution(compiled(Does("d", runs=scribble), fallback=True))
    assert np.array_equal(execution.run([given])["y"], X + 1)
    assert np.array_equal(given, X)


# -- descriptions ------------------------------------------------------------------------------------------------------

GOOD = Capabilities({OperandCode.TENSOR_FLOAT32: Performance(0.5, 0.5)})


@dataclass
class Describes(Driver):
    """A driver with this capabilities, and other attributes set over."""

    says: Any = GOOD
    more: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in self.more.items():
            setattr(self, name, value)

    @property
    def capabilities(self) -> Any:
        return self.says() if callable(self.says) else self.says


def figures(*pair: Any) -> Capabilities:
    return Capabilities({OperandCode.TENSOR_FLOAT32: Performance(*pair)})


DESCRIPTIONS: dict[str, tuple[Any, dict[str, Any]]] = {
    "no capabilities": (None, {}),
    "zero": (figures(0.0, 1.0), {}),
    "negative": (figures(1.0, -1.0), {}),
    "nan": (figures(float("nan"), 1.0), {}),
    "infinite": (figures(1.0, float("inf")), {}),
    "text": (figures("fast", 1.0), {}),
    "no figures": (Capabilities({OperandCode.TENSOR_FLOAT32: 0.5}), {}),  # type: ignore[dict-item]
    "MODEL": (Capabilities({OperandCode.MODEL: Performance(1.0, 1.0)}), {}),
    "relaxed": (Capabilities({}, relaxed_tensor=Performance(0.0, 1.0)), {}),
    "raises": (lambda: 1 // 0, {}),
    "no name": (GOOD, {"name": ""}),
    "name of another type": (GOOD, {"name": 5}),
    "no version": (GOOD, {"version": ""}),
    "level 0": (GOOD, {"feature_level": 0}),
    "level of another type": (GOOD, {"feature_level": "8"}),
    "type": (GOOD, {"type": 99}),
    "cache files": (GOOD, {"number_of_cache_files_needed": lambda: (33, 0)}),
    "extensions": (GOOD, {"supported_extensions": lambda: None}),
}


@pytest.mark.parametrize(("says", "more"), DESCRIPTIONS.values(), ids=DESCRIPTIONS.keys())
def test_d4_d6_d12_a_driver_that_describes_itself_wrongly_is_not_listed(
    says: Any, more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Describes("d", says=says, more=more)
    assert description_fault(device) is not None
    assert [d.kind for d in Compilation.create(add_then(), [device]).finish().devices] == ["cpu"]
    with pytest.raises(BadDataError):
        Compilation.create_for_devices(add_then(), [device])
    monkeypatch.setattr(_here(), "WRONG_DEVICE", device, raising=False)
    with pytest.raises(InputError):
        devices.device(f"{__name__}:WRONG_DEVICE")


def _here() -> Any:
    import sys

    return sys.modules[__name__]


def test_a_driver_that_describes_itself_rightly_is_listed() -> None:
    assert description_fault(Describes("d")) is None
    assert description_fault(devices.cpu()) is None
    assert [description_fault(device) for device in (*devices.all_devices(), *devices.shipped())] == [None] * (
        len(devices.all_devices()) + len(devices.shipped())
    )
