"""Comparison by layers: what is observed, what is matched, and which operation is named."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nnbridge import devices
from nnbridge.compare import seeded_inputs, seeded_samples
from nnbridge.compare.layers import LayerComparison, compare_layers
from nnbridge.compare.observation import observed_run
from nnbridge.compare.references import reference
from nnbridge.compare.tensors import DeviceReference, stored_tensors, tensors_of
from nnbridge.devices.device import Device
from nnbridge.devices.profiles import ProfileDevice
from nnbridge.devices.samples import SAMPLE_DRIVERS
from nnbridge.file import load
from nnbridge.model import Model
from nnbridge.report.csv_text import csv_text
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.runtime.states import States
from nnbridge.types import OperationCode
from tests.commands import call
from tests.compare.faults import FaultyDriver, applies, fingerprint
from tests.conftest import MODELS
from tests.graphs import branching, unary_chain
from tests.tflite.files import TfliteBuilder
from tests.tflite.test_control_flow import _if, _loop

DIGITS = [*sorted(MODELS.glob("*.tflite")), *sorted(MODELS.glob("*.onnx"))]


def compiled(model: Model, *drivers: Device) -> Compilation:
    compilation = Compilation.create(model, drivers)
    compilation.finish()
    return compilation


def device_profile(name: str, **changes: str) -> Device:
    profile = devices.device(name)
    assert isinstance(profile, ProfileDevice)
    return replace(profile, **changes)


def layers(
    path: Path, drivers: Sequence[Device] = (), against: str = "", seeds: Sequence[int] = (0,), steps: int = 1
) -> LayerComparison:
    model = load(path)
    name = "litert" if path.suffix == ".tflite" else "onnxruntime"
    runtime = DeviceReference(model, against) if against else reference(name, path, preserve=True)
    samples = seeded_samples(model, runtime, seeds, steps)
    return compare_layers(compiled(model, *drivers), runtime.name, samples, tensors_of(runtime))


@pytest.mark.parametrize("driver", SAMPLE_DRIVERS, ids=lambda driver: driver.name)
@pytest.mark.parametrize("path", DIGITS, ids=lambda path: path.name)
def test_observing_leaves_steps_and_outputs_as_they_are(path: Path, driver: Device) -> None:
    model = load(path)
    compilation, inputs = compiled(model, driver), seeded_inputs(model, 0)
    plain = Execution(compilation)
    expected = plain.run(inputs)
    outputs, observation, observed = observed_run(compilation, inputs, States(model))
    assert [(s.device, s.step, s.runs) for s in observed.report.steps] == [(s.device, s.step, s.runs) for s in plain.report.steps]
    assert all(outputs[name].tobytes() == value.tobytes() for name, value in expected.items())
    # Every value that an operation computes was seen.
    assert {("", i) for operation in model.main.operations for i in operation.outputs} <= observation.values.keys()


@pytest.mark.parametrize("name", ["digits_int8", "digits_uint8"])
def test_integer_layers_equal_litert_bit_for_bit(name: str) -> None:
    found = layers(MODELS / f"{name}.tflite")
    assert len(found.compared) == 11
    assert all(layer.drift and layer.own and not layer.drift.mismatches + layer.own.mismatches for layer in found.layers)
    assert found.sentence == "no difference: 11 tensors are equal"


def test_images_of_onnx_files_are_compared_in_their_own_order_of_axes() -> None:
    found = layers(MODELS / "digits_float32.onnx")
    # Not compared: the input's copy with channels last.
    assert [layer.tensor for layer in found.layers if layer not in found.compared] == ["image NHWC"]
    assert found.passed


@pytest.mark.parametrize("fault", ["rounding", "zero point", "filter", "pad"])
@pytest.mark.parametrize("against", ["", "reference"])
def test_the_operation_with_a_planted_fault_is_named(fault: str, against: str) -> None:
    path = MODELS / "digits_int8.tflite"
    model = load(path)
    targets = [operation for operation in model.main.operations if applies(fault, model, operation)]
    for target in targets[:: 1 + len(targets) // 3]:
        found = layers(path, [FaultyDriver(target.name, fault)], against)
        assert found.origin is not None
        assert found.origin.position == ("", target.outputs[0])


def test_an_operation_that_the_reference_hides_is_named(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    path = branching(tmp_path / "branch.onnx")
    # ONNX Runtime shows nothing of what is inside of an If.
    found = layers(path, [FaultyDriver("0: Abs y/Abs inside", "float16")], seeds=range(20))
    assert found.origin is not None
    assert found.origin.hidden.startswith("0 Abs (y/Abs inside")
    assert found.sentence.endswith(f"without tensors in the reference, {found.origin.hidden} differs")


def test_what_a_later_step_of_an_operator_rounds_away_is_seen_beside_nnapis_kernels_alone(tmp_path: Path) -> None:
    """LiteRT has the result of the QUANTIZE, which is the same; no tensor for the real numbers in between."""
    file = TfliteBuilder()
    x = file.tensor((1, 64), "uint8", name="x", scale=0.0123, zero_point=100)
    y = file.tensor((1, 64), "int8", name="y", scale=1.0, zero_point=3)
    file.operator("QUANTIZE", [x], [y])
    path = file.write(tmp_path / "m.tflite", [x], [y])
    between = load(path).main.operations[0]
    assert between.type == OperationCode.DEQUANTIZE
    driver = FaultyDriver(between.name, "float16", like=fingerprint(load(path), between))
    assert layers(path, [driver]).sentence == "no difference: 1 tensors are equal"
    beside = layers(path, [driver], "reference").origin
    assert beside is not None
    assert beside.position == ("", between.outputs[0])


def test_a_difference_that_comes_from_before_is_inherited() -> None:
    path = MODELS / "digits_float32.tflite"
    first = load(path).main.operations[0]
    found = layers(path, [FaultyDriver(first.name, "filter")])
    ending = found.layers[-1]
    assert ending.drift is not None
    assert ending.own is not None
    assert ending.drift.beyond > 0 == ending.own.beyond
    assert found.first is found.origin is found.layers[0]


def test_a_profile_that_computes_in_floats_shows_the_models_own_operands() -> None:
    profile = device_profile("arm-nn-24.05", numerics="float_requantised")
    found = layers(MODELS / "digits_uint8.tflite", [profile], "reference")
    assert len(found.compared) == 11
    # Rounded once instead of by a fixed-point factor.
    assert {layer.own.max_quant_diff for layer in found.layers if layer.own} == {0, 1}


def test_a_driver_in_another_process_shows_the_borders_of_its_steps_alone() -> None:
    model = unary_chain(OperationCode.FLOOR, OperationCode.RELU)
    compilation = Compilation.create_for_devices(model, ["process:nnapi-sample_all"])
    compilation.finish()
    runtime = DeviceReference(model, "reference")
    found = compare_layers(compilation, "reference", seeded_samples(model, runtime, [0]), tensors_of(runtime))
    hidden, ending = found.layers
    assert hidden.note.startswith("not seen")
    assert (hidden.drift, hidden.own and hidden.own.mismatches) == (None, 0)  # computed alone
    assert (ending.drift and ending.drift.mismatches, ending.own and ending.own.mismatches) == (0, 0)


@pytest.mark.parametrize("driver", ["nnapi-reference", "nnapi-sample_minimal"])
def test_bodies_of_control_flow_are_layers_too(tmp_path: Path, driver: str) -> None:
    by_device = [devices.device(driver)]
    branches = layers(_if(tmp_path, "ABS", "NEG"), by_device, seeds=[0, 1])
    assert {layer.position[0] for layer in branches.compared} == {"", "then of 0: IF", "else of 0: IF"}
    loop = layers(_loop(tmp_path), by_device)
    assert {layer.position[0] for layer in loop.compared} == {"", "condition of 0: WHILE", "body of 0: WHILE"}
    assert not any(layer.drift and layer.drift.mismatches for layer in (*branches.layers, *loop.layers))


def test_a_state_of_svdf_is_compared_after_its_shift(tmp_path: Path) -> None:
    builder, rng = TfliteBuilder(), np.random.default_rng(0)
    weights = [builder.constant(rng.standard_normal((4, size)).astype(np.float32)) for size in (3, 5)]
    data, state, out = builder.tensor((1, 3)), builder.tensor((1, 20), is_variable=True), builder.tensor((1, 4))
    builder.operator("SVDF", [data, *weights, -1, state], [out], {"rank": 1, "fused_activation_function": 0})
    found = layers(builder.write(tmp_path / "m.tflite", [data], [out]), steps=3)
    assert [layer.own is not None and layer.own.beyond for layer in found.layers] == [0, 0]


def test_a_stored_run_is_a_reference(tmp_path: Path) -> None:
    path = MODELS / "digits_float32.tflite"
    model = load(path)
    runtime = reference("litert", path, preserve=True)
    samples = list(seeded_samples(model, runtime, [0]))
    values = {f"tensor:{name}": np.stack([v]) for (_, name), v in runtime.tensors().named.items() if v is not None}
    np.savez(tmp_path / "run.npz", **values)
    found = compare_layers(compiled(model), "run.npz", samples, stored_tensors(tmp_path / "run.npz"))
    assert len(found.compared) == 11


def test_the_command_names_the_operation_and_writes_a_table(tmp_path: Path) -> None:
    file = tmp_path / "layers.csv"
    options = ["--layers", "--against", "reference", "--seeds", "0", "--csv", str(file)]
    shown = call("compare", MODELS / "digits_int8.tflite", *options)
    assert (shown.exit_code, shown.stdout.splitlines()[0]) == (0, "no difference: 11 tensors are equal")
    rows = list(csv.DictReader(file.open()))
    assert [row["operator"] for row in rows[:2]] == ["0 CONV_2D", "1 DEPTHWISE_CONV_2D"]
    assert {row["own mismatches"] for row in rows} == {"0"}


def test_spreadsheets_show_names_of_tensors_and_compute_none() -> None:
    assert csv_text([["=1+1", "a\x1b[31m", -1, None]]) == "'=1+1,a\\x1b[31m,-1,\n"


def test_options_of_layers_alone_are_refused() -> None:
    assert call("compare", "m.tflite", "--against", "reference").exit_code == 2
    both = ["compare", "m.tflite", "--layers", "--against", "reference", "--reference", "litert"]
    assert call(*both).exit_code == 2


def test_a_reference_of_outputs_only_does_not_blame_the_last_operator(tmp_path: Path) -> None:
    stored = dict(np.load(MODELS / "digits_float32.litert.npz"))
    (name,) = (one for one in stored if one.startswith("output:"))
    np.savez(tmp_path / "shifted.npz", **{**stored, name: stored[name] + 1})
    result = call("compare", MODELS / "digits_float32.tflite", "--reference", tmp_path / "shifted.npz", "--layers")
    assert result.exit_code == 1
    assert result.stdout.startswith("difference beyond tolerance at operator 10 SOFTMAX")
    assert "it may start at any of the " in result.stdout.splitlines()[0]
    assert result.stdout.count("only in the plan") == 1


def test_layers_of_a_device_whose_numbers_are_unknown_do_not_pass() -> None:
    command = "compare", MODELS / "digits_float32.tflite", "--device", "arm-nn-21.11", "--against", "reference", "--layers"
    shown = call(*command).stdout
    assert shown.startswith("numbers unknown (computed as NNAPI's CPU); of what was computed: no difference")
    assert not re.search(r"\bpass\b", shown)
    assert json.loads(call(*command, "--json").stdout)["verdict"] == "numbers unknown (computed as NNAPI's CPU)"
