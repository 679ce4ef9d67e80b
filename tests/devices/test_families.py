"""Families: every shipped profile is in one, and ``nnbridge devices`` lists and opens them."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from nnbridge import toml
from nnbridge.devices import device, shipped, shipped_at_source
from nnbridge.devices.families import families, family_of
from nnbridge.devices.profile_file import SHIPPED
from nnbridge.report.families import changes_of
from tests.commands import call, data, refused

FAMILIES = {family.name: family for family in families()}
ENTRIES = [entry for path in SHIPPED.rglob("*.toml") for entry in toml.parse(path.read_text(encoding="utf-8"))["device"]]


def test_every_shipped_profile_is_in_one_family_and_no_other_name_is() -> None:
    named = [name for family in families() for name in family.names]
    assert sorted(named) == sorted(profile.name for profile in (*shipped(), *shipped_at_source()))


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if "like" in entry], ids=lambda entry: entry["name"])
def test_a_profile_is_like_one_of_its_family(entry) -> None:  # type: ignore[no-untyped-def]
    assert family_of(entry["like"]) is family_of(entry["name"])


@pytest.mark.parametrize("family", families(), ids=lambda family: family.name)
def test_the_dates_of_a_family_are_in_order(family) -> None:  # type: ignore[no-untyped-def]
    dates = [date for _, date in family.profiles]
    assert dates == sorted(dates)
    assert all(re.fullmatch(r"20\d\d-(0\d|1[0-2])|", date) for date in dates)


def test_devices_of_one_driver_are_one_row() -> None:
    shown = call("devices").stdout
    row = next(line for line in shown.splitlines() if line.startswith("arm-nn"))
    assert re.split(r" {2,}", row) == [
        "arm-nn",
        "Arm: Mali GPUs, Cortex-A; NNAPI driver",
        "7; 2018–2024",
        "not compared; not emulated",
    ]
    assert "arm-nn-" not in shown


def test_sample_drivers_and_nnbridges_devices_are_groups() -> None:
    shown = call("devices").stdout
    assert shown.index("AOSP's sample drivers") < shown.index("nnapi-sample_all") < shown.index("NNAPI's CPU and the host")


def test_an_installed_device_is_in_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = device("nnbridge.devices.cpu:CpuDevice")
    object.__setattr__(installed, "kind", "device")
    object.__setattr__(installed, "name", "theirs")
    monkeypatch.setattr("nnbridge.devices.drivers", lambda: (installed,))
    shown = call("devices").stdout
    assert shown.index("Devices of installed packages") < shown.index("theirs")


def test_no_line_is_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for arguments in ((), *((family.name,) for family in families())):
        assert max(map(len, call("devices", *arguments).stdout.splitlines())) <= 80


def test_a_family_opens_with_what_changed_from_release_to_release() -> None:
    first, second, *_ = data("devices", "arm-nn")["profiles"]
    assert (first["name"], first["date"], first["level"]) == ("arm-nn-18.05", "2018-05", "1")
    assert second["change"]["since"] == "arm-nn-18.05"
    assert second["change"]["changed"] == ["ADD", "FULLY_CONNECTED", "MUL"]
    assert "TRANSPOSE" in second["change"]["added"]


def test_what_changed_is_a_difference_of_the_operations_that_profiles_list() -> None:
    counts = [(change.count, len(change.added), len(change.removed)) for change in changes_of(FAMILIES["arm-nn"])]
    for (before, _, _), (count, added, removed) in pairwise(counts):
        assert count == before + added - removed


def test_an_operation_that_rules_for_all_others_took_is_not_new() -> None:
    first, second, *_ = changes_of(FAMILIES["vsi-imx"])
    assert (first.others, second.others) == (True, False)
    assert "DEQUANTIZE" in second.changed
    assert "DEQUANTIZE" not in second.added


def test_the_last_changes_of_the_imx_driver_are_those_that_its_own_code_showed() -> None:
    *_, third, second, first = changes_of(FAMILIES["vsi-imx"])
    assert (third.changed, third.added, third.removed) == (("TRANSPOSE_CONV_2D",), (), ())
    assert (second.changed, second.removed) == (("RESIZE_BILINEAR",), ("RESIZE_NEAREST_NEIGHBOR",))
    assert (first.changed, first.removed) == ((), ("UNIDIRECTIONAL_SEQUENCE_RNN",))


def test_sizes_of_one_processor_have_the_same_rules() -> None:
    changes = changes_of(FAMILIES["ethos-u"])
    differ = [name for name, change in zip(FAMILIES["ethos-u"].names, changes, strict=True) if change.added or change.changed]
    assert differ == ["ethos-u85-128"]


def test_a_profile_opens_its_family() -> None:
    assert data("devices", "Arm-NN")["name"] == data("devices", "arm-nn-21.11")["name"] == "arm-nn"


@pytest.mark.parametrize("words", [("toaster",), ("brass", "toaster")])
def test_a_word_that_is_neither_family_nor_command_is_refused(words: tuple[str, ...]) -> None:
    assert "NAME: expected a family (aosp, arm-nn, " in refused("devices", *words)


def test_a_phone_in_place_of_a_family_is_answered() -> None:
    assert "Google Pixel 8 has the Tensor G3; Google Tensor: no public rules" in refused("devices", "Pixel", "8")


def test_a_mistyped_command_is_not_taken_for_a_family() -> None:
    assert "No such command 'explan'. (did you mean explain?)" in refused("devices", "explan", "arm-nn-21.11", "CONV_2D")


def test_all_devices_are_listed_with_their_family() -> None:
    listed = {item["name"]: item["family"] for item in data("devices")["devices"]}
    assert listed["vsi-nn-1.0.4"] == "vsi-imx"
    assert (listed["nnapi-sample_all"], listed["nnapi-reference"]) == ("sample drivers", "nnbridge")
    assert (
        len(listed)
        == len([line for line in call("devices", "--all").stdout.splitlines() if "  device " in line or "  profile " in line]) + 2
    )
