"""RNNs and LSTMs over a sequence that are written out step by step, against LiteRT's kernels in their first run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge import load
from nnbridge.compare import seeded_inputs
from nnbridge.compare.references import reference
from nnbridge.converters.edits import Answers, Edit
from nnbridge.file import ModelFile
from nnbridge.plan import plan
from nnbridge.target import Target
from nnbridge_tflite.read.reader import read
from tests.remedies.files import PHONE, advice, npu, written
from tests.tflite.files import TfliteBuilder

BATCH, STEPS, SIZE, CELLS, UNITS = 2, 3, 5, 4, 3
STEPWISE = "operators for each step, from zero states in every run"


@dataclass(frozen=True)
class Layer:
    """One operator over a sequence."""

    name: str = "UNIDIRECTIONAL_SEQUENCE_LSTM"
    cifg: bool = False
    peephole: bool = False
    projected: bool = False
    norms: bool = False
    eight: bool = False
    """Weights of 8 bits beside float activations."""
    open: bool = False
    steps: int = STEPS
    options: Mapping[str, Any] | None = None

    def write(self, folder: Path) -> Path:
        file, random = TfliteBuilder(), np.random.default_rng(4)
        options = {"fused_activation_function": 4, "time_major": False, **(self.options or {})}
        units = UNITS if self.projected else CELLS
        lead = (self.steps, BATCH) if options["time_major"] else (BATCH, self.steps)

        def matrix(*shape: int) -> int:
            if self.eight:
                return file.constant(random.integers(-127, 128, shape), "int8", scale=0.007)
            return file.constant(random.standard_normal(shape) * 0.5, "float32")

        def vector(count: int) -> int:
            return file.constant(random.standard_normal(count) * 0.5, "float32")

        def lstm() -> list[int]:
            first = 1 if self.cifg else 0
            none = [-1] * first
            looks = [-1] * first + [vector(CELLS) for _ in range(3 - first)] if self.peephole else [-1] * 3
            gates = [*none, *(matrix(CELLS, SIZE) for _ in range(4 - first))]
            again = [*none, *(matrix(CELLS, units) for _ in range(4 - first))]
            tail = [matrix(UNITS, CELLS), vector(UNITS)] if self.projected else [-1, -1]
            return [*gates, *again, *looks, *none, *(vector(CELLS) for _ in range(4 - first)), *tail]

        def state(count: int) -> int:
            return file.tensor((BATCH, count), is_variable=True)

        more = {"shape_signature": [-1, *lead[1:], SIZE]} if self.open else {}
        x, both = file.tensor((*lead, SIZE), **more), self.name.startswith("BI")
        inputs: list[int] = []
        if self.name.endswith("RNN"):
            inputs = [
                t for _ in range(1 + both) for t in (matrix(CELLS, SIZE), matrix(CELLS, CELLS), vector(CELLS), state(CELLS))
            ]
            inputs += [-1] * 3 * both
        else:
            inputs = [t for _ in range(1 + both) for t in lstm()]
            inputs += [state(n) for _ in range(1 + both) for n in (units, CELLS)] + [-1] * 9 * both
            inputs += [vector(CELLS) for _ in range(4)] if self.norms else []
        merged = options.get("merge_outputs", False)
        ends = [file.tensor((*lead, 2 * units))] if merged else [file.tensor((*lead, units)) for _ in range(1 + both)]
        file.operator(self.name, [x, *inputs], ends, options, 3 if self.eight else 1)
        return file.write(folder / "layer.tflite", [x], ends)


BESIDE = Layer("BIDIRECTIONAL_SEQUENCE_LSTM", options={"merge_outputs": True})
"""TFLite's kernel takes the states of the second batch from another place than for two outputs: it computes something else."""


def stepwise(path: Path) -> list[Edit]:
    return [one for one in ModelFile(path, PHONE).edits if one.text == STEPWISE]


def first_run(path: Path, after: Path) -> list[tuple[Any, Any]]:
    values = seeded_inputs(load(path), 0)
    return [*zip(*(reference("litert", one).run(values) for one in (path, after)), strict=True)]


