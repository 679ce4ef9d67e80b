"""Paths on which modules, programs and installed packages are looked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nnbridge import trust
from nnbridge.devices import DEVICES_GROUP, device
from nnbridge.entry_points import entry_points
from nnbridge.errors import InputError
from nnbridge.trust import environment, import_named, python_command, search_path

DRIVER = """
import named_helper
from nnbridge.devices import driver
def later():
    import named_later
@driver("mine")
def MINE(model, operation):
    return True
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return tmp_path


@pytest.fixture
def named(here: Path) -> Path:
    """The current folder with a driver and what it imports."""
    (here / "named_driver.py").write_text(DRIVER)
    for name in ("named_helper", "named_later", "named_never"):
        (here / f"{name}.py").write_text("")
    yield here
    for name in [name for name in sys.modules if name.startswith("named_")]:
        del sys.modules[name]


def without_current_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", search_path())


def test_a_named_module_is_found_in_the_current_folder_with_what_it_imports_at_once(
    named: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_current_folder(monkeypatch)
    before = sys.path[:], sys.meta_path[:]
    assert device("named_driver:MINE").name == "mine"
    assert (sys.path, sys.meta_path) == before
    with pytest.raises(ModuleNotFoundError):
        sys.modules["named_driver"].later()
    with pytest.raises(ModuleNotFoundError):
        __import__("named_never")


def test_what_is_installed_comes_before_the_current_folder(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_current_folder(monkeypatch)
    (here / "colorsys.py").write_text("raise SystemExit(1)\n")
    sys.modules.pop("colorsys", None)
    assert import_named("colorsys").rgb_to_hsv(0, 0, 0) == (0.0, 0.0, 0)


def test_a_module_of_a_package_is_found_in_the_current_folder(named: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_current_folder(monkeypatch)
    (named / "named_package").mkdir()
    (named / "named_package" / "driver.py").write_text(DRIVER)
    assert device("named_package.driver:MINE").name == "mine"


def test_a_module_that_imports_what_is_missing_is_refused_with_its_name(named: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_current_folder(monkeypatch)
    (named / "named_helper.py").write_text("import no_such_module_at_all")
    with pytest.raises(InputError, match="no_such_module_at_all"):
        device("named_driver:MINE")


@pytest.mark.parametrize("installed", ["x-1.0.dist-info", "x-1.0.egg-info"])
def test_metadata_in_the_current_folder_installs_nothing_in_programs_that_search_it(
    here: Path, monkeypatch: pytest.MonkeyPatch, installed: str
) -> None:
    (here / installed).mkdir()
    for name in ("METADATA", "PKG-INFO"):
        (here / installed / name).write_text("Metadata-Version: 2.1\nName: x\nVersion: 1.0\n")
    (here / installed / "entry_points.txt").write_text(f"[{DEVICES_GROUP}]\nx = planted:X\n")
    for entry in ("", str(here), "."):
        monkeypatch.setattr(sys, "path", [entry, *search_path()])
        assert not list(entry_points(DEVICES_GROUP, "x"))
    # Where the folder is named, as that of an editable installation is, its metadata counts.
    monkeypatch.setattr(sys, "path", [*search_path(), str(here)])
    assert [point.value for point in entry_points(DEVICES_GROUP, "x")] == ["planted:X"]


def test_absolute_entries_of_pythonpath_are_named_and_relative_ones_are_not(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other, libraries = str(here / "other"), os.path.dirname(os.__file__)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", "other", "x.zip"]))
    assert search_path([str(here), other, str(here / "x.zip"), "/named", libraries, other]) == ["/named", libraries, other]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(here), "other"]))
    assert search_path([str(here), other, libraries]) == [str(here), libraries]


def test_a_current_folder_that_was_removed_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert search_path(["/x", "", "/y"]) == ["/x", "/y"]
    with pytest.raises(ModuleNotFoundError):
        import_named("no_such_module_at_all")
    monkeypatch.chdir(tmp_path)


def test_lists_of_folders_lose_entries_that_stand_for_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in trust._LISTS:
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("PATH", os.pathsep.join(["", "/bin", ".", "bin", "/usr/bin", ""]))
    monkeypatch.setenv("LD_LIBRARY_PATH", ":")
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", "cache")
    found = environment({"CPATH": "include:/usr/include", "OTHER": "./x"})
    assert {name: found.get(name) for name in (*trust._LISTS, "OTHER") if name in found} == {
        "PATH": "/bin:/usr/bin",
        "CPATH": "/usr/include",
        "OTHER": "./x",
    }


@pytest.mark.skipif(
    sys.version_info >= (3, 13), reason="imports linecache ahead of the command's own code; there is -P from 3.11 on"
)
def test_a_process_without_p_as_before_python_3_11_imports_nothing_of_the_current_folder(here: Path) -> None:
    for name in sorted(sys.stdlib_module_names - {"sys"}):
        (here / f"{name}.py").write_text(f"open({str(here / 'ran')!r}, 'a').write({name!r})\nraise ImportError\n")
    command = [part for part in python_command("nnbridge.bench.first", "nnbridge", "nosuch.tflite") if part != "-P"]
    ended = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120, check=False)
    assert "nosuch.tflite" in ended.stderr
    assert not (here / "ran").exists()


@pytest.mark.parametrize(
    ("folders", "planted"),
    [(":/lib", True), (".", True), ("/lib:", True), ("../here", True), ("/lib", False), ("/lib:/usr/lib", False), (None, False)],
)
def test_a_library_that_a_relative_entry_would_lead_to_is_not_asked_for(
    folders: str | None, planted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nnbridge.engines.vulkan import _system_has_loader
    from nnbridge.trust import planted_library

    here = tmp_path / "here"
    here.mkdir()
    (here / "libvulkan.so.1").write_bytes(b"")
    monkeypatch.chdir(here)
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    if folders is not None:
        monkeypatch.setenv("LD_LIBRARY_PATH", folders)
    asked: list[str] = []
    monkeypatch.setattr("ctypes.CDLL", asked.append)
    assert planted_library("libvulkan.so.1") is planted
    assert _system_has_loader() is not planted
    assert asked == ([] if planted else ["libvulkan.so.1"])
