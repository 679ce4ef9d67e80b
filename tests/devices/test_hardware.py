"""From a chip, board or phone to a device, and an honest answer where nothing is known."""

from __future__ import annotations

import pytest

from nnbridge.devices import device
from nnbridge.devices.hardware import LINE, LONGER, PART, SAME, SIMILAR, UNLISTED, find, hardware, phones
from tests.commands import call, data, refused
from tests.conftest import MODELS

INT8 = str(MODELS / "digits_int8.tflite")
LITERT = "Qualcomm Snapdragons that LiteRT's QNN route lists"
NAMES = {
    "NXP i.MX 8M Plus": ("i.MX 8M Plus", "imx8mplus", "IMX8MP", "i.MX 8M+", "8MPLUSLPD4-EVK", "vsi-nn-sl"),
    "NXP i.MX 8QuadMax": ("i.MX 8QM",),
    "NXP i.MX 93": ("imx93", "i.MX 93 EVK"),
    "NXP i.MX 95": ("i.mx 95",),
    "Arm Mali GPUs with Arm NN's driver": ("hikey970",),
    "Arm Ethos-U55": ("Grove Vision AI V2", "ethos_u55", "Alif Ensemble E7"),
    "Arm Ethos-U85": ("ethos u85",),
    "Google Coral": ("coral usb accelerator", "Edge TPU", "coral"),
    "Google Pixel Neural Core": ("pixel 4",),
    "Google Tensor": ("tensor g1", "Google Tensor G5", "tensor-g4", "Google Pixel 7 Pro", "pixel 8", "pixel10"),
    "Android's emulator": ("sdk_gphone64_x86_64", "cuttlefish"),
    "Amlogic A311D and S905D3": ("khadas vim3", "a311d"),
    "Rockchip RK3588, RK3576, RK3568 and RK3566": ("RK3588", "rockchip rk3588s", "rk3566"),
    "Qualcomm Snapdragon 845 and 855": ("snapdragon 845", "sdm845", "pixel 3", "hexagon 690"),
    "Qualcomm Snapdragon 820, 821, 835, 660 and 710": ("Pixel 2", "mi a2"),
    LITERT: (
        "Snapdragon 8 Gen 3",
        "SD865",
        "sd 8 gen 3",
        "SM8550",
        "s23",
        "OnePlus 9",
        "mi 11",
        "fairphone 5",
        "Nothing Phone 2",
    ),
    "Other Snapdragons of Qualcomm": ("pixel 3a", "snapdragon 662"),
    "MediaTek chips that LiteRT's NeuroPilot route lists": ("dimensity 9300", "mt6991"),
    "Other chips of MediaTek": ("Dimensity 1200", "mt6893", "helio g99"),
    "Samsung Exynos": ("exynos 990", "exynos2100", "Galaxy S9", "s9", "galaxy s20 ultra"),
    "Intel with NN HAL": ("celadon",),
    "HiSilicon Kirin": ("kirin 990", "HiSilicon Kirin 9000", "Mate 40 Pro"),
    "Unisoc T820 and T760": ("unisoc", "t820"),
    "STMicroelectronics STM32MP2": ("stm32mp257",),
    "STMicroelectronics STM32N6": ("STM32N6",),
    "NVIDIA Jetson": ("jetson nano",),
    "Raspberry Pi": ("raspberry pi 5", "rpi4"),
    "Apple": ("iPhone",),
}


@pytest.mark.parametrize(("typed", "name"), [(typed, name) for name, listed in NAMES.items() for typed in listed])
def test_hardware_is_found_by_what_people_call_it(typed: str, name: str) -> None:
    assert find(typed)[0].entry.name == name


@pytest.mark.parametrize("typed", ["", "x", "toaster", "imx9", "RK35", "pixl 12", "zzzz 9000", "ipx 8m"])
def test_what_is_not_listed_finds_nothing(typed: str) -> None:
    assert find(typed) == []


@pytest.mark.parametrize(
    ("typed", "how", "note"),
    [
        ("Snapdragon 845", SAME, ""),
        ("qualcomm", LINE, ""),
        ("Pixel 8", SAME, "Google Pixel 8 has the Tensor G3"),
        ("Redmi Note 10", PART, "Redmi Note 10 is not listed by that name; Xiaomi Redmi Note 10S has the Helio G95"),
        ("Pixel 8 Max", LONGER, "Pixel 8 Max is not listed by that name; Google Pixel 8 has the Tensor G3"),
        ("snapdragn 845", SIMILAR, "snapdragn 845 is not listed by that name; Snapdragon 845 is"),
        ("dimensity 700", UNLISTED, "dimensity 700 is not listed by itself"),
        ("pixel 1", UNLISTED, "pixel 1 is not listed; of Pixel there is"),
        ("google home", UNLISTED, "google home is not listed; of Google there is"),
    ],
)
def test_what_is_listed_by_another_name_is_said(typed: str, how: str, note: str) -> None:
    assert (find(typed)[0].how, find(typed)[0].note) == (how, note)


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("Amlogic S905X3", "Other chips of Amlogic"),
        ("Snapdragon 999", "Other Snapdragons of Qualcomm"),
        ("Samsung Exynos 7420", "Samsung Exynos"),
        ("Google Tensor G9", "Google Tensor"),
    ],
)
def test_another_number_is_another_chip(typed: str, name: str) -> None:
    assert [(found.entry.name, found.how) for found in find(typed)] == [(name, UNLISTED)]


