"""RNN, GRU and LSTM on the host: compiled kernels and NumPy, beside ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge import Compilation
from nnbridge.compare import compare, seeded_samples
from nnbridge.compare.onnx_runtime import OnnxRuntime
from nnbridge.converters import ConversionOptions
from nnbridge.cpu import compiled
from nnbridge.extensions import StatedKernel
from nnbridge.file import ModelFile
from tests.graphs import argument
from tests.onnx.test_recurrent import GATES, recurrent

pytest.importorskip("onnxruntime")
FORMS: list[dict[str, Any]] = [
    {},
    {"direction": "bidirectional"},
    {"direction": "reverse", "bias": False, "states": False},
]


@pytest.fixture
def routines(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The operations that compiled kernels computed on the host instead of NumPy."""
    if compiled.unavailable():
        pytest.skip(str(compiled.unavailable()))
    from nnbridge.cpu.compiled import routines

    made, routine = [], routines.routine

    def counted(prepared: StatedKernel, *rest: Any) -> Any:
        found = routine(prepared, *rest)
        made.append(found)
        return found

    monkeypatch.setattr(routines, "routine", counted)
    return made


def agrees(path: Path) -> None:
    model, mapped = ModelFile(path, ConversionOptions(mapping="provider")).converted
    assert [m.mapping for m in mapped] == ["host"]
    compilation = Compilation.create(model, [])
    compilation.finish()
    comparison = compare(compilation, "onnxruntime", seeded_samples(model, OnnxRuntime(path), [0, 1]))
    assert comparison.passed, comparison.outputs


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_layer_is_compiled(kind: str, form: dict[str, Any], routines: list[object], tmp_path: Path) -> None:
    agrees(recurrent(tmp_path, kind, **form))
    assert routines
    assert all(routines)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_the_reset_gate_of_a_gru_may_act_behind_the_products(
    form: dict[str, Any], routines: list[object], tmp_path: Path
) -> None:
    agrees(recurrent(tmp_path, "GRU", linear_before_reset=1, **form))
    assert all(routines)


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [("GRU", {"clip": 0.3}), ("LSTM", {"peepholes": True}), ("GRU", {"activations": ["HardSigmoid", "Tanh"]})],
)
def test_other_forms_are_left_to_numpy(kind: str, attributes: dict[str, Any], routines: list[object], tmp_path: Path) -> None:
    agrees(recurrent(tmp_path, kind, **attributes))
    assert not any(routines)


def test_kernels_agree_with_numpy_in_every_width(routines: list[object]) -> None:
    from nnbridge.cpu.compiled.routines import routine
    from nnbridge.operations.recurrent_layer import RecurrentLayer

    rng, (steps, batch, size, units) = np.random.default_rng(0), (4, 3, 21, 33)

    def numbers(*dims: int) -> np.ndarray:
        return rng.normal(size=dims).astype(np.float32) / np.float32(np.sqrt(dims[-1]))

    weights, recurrent_, bias, x = (
        numbers(1, 3 * units, size),
        numbers(1, 3 * units, units),
        numbers(1, 2, 3, units),
        numbers(steps, batch, size),
    )
    tensors = [argument(dims) for dims in (x.shape, (steps, 1, batch, units))]
    layer = RecurrentLayer(
        tensors[:1],
        tensors[1:],
        (0,),
        "GRU",
        (False,),
        ("sigmoid", "tanh"),
        weights,
        recurrent_,
        bias,
        (True, False, False),
        False,
        True,
        lambda arrays: [],
    )
    run = routine(layer)
    assert run is not None
    state, expected = np.zeros((batch, units)), []
    for row in x.astype(np.float64):
        direct = np.split(row @ weights[0].T, 3, axis=1)
        own = np.split(state @ recurrent_[0].T, 3, axis=1)
        update, reset = (1 / (1 + np.exp(-(direct[i] + own[i] + bias[0, :, i].sum(axis=0)))) for i in (0, 1))
        candidate = np.tanh(direct[2] + bias[0, 0, 2] + reset * (own[2] + bias[0, 1, 2]))
        state = (1 - update) * candidate + update * state
        expected.append(state)
    np.testing.assert_allclose(run([x])[0][:, 0], np.array(expected), rtol=1e-5, atol=1e-6)