@pytest.mark.parametrize(
    "layer",
    [
        Layer(),
        Layer(options={"time_major": True}),
        Layer(cifg=True, steps=1),
        Layer(peephole=True, options={"cell_clip": 0.3}),
        Layer(projected=True, peephole=True, cifg=True, options={"proj_clip": 0.2}),
        Layer("UNIDIRECTIONAL_SEQUENCE_RNN"),
        Layer("UNIDIRECTIONAL_SEQUENCE_RNN", options={"fused_activation_function": 1, "time_major": True}),
        Layer("BIDIRECTIONAL_SEQUENCE_RNN", options={"merge_outputs": False}),
        Layer("BIDIRECTIONAL_SEQUENCE_RNN", options={"merge_outputs": True, "time_major": True}),
        Layer("BIDIRECTIONAL_SEQUENCE_LSTM", options={"merge_outputs": True, "time_major": True}),
        Layer("BIDIRECTIONAL_SEQUENCE_LSTM", peephole=True, options={"merge_outputs": False, "time_major": True}),
    ],
)
def test_every_step_is_written_out_with_the_same_results(layer: Layer, tmp_path: Path) -> None:
    """Sums are in another order: 1e-6."""
    pytest.importorskip("ai_edge_litert")
    path = layer.write(tmp_path)
    (edit,) = stepwise(path)
    assert "unroll=True" in edit.converter
    after = tmp_path / "after.tflite"
    edit.content().write(after)
    names = {operator.name for operator in read(after).graph.main.operators}
    assert not any("SEQUENCE" in name for name in names)
    for one, other in first_run(path, after):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)


def test_weights_of_8_bits_are_written_in_float32(tmp_path: Path) -> None:
    """TFLite rounds activations to 8 bits beside them: steps of about 1/100."""
    pytest.importorskip("ai_edge_litert")
    path = Layer(eight=True).write(tmp_path)
    after = tmp_path / "after.tflite"
    stepwise(path)[0].content().write(after)
    for one, other in first_run(path, after):
        np.testing.assert_allclose(one, other, rtol=0, atol=0.03)


@pytest.mark.parametrize("layer", [Layer(norms=True), Layer(open=True), Layer(steps=300), BESIDE])
def test_layers_of_open_or_long_sequences_and_normalised_ones_stay(layer: Layer, tmp_path: Path) -> None:
    assert stepwise(layer.write(tmp_path)) == []


def test_a_device_without_lstms_is_advised_the_steps(tmp_path: Path) -> None:
    device = npu(tmp_path, "FULLY_CONNECTED", "ADD", "MUL", "LOGISTIC", "TANH", "RESHAPE", "STRIDED_SLICE", "CONCATENATION")
    (found,) = (one for one in advice(Layer().write(tmp_path), device) if STEPWISE in one.text)
    assert (found.kind, len(found.after.elsewhere)) == ("change", 0)
    after = written(found, tmp_path, ".tflite")
    assert plan(ModelFile(after, PHONE), Target.of(device)).summary.elsewhere == {}


IN_FLOAT = "the layer in float32, between DEQUANTIZE and QUANTIZE"


def integers(folder: Path, *, type: str = "int8", projected: bool = False, computed: bool = False) -> Path:
    """An integer LSTM as TensorFlow quantises it: 8-bit weights, cells of 16 bits; ``type``: of the activations' scales."""
    file, random = TfliteBuilder(), np.random.default_rng(6)
    units = UNITS if projected else CELLS
    x, y = file.tensor((BATCH, STEPS, SIZE), type, scale=0.02), file.tensor((BATCH, STEPS, units), type, scale=1 / 128)

    def matrix(*shape: int) -> int:
        return file.constant(random.integers(-100, 101, shape).astype(np.int8), scale=0.01)

    def bias(scale: float, count: int = CELLS) -> int:
        return file.constant(random.integers(-500, 501, count).astype(np.int32), scale=scale)

    first = [file.tensor((CELLS, SIZE), "int8", scale=0.01)] if computed else [matrix(CELLS, SIZE)]
    gates = [*first, *(matrix(CELLS, SIZE) for _ in range(3)), *(matrix(CELLS, units) for _ in range(4))]
    tail = [matrix(UNITS, CELLS), bias(0.01 / 128, UNITS)] if projected else [-1, -1]
    states = [
        file.tensor((BATCH, units), type, scale=1 / 128, is_variable=True),
        file.tensor((BATCH, CELLS), "int16", scale=2**-11, is_variable=True),
    ]
    between = [file.tensor((), "int16", scale=2**-12) for _ in range(4)] + [file.tensor((), "int8", scale=1 / 128)]
    options = {"fused_activation_function": 4, "cell_clip": 0.0, "proj_clip": 0.0, "time_major": False}
    operands = [x, *gates, -1, -1, -1, *(bias(0.0002) for _ in range(4)), *tail, *states, -1, -1, -1, -1]
    file.operator("UNIDIRECTIONAL_SEQUENCE_LSTM", operands, [y], options, 1, intermediates=between)
    return file.write(folder / "integers.tflite", [x, *(first if computed else [])], [y])


