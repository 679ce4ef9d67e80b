"""Faults of a driver's code are shown with their line in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nnbridge import devices
from nnbridge.errors import InputError, raised

DRIVER = """from nnbridge.devices import driver

def helper():
    return 1 / 0

@driver("npu")
def NPU(model, operation):
    return helper()

def UNMADE():
    import json
    return json.loads("{")

class ABSTRACT:
    def __init__(self):
        raise KeyError("figures")
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    monkeypatch.chdir(tmp_path)
    name = f"driver_{abs(hash(request.node.name))}"  # a new one each time: modules are imported once
    (tmp_path / f"{name}.py").write_text(DRIVER)
    return name


@pytest.mark.parametrize(
    ("attribute", "fault", "line"),
    [("UNMADE", "JSONDecodeError", 12), ("ABSTRACT", "KeyError", 16)],
)
def test_a_device_that_cannot_be_made_is_reported_with_the_line(module: str, attribute: str, fault: str, line: int) -> None:
    with pytest.raises(InputError) as error:
        devices.device(f"{module}:{attribute}")
    assert f"{module}:{attribute}: {fault}" in str(error.value)
    assert str(error.value).endswith(f"({module}.py line {line})")


def test_an_attribute_that_is_missing_is_reported_with_the_file_that_was_imported(module: str) -> None:
    with pytest.raises(InputError, match=rf"an attribute of {module} \(.*{module}\.py\) \(did you mean NPU\?\), found NPUS"):
        devices.device(f"{module}:NPUS")


def test_a_name_that_an_installed_module_has_is_reported_with_that_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "colorsys.py").write_text(DRIVER)
    with pytest.raises(InputError, match=r"an attribute of colorsys \((?!" + str(tmp_path) + r").*colorsys\.py\), found NPU"):
        devices.device("colorsys:NPU")


def test_the_deepest_line_of_the_drivers_own_package_is_shown(module: str) -> None:
    with pytest.raises(ZeroDivisionError) as error:
        devices.device(f"{module}:NPU").claim(None, None)  # type: ignore[attr-defined]
    frames = error.value.__traceback__
    assert frames is not None
    error.value.__traceback__ = frames.tb_next  # without this test's line
    assert raised(error.value) == f"ZeroDivisionError: division by zero ({module}.py line 4)"


def test_an_exception_of_nnbridge_s_own_code_has_no_line() -> None:
    assert raised(ValueError("2 answers for 3 operations")) == "2 answers for 3 operations"
