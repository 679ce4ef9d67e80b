"""The state that a model hands from one run to the next."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from nnbridge import devices, storage
from nnbridge.compare import compare, seeded_inputs, seeded_samples
from nnbridge.compare.litert import LiteRT
from nnbridge.converters import ConversionOptions
from nnbridge.errors import ConversionError, InputError
from nnbridge.file import load
from nnbridge.model import Model, State
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.runtime.states import States
from tests.commands import call
from tests.tflite.files import TfliteBuilder
from tests.tflite.shared import real_model


def _accumulator(folder: Path, name: str = "RNN") -> Path:
    """A cell that adds its input to its state: weights and recurrent weights of 1, no activation."""
    builder = TfliteBuilder()
    lead = (1,) if name == "RNN" else (1, 1)
    data, out = builder.tensor((*lead, 1), name="x"), builder.tensor((*lead, 1), name="y")
    one, zero = builder.constant([[1.0]], "float32"), builder.constant([0.0], "float32")
    state = builder.tensor((1, 1), is_variable=True, name="state")
    builder.operator(name, [data, one, one, zero, state], [out], {"fused_activation_function": 0})
    return builder.write(folder / "m.tflite", [data], [out])


def _finished(model: Model) -> Compilation:
    compilation = Compilation.create_for_devices(model, [devices.cpu()])
    compilation.finish()
    return compilation


def _sums(model: Model, states: States | None, count: int) -> list[float]:
    compilation = _finished(model)
    lead = model.main.operands[model.own_inputs[0]].dims
    return [float(Execution(compilation, states).run({"x": np.ones(lead, np.float32)})["y"].reshape(())) for _ in range(count)]


def test_executions_that_share_states_go_on(tmp_path: Path) -> None:
    model = load(_accumulator(tmp_path))
    states = States(model)
    assert _sums(model, states, 3) == [1, 2, 3]
    assert states.values["state"].tolist() == [[3]]
    states.reset()
    assert _sums(model, states, 2) == [1, 2]


def test_an_execution_of_its_own_starts_anew(tmp_path: Path) -> None:
    assert _sums(load(_accumulator(tmp_path)), None, 3) == [1, 1, 1]


def test_states_are_inputs_and_outputs_of_nnapi_but_not_of_the_caller(tmp_path: Path) -> None:
    model = load(_accumulator(tmp_path))
    assert [len(model.main.inputs), len(model.main.outputs)] == [2, 2]
    assert list(seeded_inputs(model, 0)) == ["x"]
    given = Execution(_finished(model)).run({"x": np.ones((1, 1), np.float32), "state": np.full((1, 1), 5, np.float32)})
    assert {name: value.tolist() for name, value in given.items()} == {"y": [[6]]}
    with pytest.raises(InputError, match="1 inputs"):
        Execution(_finished(model)).run([np.ones((1, 1), np.float32)] * 2)


def test_a_saved_model_keeps_its_states(tmp_path: Path) -> None:
    model = load(_accumulator(tmp_path))
    storage.save(model, tmp_path / "m.nnapi")
    loaded = storage.load(tmp_path / "m.nnapi")
    assert loaded.states == model.states == (State(1, 1),)
    assert _sums(loaded, States(loaded), 3) == [1, 2, 3]


@pytest.mark.parametrize("state", [State(2, 1), State(1, 2), State(1, 1, b"abc")])
def test_a_saved_model_with_a_broken_state_is_refused(state: State, tmp_path: Path) -> None:
    model = load(_accumulator(tmp_path))
    object.__setattr__(model, "states", (state,))
    storage.save(model, tmp_path / "m.nnapi")
    with pytest.raises(ConversionError, match="values that hold together"):
        storage.load(tmp_path / "m.nnapi")


def test_androids_delegate_leaves_the_state_of_a_sequence_as_it_is(tmp_path: Path) -> None:
    path = _accumulator(tmp_path, "UNIDIRECTIONAL_SEQUENCE_RNN")
    assert load(path, ConversionOptions(mapping="delegate")).states == ()
    model = load(path)
    assert _sums(model, States(model), 3) == [1, 2, 3]


@pytest.mark.parametrize("level", [3, 8])
@pytest.mark.parametrize("name", ["dtln_noise_suppression", "keras_lstm_mnist_ptq", "mnist_lstm_float"])
def test_real_file_agrees_with_litert_over_several_calls(name: str, level: int) -> None:
    pytest.importorskip("ai_edge_litert")
    path = real_model(name)
    model = load(path, ConversionOptions(level))
    compared = compare(_finished(model), "litert", seeded_samples(model, LiteRT(path), [0, 1], 3))
    assert compared.samples == 6
    assert compared.passed


def test_run_repeats_and_continues(tmp_path: Path) -> None:
    path = _accumulator(tmp_path)
    np.save(tmp_path / "x.npy", np.ones((1, 1), np.float32))
    for repeat in (1, 4):
        arguments = ["run", str(path), "--input", f"x={tmp_path}/x.npy", "--repeat", str(repeat), "-o", f"{tmp_path}/out.npz"]
        assert call(*arguments).exit_code == 0
        assert np.load(tmp_path / "out.npz")["y"].tolist() == [[repeat]]


def test_compare_takes_steps_without_a_reset(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    path = _accumulator(tmp_path, "UNIDIRECTIONAL_SEQUENCE_RNN")
    # Under the delegate mapping the state is lost, as on Android, so that only a single step agrees.
    for mapping, steps, status in (("wide", 3, 0), ("delegate", 1, 0), ("delegate", 3, 1)):
        arguments = ["compare", str(path), "--reference", "litert", "--steps", str(steps), "--mapping", mapping, "--json"]
        result = call(*arguments)
        assert result.exit_code == status, result.output
        assert json.loads(result.stdout)["samples"] == 3 * steps
