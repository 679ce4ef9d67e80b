"""Device profiles: rules, numerics, faults, and mistakes reported with their lines."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from nnbridge import Compilation, Execution, load
from nnbridge.devices import device, profile_file, shipped
from nnbridge.devices.device import Device
from nnbridge.devices.profile_conditions import CONDITION_KEYS
from nnbridge.devices.profile_file import load_profiles
from nnbridge.errors import DeadObjectError, InputError, NnapiError
from nnbridge.model import Model
from nnbridge.types import OperationCode, PreferenceCode
from tests.conftest import MODELS
from tests.graphs import unary_chain

DIGITS = sorted(MODELS.glob("digits_*.tflite"))
BASE = '[[device]]\nname = "npu"\n[device.performance]\nother = [0.5, 0.5]\n'


def profile(folder: Path, text: str) -> Device:
    """A device of a file with these lines below the base."""
    path = folder / "npu.toml"
    path.write_text(BASE + text)
    return device(str(path))


def reasons(npu: Device, model: Model) -> list[str | None]:
    """The reason of each no; None for a yes."""
    return [None if answer is True else str(answer) for answer in npu.supported_operations(model)]


def answer(npu: Device, model: Model, *, fallback: bool = False) -> npt.NDArray[np.generic]:
    """One output for zeros and ones in turn."""
    compilation = Compilation.create(model, [npu]) if fallback else Compilation.create_for_devices(model, [npu])
    compilation.finish()
    main = model.main.operands[model.main.inputs[0]]
    name = main.name
    value = np.resize(np.array([0, 1]), main.dims).astype(np.float32)
    return next(iter(Execution(compilation).run({name: value}).values()))


@pytest.mark.parametrize(
    ("name", "sample"),
    [
        ("aosp-float-fast", "nnapi-sample_float_fast"),
        ("aosp-float-slow", "nnapi-sample_float_slow"),
        ("aosp-minimal", "nnapi-sample_minimal"),
        ("aosp-quant", "nnapi-sample_quant"),
    ],
)
@pytest.mark.parametrize("path", DIGITS, ids=lambda p: p.stem)
def test_profiles_of_the_sample_drivers_plan_as_the_drivers(name: str, sample: str, path: Path) -> None:
    model = load(path)
    for preference in PreferenceCode:
        plans = []
        for driver in (device(name), device(sample)):
            compilation = Compilation.create(model, [driver])
            compilation.set_preference(preference)
            plan = compilation.finish()
            plans.append([(plan.devices[step.device].name == driver.name, step.operations) for step in plan.steps])
        assert plans[0] == plans[1]


def test_a_dozen_profiles_are_shipped_and_each_names_its_source() -> None:
    assert len(shipped()) >= 12
    assert all(npu.source.startswith("https://") for npu in shipped())
    assert len({npu.name for npu in shipped()}) == len(shipped())


def test_arm_nn_18_05_accepts_the_whole_digit_classifier() -> None:
    model = load(MODELS / "digits_float32.tflite")
    assert set(reasons(device("arm-nn-18.05"), model)) == {None}


@pytest.mark.parametrize(
    ("rule", "reported"),
    [
        ('RELU = ["QUANT8_ASYMM"]', "RELU input 0: expected TENSOR_QUANT8_ASYMM, found TENSOR_FLOAT32"),
        ("RELU = { ranks = [4] }", "RELU input 0: expected rank 4, found 2"),
        ("RELU = { max_bytes = 15 }", "RELU x: expected at most 15 bytes, found 16 bytes"),
        ("RELU = { max_side = 3 }", "RELU x: expected sides of at most 3, found [1, 4]"),
        ('RELU = { constant = ["input"] }', "RELU input: expected a constant, found a computed value"),
        ("ADD = {}", "RELU: expected an operation that the profile lists, found RELU"),
    ],
)
def test_a_broken_rule_is_a_reason(tmp_path: Path, rule: str, reported: str) -> None:
    assert reasons(profile(tmp_path, f"[device.operations]\n{rule}"), unary_chain(OperationCode.RELU)) == [reported]


@pytest.mark.parametrize(
    ("rule", "reported"),
    [
        ("values = { stride_w = [2] }", "CONV_2D stride_w: expected one of 2, found 1"),
        ("at_most = { filter_h = 1 }", "CONV_2D filter_h: expected at most 1, found 3"),
        ("at_least = { channels = 2 }", "CONV_2D channels: expected at least 2, found 1"),
        ('values = { activation = ["NONE"] }', "CONV_2D activation: expected one of 0, found 1"),
        ("zero_points = { filter = [1] }", "CONV_2D filter: expected a zero point of 1, found 0"),
    ],
)
def test_rules_check_scalars_and_sides_of_convolutions(tmp_path: Path, rule: str, reported: str) -> None:
    model = load(MODELS / "digits_float32.tflite")
    npu = profile(tmp_path, f"[device.operations]\nCONV_2D = {{ {rule} }}")
    first = next(reason for reason in reasons(npu, model) if reason and reason.startswith("CONV_2D"))
    assert first == reported


def test_one_alternative_is_enough_and_all_of_them_are_shown_where_none_holds(tmp_path: Path) -> None:
    model = unary_chain(OperationCode.RELU)
    both = '[device.operations]\nRELU = [{ types = ["QUANT8_ASYMM"], ranks = [4] }, { ranks = [%d] }]'
    assert reasons(profile(tmp_path, both % 2), model) == [None]
    required = "input 0: TENSOR_QUANT8_ASYMM and input 0: rank 4; or input 0: rank 3"
    found = "input 0: TENSOR_FLOAT32, input 0: 2"
    assert reasons(profile(tmp_path, both % 3), model) == [f"RELU: expected {required}, found {found}"]


@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_float_requantisation_differs_from_androids_arithmetic_by_a_few_steps_at_most(tmp_path: Path, kind: str) -> None:
    model = load(MODELS / f"digits_{kind}.tflite")
    (tmp_path / "npu.toml").write_text(
        '[[device]]\nname = "npu"\nnumerics = "float_requantised"\noperations.others = {}\nperformance.other = [0.5, 0.5]'
    )
    images = np.load(MODELS / "digits_test.npz")["images"]
    answers = []
    for devices in ([device(str(tmp_path / "npu.toml"))], [device("nnapi-sample_all")]):
        compilation = Compilation.create_for_devices(model, devices)
        compilation.finish()
        source = model.main.operands[model.main.inputs[0]]
        dtype = np.uint8 if kind == "uint8" else np.int8
        pictures = (images.astype(np.float32) / 16 / source.scale + source.zero_point).round().clip(np.iinfo(dtype).min, 127)
        runs = [Execution(compilation).run({source.name: p.astype(dtype).reshape(source.dims)}) for p in pictures[:32]]
        answers.append(np.array([next(iter(run.values())) for run in runs]).astype(int))
    steps = np.abs(answers[0] - answers[1])
    assert 0 < (steps > 0).mean() < 0.05
    assert steps.max() <= 3
    assert np.array_equal(answers[0].argmax(-1), answers[1].argmax(-1))


def test_a_driver_that_cannot_prepare_leaves_the_model_to_the_cpu(tmp_path: Path) -> None:
    npu = profile(tmp_path, "[device.operations]\nothers = {}\n[device.faults]\nprepare = true")
    model = unary_chain(OperationCode.RELU, OperationCode.NEG)
    assert answer(npu, model, fallback=True).tolist() == [[0, -1, 0, -1]]
    with pytest.raises(NnapiError, match="the fault 'prepare'"):
        answer(npu, model)


def test_a_driver_dies_at_the_execution_that_its_profile_names(tmp_path: Path) -> None:
    npu = profile(tmp_path, "[device.operations]\nothers = {}\n[device.faults]\ndies_at = 2")
    compilation = Compilation.create_for_devices(unary_chain(OperationCode.RELU), [npu])
    compilation.finish()
    x = {"x": np.ones((1, 4), np.float32)}
    assert Execution(compilation).run(x)["y"].tolist() == [[1, 1, 1, 1]]
    for _ in range(2):
        with pytest.raises(DeadObjectError):
            Execution(compilation).run(x)


def test_an_execution_that_fails_once_is_computed_by_the_cpu(tmp_path: Path) -> None:
    npu = profile(tmp_path, "[device.operations]\nothers = {}\n[device.faults]\nfails_at = 1")
    assert answer(npu, unary_chain(OperationCode.RELU), fallback=True).tolist() == [[0, 1, 0, 1]]


def test_wrong_answers_are_not_noticed_by_the_runtime(tmp_path: Path) -> None:
    npu = profile(tmp_path, "[device.operations]\nothers = {}\n[device.faults]\nwrong_answers = true")
    assert answer(npu, unary_chain(OperationCode.RELU), fallback=True).tolist() != [[0, 1, 0, 1]]


def test_a_name_chooses_among_the_devices_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "two.toml"
    path.write_text('[[device]]\nname = "a"\noperations.ADD = {}\n[[device]]\nname = "b"\nlike = "a"\noperations.RELU = {}\n')
    assert device(f"{path}#b").name == "b"
    assert set(load_profiles(path)[1].rules) == {OperationCode.ADD, OperationCode.RELU}
    with pytest.raises(InputError, match="one device of the file"):
        device(str(path))


def test_any_driver_can_be_had_at_a_lower_feature_level() -> None:
    assert (device("aosp-minimal@1").feature_level, device("aosp-minimal@1").name) == (1, "aosp-minimal@1")
    with pytest.raises(InputError, match="a feature level of 1 to 4"):
        device("arm-nn-24.05@8")


@pytest.mark.parametrize(
    ("text", "line", "reported"),
    [
        ('[[device]]\nname = "a"\nspeed = 3', 3, "speed: expected one of name"),
        ('[[device]]\nname = "a"', 1, "operations: expected a table of operations"),
        (
            '[[device]]\nname = "a"\nfeature_level = 9\noperations.ADD = {}',
            3,
            "feature_level: expected a whole number of 1 to 8",
        ),
        ('[[device]]\nname = "a"\n[device.operations]\nCONV = {}', 4, "CONV: expected an operation of NNAPI"),
        ('[[device]]\nname = "a"\n[device.operations]\nADD = ["FLOAT"]', 4, "FLOAT: expected an operand type of NNAPI"),
        (
            '[[device]]\nname = "a"\n[device.operations]\nADD = {}\nMUL = { ranks = ["4"] }',
            5,
            "ranks: expected a list",
        ),
        (
            '[[device]]\nname = "a"\n[device.operations]\n'
            "CONV_2D = { at_most = { stride_w = 2 } }\nRELU = { at_most = { stride_w = 2 } }",
            5,
            "stride_w: expected an input of RELU (batch, channels, input)",
        ),
        ('[[device]]\nname = "a"\noperations.ADD = {}\n[[device]]\nname = "a"', 5, "name: expected each name once"),
        ('[[device]]\nname = "a"\noperations.ADD = {}\nperformance.other = [0, 1]', 4, "other: expected [execTime, powerUsage]"),
        ('[[device]]\nname = "a"\noperations.ADD = {}\nfaults.dies_at = "soon"', 4, "dies_at: expected a whole number"),
        ('[[device]]\nname = "b"\nlike = "a"', 3, "like: expected a device above (none)"),
        ('[[device]]\nname = "a"\ntype = "UNKNOWN"\noperations.ADD = {}', 3, "type: expected one of OTHER, CPU, GPU"),
        ('[[device]]\nname = "a"\n[device.operations]\nADD = []', 4, "ADD: expected at least one of types"),
        ('[[device]]\nname = "a"\n[device.operations]\nADD = { ranks = [] }', 4, "ranks: expected at least one of ranks"),
        (
            '[[device]]\nname = "a"\n[device.operations]\nCONV_2D = { at_least = { stride_w = 3 }, at_most = { stride_w = 2 } }',
            4,
            "stride_w: expected at_least up to at_most's 2, found 3",
        ),
        (
            '[[device]]\nname = "a"\nfeature_level = 1\n[device.operations]\nADD = {}\nPACK = {}',
            6,
            "PACK: expected an operation of the device's feature level 1, found one of 6",
        ),
    ],
)
def test_a_mistake_is_reported_with_its_line(tmp_path: Path, text: str, line: int, reported: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_profiles(path)
    assert f"line {line} {reported}" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("name = 'b'\n", "operations: expected a table of operations ([device.operations]) of device b, found nothing"),
        ("version = 'x'\noperations.ADD = {}", "name: expected the device's name, found nothing"),
        ("name = 'b\\u001b'\noperations.ADD = {}".replace("'", '"'), 'name: expected a printable text, found "b\\u001b"'),
        ("name = 'b'\nfeature_level = '4'\noperations.ADD = {}", 'feature_level: expected a whole number of 1 to 8, found "4"'),
        ("name = 'b'\noperations.CONV2D = {}", "CONV2D: expected an operation of NNAPI (did you mean CONV_2D?), found CONV2D"),
        ("name = 'b'\noperations.conv_2d = {}", "(did you mean CONV_2D?), found conv_2d"),
        ("name = 'b'\noperations.ADD = ['uint8']", "uint8: expected an operand type of NNAPI (did you mean QUANT8_ASYMM?)"),
        ("name = 'b'\noperations.ADD = ['complex']", "an operand type of NNAPI (FLOAT32, INT32, UINT32, QUANT8_ASYMM,"),
        ("name = 'b'\nnumeric = 'exact'\noperations.ADD = {}", "in [[device]] (did you mean numerics?), found numeric"),
        ("name = 'b'\noperations.CONV_2D = { at_most = { filter_h = -3 } }", "filter_h: expected a number of 1 to 2147483647"),
        ("name = 'b'\noperations.CONV_2D = { at_most = { stride_w = -1 } }", "stride_w: expected a number of 0 to 2147483647"),
        ("name = 'b'\noperations.CONV_2D = { ranks = [9, -1] }", "ranks: expected ranks of 0 to 8, found [9, -1]"),
        ("name = 'b'\noperations.CONV_2D = { values = { activation = 3 } }", "activation: expected a list of whole numbers"),
        ("name = 'b'\noperations.CONV_2D = { values = { activation = [7] } }", "activation: expected numbers of 0 to 3"),
        ("name = 'b'\noperations.CONV_2D = { zero_points = { filter = [1e9] } }", "filter: expected a list of whole numbers"),
        ("name = 'b'\noperations.ADD = {}\nperformance.other = [inf, 1]", "other: expected [execTime, powerUsage]"),
        ("name = 'b'\noperations.ADD = {}\nfaults.dies_at = 0", "dies_at: expected a whole number of 1 to 2147483648, found 0"),
        ("name = 'b'\noperations.ADD = {}\nfaults.delay_ms = 1e308", "delay_ms: expected milliseconds of 0 to 3600000"),
        ("name = 'b'\noperations.ADD = {}\nfaults.delay_ms = nan", "delay_ms: expected milliseconds of 0 to 3600000"),
        ("name = 'b'\nextensions = [{ name = 'no domain' }]", "name: expected an extension's name, a domain reversed"),
        ("name = 'b'\nextensions = [{ name = 'a.b', operations = [-1] }]", "operations: expected numbers of 0 to 65535"),
    ],
)
def test_nonsense_is_refused_with_what_could_have_been_meant(tmp_path: Path, text: str, reported: str) -> None:
    (tmp_path / "bad.toml").write_text("[[device]]\n" + text)
    with pytest.raises(InputError) as caught:
        load_profiles(tmp_path / "bad.toml")
    assert reported in str(caught.value)
    assert str(caught.value).count("\n") == 0


def test_all_mistakes_are_reported_at_once_and_those_of_a_base_once(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(
        '[[device]]\nname = "a"\nfeature_level = 40\nnumerics = "float8"\n[device.operations]\nCONV2D = {}\nADD = ["uint8"]\n'
        '[[device]]\nname = "b"\nlike = "a"\n[device.operations]\nMUL = ["uint8"]\n'
    )
    with pytest.raises(InputError) as caught:
        load_profiles(tmp_path / "bad.toml")
    reported = [line.split("bad.toml ")[1].split(": expected")[0] for line in str(caught.value).splitlines()]
    assert sorted(reported) == ["line 12 uint8", "line 3 feature_level", "line 4 numerics", "line 6 CONV2D", "line 7 uint8"]


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("a = " + "[" * 60_000, "nested too deep"),
        ("a = " + "{a=" * 20_000, "nested too deep"),
        ("a" + ".a" * 30_000 + " = 1", "keys of too many parts between dots"),
        ("a = " + "9" * 5_000, "a TOML file"),
        ("#" * 140_000, "found 140,000 bytes, more than the 131,072 that are read"),
        ("a = 1979-99-99", "a TOML file"),
    ],
    ids=["lists", "tables", "dotted", "digits", "size", "date"],
)
def test_hostile_toml_is_an_input_error_at_once(tmp_path: Path, text: str, reported: str) -> None:
    (tmp_path / "bad.toml").write_text(text)
    began = time.perf_counter()
    with pytest.raises(InputError, match=reported):
        load_profiles(tmp_path / "bad.toml")
    assert time.perf_counter() - began < 5


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    with pytest.raises(InputError, match="a profile's file"):
        load_profiles(tmp_path / "pipe.toml")
    with pytest.raises(InputError, match=r"no such file"):
        load_profiles(tmp_path / "none.toml")


def test_a_file_that_is_not_toml_is_refused_with_the_line_that_its_reader_names(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("[[device]\n")
    with pytest.raises(InputError, match="line 1"):
        load_profiles(path)


def test_the_documentation_names_every_key_and_its_example_is_right(tmp_path: Path) -> None:
    text = (MODELS.parent / "docs" / "profiles.md").read_text()
    for example in text.split("```toml\n")[1:]:
        (tmp_path / "npu.toml").write_text(example.split("```")[0])
        assert device(str(tmp_path / "npu.toml")).name == "my-npu"
    for key in (*profile_file._DEVICE_KEYS, *profile_file._RULE_KEYS, *profile_file._FAULT_KEYS, *CONDITION_KEYS):
        assert f"`{key}`" in text
