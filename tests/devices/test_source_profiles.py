"""Devices that look at a file's operators: what Vela and others take, how plans show it, what a wrong profile reports."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge import devices
from nnbridge.devices.cpu import CpuPreparedModel
from nnbridge.devices.profile_levels import load_any, shipped_at_source
from nnbridge.devices.source_profiles import Claim, SourceProfile
from nnbridge.errors import InputError
from nnbridge.file import ModelFile
from nnbridge.model import Model
from tests.commands import call
from tests.tflite.files import TfliteBuilder


def profile(name: str) -> SourceProfile:
    found = devices.device(name)
    assert isinstance(found, SourceProfile)
    return found


def chain(folder: Path, *names: str, type: str = "int8") -> Path:
    """Operators of one value, one behind the other."""
    file = TfliteBuilder()
    first = last = file.tensor((1, 4, 4, 8), type, scale=0.5)
    for name in names:
        out = file.tensor((1, 4, 4, 8), type, scale=0.5)
        file.operator(name, [last], [out], {})
        last = out
    return file.write(folder / "chain.tflite", [first], [last])


def claims(name: str, path: Path) -> tuple[Claim, ...]:
    return profile(name).claims(ModelFile(path).source_graph)


def plan(path: Path, *options: str) -> dict[str, Any]:
    result = call("plan", path, "--json", *options)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_every_operator_of_the_published_files_is_where_vela_puts_it(shared: Path) -> None:
    oracle = json.loads(gzip.decompress((shared / "reference" / "devices" / "vela-open.json.gz").read_bytes()))
    for file, configurations in oracle["files"].items():
        graph = ModelFile(shared / file).source_graph
        for configuration, found in configurations.items():
            answers = profile(configuration.partition("/")[0]).claims(graph)
            placed = {row[0]: row[2] for row in found["operators"] if row[2] is not None}
            assert [i for i, place in placed.items() if answers[i].accepted != (place != "CPU")] == [], file


def test_what_is_not_taken_goes_to_the_cpu_with_the_compilers_words(tmp_path: Path) -> None:
    found = plan(chain(tmp_path, "RELU", "SIN", "TANH"), "--device", "ethos-u55-128")["operators"]
    assert [(row["index"], row["operator"], row["place"]) for row in found] == [
        (0, "RELU", "device"),
        (1, "SIN", "cpu"),
        (2, "TANH", "device"),
    ]
    assert found[1]["reasons"][0]["device"] == "ethos-u55-128"
    wide = plan(chain(tmp_path, "TANH", type="int32"), "--device", "ethos-u65-256")["operators"]
    assert wide[0]["reasons"][0]["says"] == "32-bit feature maps are not supported"


def test_one_operator_against_tflites_semantics_refuses_the_whole_file_to_vela(tmp_path: Path) -> None:
    found = claims("ethos-u55-128", chain(tmp_path, "RELU", "HARD_SWISH", type="int16"))
    assert [claim.accepted for claim in found] == [False, False]


def test_what_vela_can_not_compile_refuses_the_file_after_what_it_leaves_to_the_cpu(tmp_path: Path) -> None:
    u55 = claims("ethos-u55-128", chain(tmp_path, "RELU", "TANH", type="int32"))
    assert [claim.accepted for claim in u55] == [False, False]
    u85 = claims("ethos-u85-256", chain(tmp_path, "ABS", "TANH", type="int32"))
    assert [claim.accepted for claim in u85] == [False, False]
    alone = claims("ethos-u85-256", chain(tmp_path, "ABS", type="int32"))
    assert [claim.accepted for claim in alone] == [True]


@pytest.mark.parametrize(("element", "marked"), [("int8", False), ("int16", True)])
def test_what_ends_vela_by_a_signal_is_uncertain_there_alone(tmp_path: Path, element: str, marked: bool) -> None:
    file = TfliteBuilder()
    value, out = file.tensor((1, 4, 4, 8), "int8", scale=0.5), file.tensor((1, 4, 4, 8), element, scale=0.5)
    file.operator("TANH", [value], [out], {})
    found = claims("ethos-u85-256", file.write(tmp_path / "wider.tflite", [value], [out]))
    assert found[0].accepted
    assert ("signal" in found[0].uncertain) is marked


@pytest.mark.parametrize("device", ["ethos-u55-128", "ethos-u85-256"])
@pytest.mark.parametrize("constant", [True, False])
def test_only_u85_takes_computed_weights_of_an_lstm(tmp_path: Path, device: str, constant: bool) -> None:
    file = TfliteBuilder()
    ones = np.ones((4, 4), np.int8)
    value, out = (file.tensor((1, 3, 4), "int8", scale=0.5) for _ in range(2))
    weights = [file.constant(ones, scale=0.01) for _ in range(8)]
    computed = [] if constant else [file.tensor((4, 4), "int8", scale=0.01)]
    weights[: len(computed)] = computed
    biases = [file.constant(np.zeros(4, np.int32), scale=0.005) for _ in range(4)]
    states = [file.tensor((1, 4), type, scale=0.01, is_variable=True) for type in ("int8", "int16")]
    inputs = [value, *weights, -1, -1, -1, *biases, -1, -1, *states, -1, -1, -1, -1]
    file.operator("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, [out], {"fused_activation_function": 4})
    found = claims(device, file.write(tmp_path / "lstm.tflite", [value, *computed], [out]))
    assert found[0].accepted is (constant or device == "ethos-u85-256"), found[0].reason


# Each as Vela 5.2.0 answers it.
@pytest.mark.parametrize("device", ["ethos-u55-128", "ethos-u65-512", "ethos-u85-256"])
def test_vela_accepts_what_its_table_does_not_name(tmp_path: Path, device: str) -> None:
    file = TfliteBuilder()
    value = file.tensor((1, 9, 9, 8), "int8", scale=0.05, zero_point=3)
    slope = file.constant(np.ones((1, 1, 8), np.int8))
    inclined, wider, pooled = (
        file.tensor(shape, "int8", scale=0.05, zero_point=zero)
        for shape, zero in (((1, 9, 9, 8), 0), ((1, 1, 9, 9, 8), 10), ((1, 1, 1, 8), 3))
    )
    file.operator("PRELU", [value, slope], [inclined], {})
    file.operator("EXPAND_DIMS", [value, file.constant(np.array(0, np.int32))], [wider], {})
    pool = {"padding": 0, "stride_w": 9, "stride_h": 9, "filter_width": 9, "filter_height": 9}
    file.operator("AVERAGE_POOL_2D", [value], [pooled], pool)
    path = file.write(tmp_path / "taken.tflite", [value], [inclined, wider, pooled])
    assert [str(claim.reason) for claim in claims(device, path)] == ["None"] * 3


@pytest.mark.parametrize(("sides", "half"), [((4, 4), False), ((4, 1), False), ((4, 2), True)])
def test_bilinear_resizing_of_a_column_is_taken_where_only_one_side_grows(
    tmp_path: Path, sides: tuple[int, int], half: bool
) -> None:
    file = TfliteBuilder()
    value = file.tensor((1, 2, 1, 8), "int8", scale=0.05)
    out = file.tensor((1, *sides, 8), "int8", scale=0.05)
    size = file.constant(np.array(sides, np.int32))
    file.operator("RESIZE_BILINEAR", [value, size], [out], {"align_corners": False, "half_pixel_centers": half})
    found = claims("ethos-u65-256", file.write(tmp_path / "resized.tflite", [value], [out]))
    assert found[0].accepted is (sides[1] == 1 or half)


def test_the_edge_tpu_has_one_partition(tmp_path: Path) -> None:
    found = claims("edgetpu", chain(tmp_path, "RELU", "SIN", "TANH"))
    assert [claim.accepted for claim in found] == [True, False, False]
    assert found[2].reason is not None
    assert found[2].reason.rule == "one partition only"


def test_what_the_source_leaves_open_is_uncertain(tmp_path: Path) -> None:
    found = plan(chain(tmp_path, "RELU"), "--device", "litert-qualcomm")["operators"]
    assert found[0]["place"] == "device"
    assert "not public" in found[0]["uncertain"][0]


def test_a_claimed_operator_runs_with_the_cpus_arithmetic_even_without_an_nnapi_operation(tmp_path: Path) -> None:
    path = chain(tmp_path, "RELU", "ELU", "RELU")
    outputs = []
    for chosen in ([], ["--device", "ethos-u55-128"]):
        out = tmp_path / f"out{len(chosen)}.npz"
        result = call("run", path, "--seed", "1", "--samples", out, *chosen)
        assert result.exit_code == 0, result.output
        with np.load(out) as arrays:
            outputs.append({name: arrays[name] for name in arrays.files})
    for name, array in outputs[0].items():
        assert np.array_equal(array, outputs[1][name])


def test_the_host_computes_what_a_limit_takes_from_the_device_and_nnapi_has_not(tmp_path: Path) -> None:
    path = chain(tmp_path, "ELU", "ZEROS_LIKE", "RELU", "TANH")
    found = plan(path, "--device", "tflite-gpu-delegate", "--max-partitions", "1")
    assert [step["device"] for step in found["steps"]] == ["host", "tflite-gpu-delegate"]
    assert [row["place"] for row in found["operators"]] == ["cpu", "cpu", "device", "device"]
    assert plan(path, "--device", "tflite-gpu-delegate", "--max-partitions", "1", "--advice")["steps"] == found["steps"]


@pytest.mark.parametrize(
    ("device", "numerics"), [("ethos-u65-256", "exact"), ("tflite-gpu-delegate", "float_requantised"), ("hexagon", "")]
)
def test_explain_names_the_arithmetic_and_its_source_or_says_open(device: str, numerics: str) -> None:
    result = call("devices", "explain", device, "CONV_2D", "--json")
    found = json.loads(result.stdout)
    assert found["numerics"] == numerics
    assert found["numerics_source"].startswith("open") is not bool(numerics)


def test_a_device_computes_with_the_arithmetic_of_its_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []

    def spy(model: Model, numerics: str) -> CpuPreparedModel:
        used.append(numerics)
        return CpuPreparedModel(model, numerics)

    monkeypatch.setattr("nnbridge.devices.source_profiles.prepared_with", spy)
    result = call("run", str(chain(tmp_path, "RELU")), "--seed", "0", "--device", "tflite-gpu-delegate")
    assert result.exit_code == 0, result.output
    assert used == ["float_requantised"]


def test_an_arithmetic_needs_a_source(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text('[[device]]\nname = "own"\nlevel = "tflite"\nnumerics = "double_rounding"\noperations = { RELU = [] }\n')
    with pytest.raises(InputError, match="numerics_source, where the arithmetic is stated"):
        load_any(path)


def test_a_device_of_tflites_level_refuses_other_files(tmp_path: Path) -> None:
    result = call("plan", "models/digits_float32.onnx", "--device", "ethos-u55-128")
    assert result.exit_code == 2
    assert "a TFLite file" in result.stderr


@pytest.mark.parametrize("found", shipped_at_source(), ids=lambda found: found.name)
def test_shipped_profiles_name_their_source(found: SourceProfile) -> None:
    assert found.source.startswith("https://")
    assert found.rules.operators


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("operations = { CONV_2DD = [] }", "did you mean CONV_2D"),
        ('operations = { RELU = ["inptu.rank == 4"] }', "did you mean input"),
        ('operations = { RELU = ["input.rank > 9"] }', "conditions on input.rank that some RELU can meet"),
        ("partition = 1\noperations = { RELU = [] }", "did you mean partitions"),
        ('operations = { RELU = [] }\ncost = { source = "x", granule = [1] }', "granule: 3 number(s) above 0"),
        ('operations = { RELU = [] }\ncost = { source = "x" }', "macs_per_second"),
    ],
)
def test_a_wrong_profile_is_reported_with_its_line(tmp_path: Path, text: str, mistake: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f'[[device]]\nname = "mine"\nlevel = "tflite"\nsource = "https://example.org"\n{text}\n')
    with pytest.raises(InputError, match=r"mine\.toml line \d+") as raised:
        load_any(path)
    assert mistake in str(raised.value)


def test_the_first_sentence_counts_operators_of_the_file(tmp_path: Path) -> None:
    found = plan(chain(tmp_path, "RELU", "SIN", "TANH"), "--device", "ethos-u55-128")["summary"]
    sentence = "On ethos-u55-128, without NNAPI: 2 of 3 operators are accepted in 2 partitions; 1 has no kernel in TFLite"
    assert found["sentence"] == sentence
