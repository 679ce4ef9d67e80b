"""Files of caches: whose they are, what they are, and what a failing writer leaves."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nnbridge import caches
from nnbridge.caches import UnsafeError, fault, folder_fault, read, store, user_folder
from tests.conftest import MODELS
from tests.security.others import give_away

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owners by number on this system")
MOST = 1000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A cache with one file."""
    store(tmp_path / "cache", "name", b"content")
    return tmp_path / "cache"


def open_to_group(path: Path) -> None:
    path.chmod(path.stat().st_mode | 0o020)


def open_to_others(path: Path) -> None:
    path.chmod(path.stat().st_mode | 0o002)


def sticky(path: Path) -> None:
    path.chmod(0o1777)


def behind_a_link(path: Path) -> None:
    there = path.with_name("there")
    path.rename(there)
    path.symlink_to(there)


def test_what_was_stored_is_read_and_this_user_alone_may_write_it(folder: Path) -> None:
    assert read(folder, "name", MOST) == b"content"
    assert (folder.stat().st_mode & 0o777, (folder / "name").stat().st_mode & 0o777) == (0o700, 0o600)


@pytest.mark.parametrize("spoil", [open_to_group, open_to_others, sticky, give_away, behind_a_link])
def test_a_folder_that_is_not_this_user_s_alone_is_neither_read_nor_written(folder: Path, spoil: Callable[[Path], None]) -> None:
    spoil(folder)
    with pytest.raises(UnsafeError):
        read(folder, "name", MOST)
    with pytest.raises(UnsafeError):
        store(folder, "other", b"")
    assert folder_fault(folder)
    assert fault(folder)
    assert [found.name for found in folder.iterdir()] == ["name"]


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def a_link_to(target: str) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        path.unlink()
        path.symlink_to(target)

    return spoil


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def long(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(1 << 40)


def link_to_a_good_file(path: Path) -> None:
    path.rename(path.with_name("good"))
    path.symlink_to(path.with_name("good"))


SPOILED = (
    give_away, open_to_group, open_to_others, a_pipe, a_link_to("/dev/zero"), a_link_to("nowhere"), a_link_to("name"),
    link_to_a_good_file, a_folder, cut, empty, long,
)  # fmt: skip


@pytest.mark.parametrize("spoil", SPOILED)
def test_a_file_that_is_another_s_or_no_whole_regular_file_counts_as_missing(folder: Path, spoil: Callable[[Path], None]) -> None:
    spoil(folder / "name")
    assert read(folder, "name", MOST) is None


@pytest.mark.parametrize("spoil", [s for s in SPOILED if s is not a_folder])
def test_what_counts_as_missing_is_replaced(folder: Path, spoil: Callable[[Path], None]) -> None:
    spoil(folder / "name")
    store(folder, "name", b"again")
    assert read(folder, "name", MOST) == b"again"


def test_more_than_the_limit_is_not_read(folder: Path) -> None:
    store(folder, "name", b"x" * (MOST + 1))
    assert read(folder, "name", MOST) is None
    assert read(folder, "name", MOST + 1) is not None


def test_a_folder_above_that_all_may_write_to_is_safe_with_a_sticky_bit_alone(folder: Path) -> None:
    sticky(folder.parent)
    assert not folder_fault(folder)
    folder.parent.chmod(0o777)
    assert folder_fault(folder) == f"{folder.parent}: others may write to it"


def test_a_link_above_is_safe_if_this_user_or_root_made_it(tmp_path: Path) -> None:
    store(tmp_path / "real" / "cache", "name", b"content")
    (tmp_path / "way").symlink_to(tmp_path / "real")
    assert read(tmp_path / "way" / "cache", "name", MOST) == b"content"
    give_away(tmp_path / "way")
    assert "a link of user" in folder_fault(tmp_path / "way" / "cache")


def test_a_name_as_long_as_names_can_be_is_stored(tmp_path: Path) -> None:
    store(tmp_path / "cache", "n" * 255, b"content")
    assert read(tmp_path / "cache", "n" * 255, MOST) == b"content"


def test_a_writer_that_fails_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space left"):
        store(folder, "other", b"")
    assert [found.name for found in folder.iterdir()] == ["name"]


def test_what_killed_writers_left_is_removed_after_an_hour(folder: Path) -> None:
    old, new = folder / ".0123456789abcdef.tmp", folder / ".fedcba9876543210.tmp"
    for path, age in ((old, 7200), (new, 0)):
        path.touch()
        os.utime(path, (path.stat().st_mtime - age,) * 2)
    caches._remove_stale.cache_clear()
    store(folder, "name", b"")
    assert not old.exists()
    assert new.exists()


@pytest.mark.parametrize("variable", ["NNBRIDGE_CACHE", "XDG_CACHE_HOME", "HOME"])
def test_relative_paths_name_no_cache(variable: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("NNBRIDGE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, "some/where")
    caches.say_once.cache_clear()
    with caplog.at_level(logging.WARNING):
        found = [user_folder("kernels", variable="NNBRIDGE_CACHE") for _ in range(2)]
    assert all(folder is None or folder.is_absolute() for folder in found)
    assert (found[0] is None) == (variable != "XDG_CACHE_HOME")
    assert [record.getMessage() for record in caplog.records] == [f"{variable} is not used: a relative path, 'some/where'"]


def test_without_variables_the_cache_is_in_the_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NNBRIDGE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_folder("nnbridge", variable="NNBRIDGE_CACHE") == tmp_path / ".cache" / "nnbridge"


def ran(cache: Path, *limits: str) -> subprocess.CompletedProcess[str]:
    """A model run with kernels in a cache."""
    pytest.importorskip("llvmlite")
    command = [sys.executable, "-m", "nnbridge", "run", str(MODELS / "digits_int8.tflite"), "--seed", "0", "-q"]
    environment = {**os.environ, "NNBRIDGE_CACHE": str(cache), "PYTHONDONTWRITEBYTECODE": "1"}
    shell = ["sh", "-c", f'{"; ".join(limits)}; exec "$@"', "sh"] if limits else []
    return subprocess.run([*shell, *command], env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A cache that a run has filled, and the run's answer."""
    cache = tmp_path_factory.mktemp("filled") / "kernels"
    ended = ran(cache)
    assert (ended.returncode, ended.stderr) == (0, "")
    return cache, ended.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="pipes and limits of Linux")
@pytest.mark.parametrize(
    "content", [None, "", "{}", '{"triple":"","compiler":"","features":[]}', '{"triple":5,"compiler":null,"features":["avx2"]}']
)
def test_kernels_are_compiled_again_whatever_is_in_the_place_of_files(
    filled: tuple[Path, str], tmp_path: Path, content: str | None
) -> None:
    cache, answer = Path(shutil.copytree(filled[0], tmp_path / "kernels")), filled[1]
    stored = list(cache.iterdir())
    assert len(stored) > 1
    for path in stored:
        path.unlink()
        if content is None:
            os.mkfifo(path)
        else:
            path.write_text(content)
    again = ran(cache)
    assert (again.returncode, again.stdout, again.stderr) == (0, answer, "")
    assert all(path.is_file() for path in stored)


@pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")
def test_a_disk_that_is_full_leaves_no_temporary_file(tmp_path: Path) -> None:
    cache = tmp_path / "kernels"
    assert ran(cache, "ulimit -f 0").returncode == 0 or not list(cache.iterdir())
    assert list(cache.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="owners of Linux")
def test_kernels_of_a_cache_that_others_may_write_to_are_not_run_and_it_is_said_once(
    filled: tuple[Path, str], tmp_path: Path
) -> None:
    cache, answer = Path(shutil.copytree(filled[0], tmp_path / "kernels")), filled[1]
    before = {path: path.read_bytes() for path in cache.iterdir()}
    cache.chmod(0o1777)
    shared = ran(cache)
    assert (shared.returncode, shared.stdout) == (0, answer)
    line = f"compiled kernels are not cached in {cache}: its group or others may write to it"
    assert shared.stderr.count("not cached") == 1
    assert line in shared.stderr
    assert {path: path.read_bytes() for path in cache.iterdir()} == before


def test_a_library_of_a_cache_that_others_may_write_to_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("cffi")
    from nnbridge import clib

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("nnbridge.embedding.EmbeddedLibrary._compiled", _stand_in)
    stored = clib._library().cached()
    assert stored.is_relative_to(tmp_path)
    assert clib._library().cached() == stored
    stored.parent.chmod(0o777)
    caches.say_once.cache_clear()
    with caplog.at_level(logging.WARNING):
        found = clib._library().cached()
    assert not found.is_relative_to(tmp_path)
    assert found.read_bytes().startswith(b"library")
    assert [record.getMessage() for record in caplog.records] == [
        f"compiled libraries are not cached in {tmp_path / 'nnbridge'}: its group or others may write to it"
    ]


def _stand_in(_: object, work: Path, *__: str) -> Path:
    (work / "library").write_bytes(b"library")
    return work / "library"