def by_frequencies(folder: Path) -> Path:
    """An integer SVDF: zero is the lowest number, since the kernel has no other RELU."""
    file, random = TfliteBuilder(), np.random.default_rng(2)
    x, y = file.tensor((BATCH, SIZE), "int8", scale=0.02), file.tensor((BATCH, UNITS), "int8", scale=0.02, zero_point=-128)
    features = file.constant(random.integers(-100, 101, (UNITS, SIZE)).astype(np.int8), scale=0.01)
    time = file.constant(random.integers(-9000, 9001, (UNITS, 4)).astype(np.int16), scale=2**-14)
    bias = file.constant(random.integers(-500, 501, UNITS).astype(np.int32), scale=0.001 * 2**-14)
    state = file.tensor((BATCH, UNITS * 4), "int16", scale=0.001, is_variable=True)
    options = {"rank": 1, "fused_activation_function": 1}
    file.operator("SVDF", [x, features, time, bias, state], [y], options, 3)
    return file.write(folder / "svdf.tflite", [x], [y])


FORMS = {
    "an LSTM": integers,
    "one with a projection": lambda folder: integers(folder, projected=True),
    "an SVDF": by_frequencies,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("text", [IN_FLOAT, STEPWISE])
def test_an_integer_layer_in_float_is_some_steps_off(form: str, text: str, tmp_path: Path) -> None:
    """TFLite rounds gates and cells to 16 bits: results differ, by few steps of 1/128."""
    pytest.importorskip("ai_edge_litert")
    path, after = FORMS[form](tmp_path), tmp_path / "after.tflite"
    found = [one for one in ModelFile(path, PHONE).edits if one.text == text]
    if form == "an SVDF" and text == STEPWISE:
        assert found == []
        return
    (edit,) = found
    assert edit.answers is Answers.CHANGE
    edit.content().write(after)
    runs = first_run(path, after)
    steps = max(np.abs(one.astype(int) - other.astype(int)).max() for one, other in runs)
    assert steps <= 3
    assert max(np.abs(one.astype(int)).max() for one, _ in runs) > 20


def test_nnapi_runs_an_integer_layer_in_float(tmp_path: Path) -> None:
    path = integers(tmp_path)
    assert (
        "NNAPI refuses operator 0 UNIDIRECTIONAL_SEQUENCE_LSTM"
        in plan(ModelFile(path, PHONE), Target.of("nnapi-sample_all")).summary.judgement
    )
    (edit,) = (one for one in ModelFile(path, PHONE).edits if one.text == IN_FLOAT)
    after = tmp_path / "after.tflite"
    edit.content().write(after)
    assert plan(ModelFile(after, PHONE), Target.of("nnapi-sample_all")).summary.elsewhere == {}
    assert {IN_FLOAT, STEPWISE} & {one.edit.text for one in advice(path, "nnapi-sample_all") if one.edit is not None}


def test_an_integer_layer_whose_weights_are_computed_stays(tmp_path: Path) -> None:
    assert not {one.text for one in ModelFile(integers(tmp_path, computed=True), PHONE).edits} & {IN_FLOAT, STEPWISE}
