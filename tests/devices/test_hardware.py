"""From a chip, board or phone to a device, and an honest answer where nothing is known."""

from __future__ import annotations

import pytest

from nnbridge.devices import device
from nnbridge.devices.hardware import find, hardware
from tests.commands import call, data, refused
from tests.conftest import MODELS

INT8 = str(MODELS / "digits_int8.tflite")


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("i.MX 8M Plus", "NXP i.MX 8M Plus"),
        ("imx8mplus", "NXP i.MX 8M Plus"),
        ("IMX8MP", "NXP i.MX 8M Plus"),
        ("i.MX 8QM", "NXP i.MX 8QuadMax"),
        ("imx93", "NXP i.MX 93"),
        ("i.MX 95", "NXP i.MX 95"),
        ("hikey970", "Arm Mali GPUs with Arm NN's driver"),
        ("Grove Vision AI V2", "Arm Ethos-U55"),
        ("ethos u85", "Arm Ethos-U85"),
        ("coral usb accelerator", "Google Coral"),
        ("khadas vim3", "Amlogic A311D and S905D3"),
        ("RK3588", "Rockchip RK3588, RK3576, RK3568 and RK3566"),
        ("snapdragon 845", "Qualcomm Snapdragon 835, 845 and 855"),
        ("Snapdragon 8 Gen 3", "Qualcomm Snapdragon 888 and later"),
        ("dimensity 9300", "MediaTek Dimensity"),
        ("exynos", "Samsung Exynos"),
        ("pixel 4", "Google Pixel 4"),
        ("Google Pixel 7 Pro", "Google Tensor (Pixel 6 to Pixel 10)"),
        ("pixel10", "Google Tensor (Pixel 6 to Pixel 10)"),
        ("celadon", "Intel with NN HAL"),
        ("kirin 990", "HiSilicon Kirin"),
        ("unisoc", "Unisoc T820 and T760"),
        ("raspberry pi 5", "Raspberry Pi"),
        ("iPhone", "Apple"),
        ("snapdragn 845", "Qualcomm Snapdragon 835, 845 and 855"),
        ("vsi-nn-sl", "NXP i.MX 8M Plus"),
    ],
)
def test_hardware_is_found_by_what_people_call_it(typed: str, name: str) -> None:
    assert find(typed)[0].name == name


@pytest.mark.parametrize("typed", ["", "x", "toaster", "imx9", "RK35", "pixl 12", "zzzz 9000"])
def test_what_is_not_listed_finds_nothing(typed: str) -> None:
    assert find(typed) == []


@pytest.mark.parametrize("typed", ["pixel 3", "Pixel 2"])
def test_phones_of_another_number_are_not_the_same_phone(typed: str) -> None:
    assert [entry.name for entry in find(typed)] == ["Qualcomm Snapdragon 835, 845 and 855"]


def test_a_vendor_finds_all_of_its_chips() -> None:
    assert [entry.name for entry in find("nxp")] == ["NXP i.MX 8M Plus", "NXP i.MX 8QuadMax", "NXP i.MX 93", "NXP i.MX 95"]


@pytest.mark.parametrize("entry", hardware(), ids=lambda entry: entry.name)
def test_every_entry_names_profiles_that_there_are_or_what_is_unknown(entry) -> None:  # type: ignore[no-untyped-def]
    for name in (*entry.profiles, *entry.nearest):
        assert name in (device(name).name, *getattr(device(name), "aliases", ()))
    assert entry.profiles or entry.unknown
    assert not (entry.profiles and entry.nearest)
    assert not entry.nearest or entry.unknown
    assert entry.sentence.startswith(entry.name)


def test_no_public_rules_are_known_for_googles_tpu() -> None:
    shown = " ".join(call("devices", "find", "Pixel", "8").stdout.split())
    rules = "no public rules are known for Google Tensor's TPU; the nearest is edgetpu, which is not it"
    assert rules in shown
    assert rules in refused("plan", INT8, "--device", "pixel8")


def test_a_chip_as_a_device_names_its_profile() -> None:
    assert "NXP i.MX 8M Plus: --device vsi-imx-1.3.0" in refused("plan", INT8, "--device", "imx8mplus")


def test_a_beginning_of_a_devices_name_is_still_answered_with_devices() -> None:
    assert "such as arm-nn-" in refused("plan", INT8, "--device", "arm-nn")


def test_each_profile_is_found_with_its_evidence() -> None:
    (found,) = data("devices", "find", "i.MX 8M Plus")["hardware"]
    assert found["profiles"][0] == "vsi-imx-1.3.0"
    assert found["evidence"][0]["verified"] == "verified: 33,270 random operations, 0 disagreements"


def test_what_is_not_listed_is_refused_and_not_guessed() -> None:
    assert "NAME: expected a chip, board, phone or vendor that is listed" in refused("devices", "find", "toaster")
