"""Causes over several runs: states that are dropped, and the cause at the sample with the largest error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge.builder import ModelBuilder
from nnbridge.compare.layers import compare_layers
from nnbridge.compare.litert import NamedTensors
from nnbridge.compare.samples import Sample
from nnbridge.compare.tensors import TensorsByName
from nnbridge.runtime.compilation import Compilation
from nnbridge.types import OperandCode, OperationCode
from tests.commands import call, data
from tests.tflite.files import TfliteBuilder

TIMES, FEATURES, UNITS = 3, 2, 4


def sequence(operator: str, path: Path) -> Path:
    b, rng = TfliteBuilder(), np.random.default_rng(0)

    def weights(*shape: int) -> int:
        return b.constant((rng.normal(size=shape) / 2).astype(np.float32))

    def state(name: str) -> int:
        return b.tensor((1, UNITS), name=name, is_variable=True)

    def cell() -> list[int]:
        gates = [weights(UNITS, n) for n in (FEATURES,) * 4 + (UNITS,) * 4]
        return [*gates, -1, -1, -1, *(weights(UNITS) for _ in range(4)), -1, -1]

    def simple() -> list[int]:
        return [weights(UNITS, FEATURES), weights(UNITS, UNITS), weights(UNITS)]

    x, y, z = b.tensor((1, TIMES, FEATURES), name="x"), *(b.tensor((1, TIMES, UNITS), name=n) for n in "yz")
    options = {"fused_activation_function": 4, "time_major": False, "asymmetric_quantize_inputs": False}
    both = {**options, "merge_outputs": False}
    clips = {"cell_clip": 0.0, "proj_clip": 0.0}
    if operator == "UNIDIRECTIONAL_SEQUENCE_RNN":
        b.operator(operator, [x, *simple(), state("h")], [y], options)
    elif operator == "UNIDIRECTIONAL_SEQUENCE_LSTM":
        b.operator(operator, [x, *cell(), state("h"), state("c"), -1, -1, -1, -1], [y], {**options, **clips})
    elif operator == "BIDIRECTIONAL_SEQUENCE_RNN":
        b.operator(operator, [x, *simple(), state("f"), *simple(), state("b"), -1, -1, -1], [y, z], both)
    else:
        states = [state(name) for name in ("fh", "fc", "bh", "bc")]
        b.operator(operator, [x, *cell(), *cell(), *states, *[-1] * 9], [y, z], {**both, **clips})
    return b.write(path / "sequence.tflite", [x], [y, z] if operator.startswith("BI") else [y])


def layers(path: Path, *options: str) -> Any:
    """The output of a comparison by layers, whether it passes or not."""
    return json.loads(call("compare", path, "--reference", "litert", "--layers", *options, "--json").stdout)


SEQUENCES = ("UNIDIRECTIONAL_SEQUENCE_RNN", "UNIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_LSTM")
"""Those with states that the delegate hands over."""


@pytest.mark.parametrize("operator", SEQUENCES)
def test_a_state_that_the_delegate_drops_is_the_cause(operator: str, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    options = ("--steps", "3", "--seeds", "0")
    found = layers(sequence(operator, tmp_path), *options)
    assert {cause["kind"] for cause in found["causes"]} == {"state_dropped"}


def test_states_of_what_stays_with_tflite_are_not_dropped(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    found = layers(sequence("BIDIRECTIONAL_SEQUENCE_RNN", tmp_path), "--steps", "3", "--seeds", "0")
    assert "state_dropped" not in {cause["kind"] for cause in found["causes"]}


def test_without_a_run_before_no_state_is_dropped(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    found = layers(sequence(SEQUENCES[0], tmp_path), "--seeds", "0,1,2")
    assert "state_dropped" not in {cause["kind"] for cause in found["causes"]}


def test_what_stores_its_state_has_no_such_cause(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    options = ("--mapping", "wide", "--steps", "3", "--seeds", "0")
    found = layers(sequence(SEQUENCES[0], tmp_path), *options)
    assert "state_dropped" not in {cause["kind"] for cause in found["causes"]}


def test_inspect_says_which_states_the_delegate_drops(tmp_path: Path) -> None:
    notes = data("inspect", sequence(SEQUENCES[1], tmp_path))["notes"]
    assert "of these, TFLite's NNAPI delegate drops h, c: each run starts from the first state" in notes


ROUNDED, WRONG = np.spacing(np.float32(1)), np.float32(50)
"""Errors of a logarithm of e: one unit in the last place, and one that no rounding is."""


@pytest.mark.parametrize("errors", [(ROUNDED, WRONG), (WRONG, ROUNDED)])
def test_the_cause_is_sought_where_the_error_is_largest(errors: tuple[np.float32, np.float32]) -> None:
    builder = ModelBuilder("log")
    x, y = (builder.add_operand(OperandCode.TENSOR_FLOAT32, (1,), name=name) for name in "xy")
    builder.add_operation(OperationCode.LOG, [x], [y])
    builder.identify_inputs_and_outputs([x], [y])
    compilation = Compilation.create(builder.finish(), [])
    compilation.finish()
    value = np.float32([np.e])
    truths = [np.log(value) + error for error in errors]
    samples = [Sample(str(k), {"x": value}, [truth]) for k, truth in enumerate(truths)]
    found = compare_layers(
        compilation, "file", samples, lambda k: TensorsByName(NamedTensors({(0, "x"): value, (0, "y"): truths[k]}))
    )
    # The smaller error alone would be explained as rounding.
    assert found.causes == ()
