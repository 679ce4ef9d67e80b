"""The evidence of devices: where rules come from, what was verified, whose numbers they are."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from nnbridge import devices
from nnbridge.devices import driver
from nnbridge.devices.device import Device
from nnbridge.devices.evidence import IDLE, NUMBERS_UNKNOWN, evidence, shared_evidence
from nnbridge.devices.families import families
from nnbridge.report.families import profiles_of
from tests.commands import call, data
from tests.conftest import MODELS

FLOAT32 = str(MODELS / "digits_float32.tflite")
SHIPPED = [d.name for d in (*devices.shipped(), *devices.shipped_at_source())]


@pytest.mark.parametrize(
    ("name", "clause"),
    [
        (
            "vsi-nn-sl",
            "rules: VeriSilicon/nn-sl, commit 4ecc84063cc8 (2025-01-21); verified: 54,439 random operations, 0 disagreements "
            "with the library's own code on a workstation; numbers not emulated (computed as NNAPI's CPU)",
        ),
        (
            "arm-nn-18.05",
            "rules: ARM-software/android-nn-driver, tag v18.05; not compared with the driver itself; "
            "numbers not emulated (computed as NNAPI's CPU)",
        ),
        (
            "tflite-gpu-delegate",
            "rules: google-ai-edge/LiteRT, model_builder.cc; not compared with the driver itself; "
            "numbers emulated (float_requantised)",
        ),
    ],
)
def test_the_clause_has_rules_verification_and_numbers(name: str, clause: str) -> None:
    assert evidence(devices.device(name)).clause == clause


def test_rules_that_were_verified_on_another_size_of_the_device_say_so() -> None:
    assert "of ethos-u55-128" in evidence(devices.device("ethos-u55-32")).verified
    assert "of ethos-u55-128" not in evidence(devices.device("ethos-u55-128")).verified


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_profile_names_where_its_rules_come_from_in_one_clause(name: str) -> None:
    found = evidence(devices.device(name))
    assert found.rules != "the profile names no source"
    assert len(found.clause) < 260


@pytest.mark.parametrize("name", ["caching:arm-nn-18.05", "arm-nn-21.11@2", "process:arm-nn-18.05"])
def test_a_device_in_front_of_another_has_the_evidence_of_that(name: str) -> None:
    found = evidence(devices.device(name))
    assert found.device == name
    assert found.rules.startswith("ARM-software/android-nn-driver")
    assert not found.emulated


def test_aosp_s_samples_compute_as_nnapis_cpu_and_a_driver_of_yours_as_it_does() -> None:
    assert evidence(devices.device("nnapi-sample_all")).emulated
    assert evidence(devices.device("aosp-minimal")).emulated
    assert evidence(devices.device("tests.reduction.drivers:STEP")).numbers == "numbers are the driver's own"


def test_a_driver_of_one_function_computes_as_nnapis_cpu() -> None:
    drawn = driver("npu", numerics="float16")(lambda model, operation: True)
    assert evidence(drawn).clause == "rules: the driver's own replies; nothing to verify; numbers are NNAPI's CPU's (float16)"


def test_evidence_of_a_driver_in_another_process_imports_nothing_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tests.reduction.drivers", raising=False)
    found = evidence(devices.device("process:tests.reduction.drivers:STEP"))
    assert found.numbers == "numbers are the driver's own"
    assert "tests.reduction.drivers" not in sys.modules


def test_a_profile_without_source_says_so_and_one_with_numerics_source_is_emulated(tmp_path: Path) -> None:
    text = '[[device]]\nname = "npu"\n{}[device.operations]\nothers = {{}}\n'
    (tmp_path / "plain.toml").write_text(text.format(""))
    (tmp_path / "stated.toml").write_text(text.format('numerics = "exact"\nnumerics_source = "manual, page 3"\n'))
    plain, stated = (evidence(devices.device(str(tmp_path / name))) for name in ("plain.toml", "stated.toml"))
    assert plain.rules == "the profile names no source"
    assert (plain.emulated, stated.emulated) == (False, True)


def test_a_comparison_never_passes_numbers_that_nothing_emulates(tmp_path: Path) -> None:
    stored = tmp_path / "answers.npz"
    assert call("run", FLOAT32, "--seed", "0", "--mapping", "wide", "--samples", stored).exit_code == 0
    options = (FLOAT32, "--reference", stored, "--mapping", "wide")
    unknown = call("compare", *options, "--device", "arm-nn-21.11")
    assert unknown.exit_code == 0
    assert NUMBERS_UNKNOWN in unknown.stdout.splitlines()[0]
    assert " pass" not in unknown.stdout
    assert "in place of arm-nn-21.11 is within tolerance, which the exit status says" in " ".join(unknown.stdout.split())
    assert NUMBERS_UNKNOWN not in call("compare", *options, "--device", "nnapi-sample_all").stdout
    (found,) = data("compare", *options, "--device", "arm-nn-21.11")["evidence"]
    assert (found["device"], found["emulated"]) == ("arm-nn-21.11", False)


@pytest.mark.parametrize("device", ["qti-hvx", "edgetpu", "ethos-u55-128", "nnapi-sample_quant"])
@pytest.mark.parametrize("layers", [(), ("--layers",)])
def test_what_others_computed_is_no_pass_of_a_device_that_ran_nothing(device: str, layers: tuple[str, ...]) -> None:
    pytest.importorskip("ai_edge_litert")
    options = ("--reference", "litert", "--seeds", "0", "--device", device, *layers)
    result = call("compare", FLOAT32, *options)
    assert result.exit_code == 0
    assert IDLE in result.stdout.splitlines()[0]
    assert not re.search(r"\bpass\b", result.stdout)
    assert data("compare", FLOAT32, *options)["verdict"] == IDLE


def test_a_comparison_without_a_device_is_that_of_nnapi_s_cpu() -> None:
    pytest.importorskip("ai_edge_litert")
    assert call("compare", FLOAT32, "--reference", "litert", "--seeds", "0").stdout.splitlines()[0].endswith("1 sample: pass")


@pytest.mark.parametrize("layers", [(), ("--layers",)])
def test_what_the_host_computed_is_no_pass_of_nnapi_s_cpu(layers: tuple[str, ...]) -> None:
    pytest.importorskip("onnxruntime")
    # At Android 8.1 the provider takes none of the file's operators.
    file, phone = str(MODELS / "digits_qdq.onnx"), ("--android", "8.1", "--atol", "0.1")
    options = (file, "--reference", "onnxruntime", "--seeds", "0", *phone, *layers)
    assert IDLE in call("compare", *options).stdout.splitlines()[0]
    assert data("compare", *options)["verdict"] == IDLE


def test_layers_end_with_the_verdict_on_numbers(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    options = (FLOAT32, "--reference", "litert", "--seeds", "0", "--layers", "--mapping", "wide")
    assert call("compare", *options, "--device", "arm-nn-21.11").stdout.rstrip().endswith(f"Verdict: {NUMBERS_UNKNOWN}")


@pytest.mark.parametrize(
    ("device", "verdict"),
    [
        ("nnapi-sample_full", ": nothing on the device; what was computed is within tolerance"),
        ("nnapi-sample_float_fast", ": pass"),
    ],
)
def test_a_comparison_ends_with_its_verdict(device: str, verdict: str) -> None:
    pytest.importorskip("ai_edge_litert")
    options = ("--reference", "litert", "--seeds", "0", "--mapping", "wide", "--fallback", "cpu")
    last = call("compare", FLOAT32, *options, "--device", device).stdout.splitlines()[-1]
    assert last.startswith("Verdict: digits_float32 on ")
    assert last.endswith(verdict)


def test_plans_and_reports_have_the_clause_after_judgement_and_figures(tmp_path: Path) -> None:
    for command in (("plan", FLOAT32), ("report", FLOAT32, "-o", tmp_path / "page.html")):
        lines = call(*command, "--device", "vsi-nn-sl").stdout.splitlines()
        assert lines[2].startswith("vsi-nn-sl: rules: VeriSilicon/nn-sl")
    assert "54,439 random operations" in (tmp_path / "page.html").read_text()


def test_times_are_those_of_the_emulation() -> None:
    assert "ms, emulated on this machine" in call("run", FLOAT32, "--seed", "0", "--device", "vsi-nn-sl").output


def test_rules_of_a_profile_do_not_call_arithmetic_exact_that_nothing_emulates() -> None:
    result = call("devices", "explain", "vsi-imx-1.3.0", "CONV_2D")
    assert "numbers not emulated (computed as NNAPI's CPU)" in result.stdout
    assert "exact" not in result.stdout


def test_no_family_claims_that_no_operations_were_verified() -> None:
    for family in families():
        assert "verified: 0 " not in shared_evidence(profiles_of(family)).verified, family


@pytest.mark.parametrize("profile", [*devices.shipped(), *devices.shipped_at_source()], ids=lambda profile: profile.name)
def test_what_was_verified_says_against_what(profile: Device) -> None:
    """No clause can be taken for a test of a board: it names the code, compiler or runtime that answered."""
    found = evidence(profile).verified
    judges = ("own code on a workstation", "the service's own checks on a workstation",
              "with the library on a workstation", "with ethos-u-vela 5.2.0", "LiteRT 2.3.0")  # fmt: skip
    assert found == "not compared with the driver itself" or any(judge in found for judge in judges)


def test_a_family_says_against_what_its_releases_were_verified() -> None:
    families_by_name = {family.name: family for family in families()}
    clauses = {
        name: shared_evidence(profiles_of(families_by_name[name])).verified for name in ("vsi-imx", "ethos-u", "ethos-n78")
    }
    assert clauses["vsi-imx"].endswith("0 disagreements with each release's own code on a workstation")
    assert clauses["ethos-u"].endswith("0 disagreements with ethos-u-vela 5.2.0")
    assert clauses["ethos-n78"].endswith("with the backend's layer support with the library on a workstation")