@pytest.mark.parametrize("typed", ["qcs6490", "Galaxy Tab S9", "S905X3"])
def test_other_letters_of_a_number_or_another_word_are_not_taken_for_a_typing_error(typed: str) -> None:
    assert all(found.how != SIMILAR for found in find(typed))


@pytest.mark.parametrize("typed", ["xiaomi", "OnePlus"])
def test_a_maker_of_phones_finds_the_chips_in_them(typed: str) -> None:
    assert {LITERT, "Qualcomm Snapdragon 845 and 855"} <= {found.entry.name for found in find(typed)}


def test_no_line_is_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for entry in hardware():
        assert max(map(len, call("devices", "find", entry.name).stdout.splitlines())) <= 80


def test_a_phone_that_was_sold_with_two_chips_finds_both() -> None:
    assert [found.entry.name for found in find("Galaxy S24")] == ["Samsung Exynos", LITERT]


def test_a_vendor_finds_all_of_its_chips() -> None:
    named = [found.entry.name for found in find("nxp")]
    assert named == ["NXP i.MX 8M Plus", "NXP i.MX 8QuadMax", "NXP i.MX 93", "NXP i.MX 95"]


@pytest.mark.parametrize("entry", hardware(), ids=lambda entry: entry.name)
def test_every_entry_names_profiles_that_there_are_or_what_is_unknown(entry) -> None:  # type: ignore[no-untyped-def]
    for name in (*entry.profiles, *entry.nearest):
        assert name in (device(name).name, *getattr(device(name), "aliases", ()))
    assert entry.profiles or entry.unknown or entry.unwritten
    assert not (entry.profiles and entry.nearest)
    assert not entry.nearest or entry.unknown or entry.unwritten
    assert set(entry.rest) <= set(entry.lines)
    assert entry.sentence.startswith(entry.name)
    assert entry.sources


def test_a_chip_is_in_one_entry_and_each_phone_has_a_listed_chip_and_a_source() -> None:
    chips = [chip for entry in hardware() for chip in entry.chips]
    assert len(chips) == len(set(chips))
    assert {phone.chip for phone in phones()} <= set(chips)
    assert all(phone.source.startswith("https://") for phone in phones())


def test_no_public_rules_are_known_for_googles_tpu() -> None:
    shown = " ".join(call("devices", "find", "Pixel", "8").stdout.split())
    rules = "no public rules are known for Google Tensor's TPU; the nearest is edgetpu, which is not it"
    assert rules in shown
    assert rules in refused("plan", INT8, "--device", "pixel8")


def test_a_chip_as_a_device_names_its_profile() -> None:
    assert "NXP i.MX 8M Plus: --device vsi-imx-1.3.0" in refused("plan", INT8, "--device", "imx8mplus")


def test_rules_that_are_public_and_in_no_profile_are_said() -> None:
    assert "no profile has the rules of ST's Neural-ART, which are public" in find("stm32n6")[0].sentence


@pytest.mark.parametrize("typed", ["Arm-NN-21.11", "arm nn 21.11", "ARM_NN_21.11"])
def test_a_device_in_another_spelling_is_named(typed: str) -> None:
    assert "; did you mean arm-nn-21.11?" in refused("plan", INT8, "--device", typed)


@pytest.mark.parametrize("typed", ["arm-nn", "Arm NN"])
def test_a_family_as_a_device_lists_its_releases_and_chooses_none(typed: str) -> None:
    assert "one of the releases of arm-nn, newest first: arm-nn-24.05, arm-nn-21.11" in refused("plan", INT8, "--device", typed)


def test_a_beginning_of_a_devices_name_is_answered_with_devices() -> None:
    said = refused("plan", INT8, "--device", "arm-nn-2")
    assert "did you mean arm-nn-24.05, arm-nn-21.11, arm-nn-20.05 or arm-nn-20.02?" in said


def test_each_profile_is_found_with_its_evidence() -> None:
    (found,) = data("devices", "find", "i.MX 8M Plus")["hardware"]
    assert found["profiles"][0] == "vsi-imx-1.3.0"
    assert found["evidence"][0]["verified"] == "verified: 33,270 random operations, 0 disagreements"


def test_a_phone_is_found_with_its_chip_and_the_page_that_states_it() -> None:
    (found,) = data("devices", "find", "OnePlus 6")["hardware"]
    assert (found["phone"]["chip"], found["exact"]) == ("Snapdragon 845", True)
    assert found["phone"]["source"].endswith("/_data/devices/enchilada.yml")


def test_what_is_not_listed_is_refused_and_not_guessed() -> None:
    assert "NAME: expected a listed chip, board, phone or vendor" in refused("devices", "find", "toaster")
