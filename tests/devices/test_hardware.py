"""From a chip, board or phone to a device, and an honest answer where nothing is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nnbridge
from nnbridge.devices import device
from nnbridge.devices.hardware import LINE, LONGER, PART, SAME, SIMILAR, UNLISTED, find, hardware, phones, tables
from nnbridge.types import ANDROID_LEVELS
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
    assert found["evidence"][0]["verified"] == (
        "verified: 33,270 random operations, 0 disagreements with this release's own code on a workstation"
    )


def test_a_phone_is_found_with_its_chip_and_the_page_that_states_it() -> None:
    (found,) = data("devices", "find", "OnePlus 6")["hardware"]
    assert (found["phone"]["chip"], found["exact"]) == ("Snapdragon 845", True)
    assert found["phone"]["source"].endswith("/_data/devices/enchilada.yml")


def test_what_is_not_listed_is_refused_and_not_guessed() -> None:
    assert "NAME: expected a listed chip, board, phone or vendor" in refused("devices", "find", "toaster")


@pytest.mark.parametrize(
    ("android", "first"),
    [
        ("10", "vsi-imx-android-10.0.0_2.6.0"),
        ("11", "vsi-imx-android-11.0.0_1.0.0"),
        ("12", "vsi-imx-android-12.1.0_1.0.0"),
        ("13", "vsi-imx-1.3.0"),
        ("14", "vsi-imx-1.3.0"),
    ],
)
def test_the_release_of_an_android_version_comes_first(android: str, first: str) -> None:
    (found,) = data("devices", "find", "i.MX 8M Plus", "--android", android)["hardware"]
    assert found["profiles"][0] == first
    assert found["sentence"].endswith(f"--device {first} --android {android}")
    assert android in found["androids"][first]


@pytest.mark.parametrize(("android", "nearest"), [("9", "vsi-imx-android-10.0.0_2.6.0"), ("16", "vsi-imx-1.3.0")])
def test_an_android_version_without_a_release_gets_the_nearest_which_is_said(android: str, nearest: str) -> None:
    line = call("devices", "find", "imx8mp", "--android", android).stdout.splitlines()[0]
    assert f"no profile is of Android {android}; the nearest is --device {nearest}, of Android" in line


def test_a_driver_that_needs_a_later_android_is_not_first() -> None:
    """Arm NN 20.05 has the interface of Android 11, level 4; 19.02 that of Android 9, level 2."""
    assert find("hikey960", "9")[0].entry.profiles[0] == "arm-nn-19.02"
    assert find("hikey960")[0].entry.profiles[0] == "arm-nn-24.05"


def test_without_a_version_the_first_release_says_whose_it_is() -> None:
    line = call("devices", "find", "i.MX 8M Plus").stdout.splitlines()[0]
    assert "--device vsi-imx-1.3.0, which is of Android 13 and 14 (`nnbridge devices find" in line


def test_androids_of_releases_are_versions_of_shipped_profiles() -> None:
    for name, versions in tables()["android"].items():
        assert device(name).name == name
        assert set(versions) <= set(ANDROID_LEVELS)


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        (
            "vsi-imx-1.3.0",
            {"android": "12"},
            "belongs to Android 13 and 14, this plan to Android 12: --android 14 is the driver's",
        ),
        ("vsi-imx-1.3.0", {"feature_level": 5}, "this plan to Android 12"),
        ("vsi-imx-android-12.1.0_1.0.0", {}, "belongs to Android 12, this plan to Android 13"),
        ("vsi-imx-android-10.0.0_2.6.0@2", {"android": "9"}, "belongs to Android 10, this plan to Android 9"),
        ("qti-hvx", {"android": "10"}, "belongs to Android 8.1 and 9"),
        ("vsi-imx-1.3.0", {"android": "14"}, ""),
        ("vsi-imx-1.3.0", {}, ""),
        ("vsi-imx-android-12.1.0_1.0.0", {"android": "12"}, ""),
        ("vsi-imx-1.2.0", {"android": "10"}, ""),
        ("arm-nn-21.11", {"android": "10"}, ""),
    ],
)
def test_a_plan_says_that_a_release_belongs_to_another_android(name: str, options: dict[str, Any], says: str) -> None:
    notes = nnbridge.plan(INT8, device=name, **options).notes
    assert [says in note for note in notes if "belongs to" in note] == [True] * bool(says)


@pytest.mark.parametrize(
    "command",
    [("plan",), ("run", "--seed", "0"), ("report", "-o", "{folder}/page.html"), ("bisect",), ("reduce", "-o", "{folder}/part")],
)
def test_every_command_says_that_a_release_belongs_to_another_android(
    command: tuple[str, ...], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name, *options = (word.format(folder=tmp_path) for word in command)
    result = call(name, INT8, *options, "--device", "vsi-imx-1.3.0", "--android", "12")
    assert (result.stderr + caplog.text).count("vsi-imx-1.3.0 belongs to Android 13 and 14") == 1


def test_a_matrix_says_of_each_cell_that_a_release_belongs_to_another_android(tmp_path: Path) -> None:
    options = ("--devices", "vsi-imx-1.3.0", "--android", "12,13", "--store", tmp_path / "m.db", "--jobs", "1")
    cells = data("matrix", INT8, *options)["cells"]
    assert [sum("belongs to" in note for note in cell["notes"]) for cell in cells] == [1, 0]


@pytest.mark.parametrize("phone", ["Pixel 8", "exynos 990", "kirin 990", "unisoc t820", "helio g99", "snapdragon 662"])
def test_a_phone_without_rules_says_what_to_use_instead(phone: str) -> None:
    text = call("devices", "find", phone).stdout
    first = text.splitlines()[0]
    assert "no public rules are known for" in first
    assert "instead: --device litert-gpu (LiteRT's GPU route), no --device (NNAPI's CPU)" in first
    assert "`adb shell service list` names the NNAPI drivers" in text


@pytest.mark.parametrize("board", ["jetson nano", "STM32N6"])
def test_nothing_of_android_is_named_for_what_is_not_android(board: str) -> None:
    assert find(board)[0].entry.instead == ("--device xnnpack (LiteRT's CPU)",)


def test_of_a_pixel_it_is_said_that_it_has_an_nnapi_driver() -> None:
    lines = call("devices", "find", "Pixel 8").stdout.splitlines()
    assert any(
        line.startswith("driver") and "an NNAPI driver, google-edgetpu, whose rules are not public" in line for line in lines
    )


def test_what_is_not_listed_leads_on() -> None:
    message = refused("devices", "find", "Foo 8")
    assert "found Foo 8" in message
    for step in ("adb shell getprop ro.soc.model", "nnbridge devices", "nnbridge devices learn"):
        assert step in message
