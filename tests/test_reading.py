"""Files that a user names: a pipe, a device, a socket, a folder or a file of any size is read or refused at once; none is waited
for without a word."""

from __future__ import annotations

import io
import os
import socket
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from nnbridge.reading import MAX_BYTES, open_archive, open_file, read_at_most, read_file
from nnbridge.storage.atomic import file_checksum
from tests.commands import call
from tests.conftest import MODELS

TFLITE, ONNX = MODELS / "digits_float32.tflite", MODELS / "digits_float32.onnx"
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="files as Unix has them")


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def sparse(path: Path) -> None:
    marks = {".npz": b"PK\x03\x04", ".npy": b"\x93NUMPY\x01\x00v\x00", ".tflite": b"\x1c\0\0\0TFL3", ".gz": b"\x1f\x8b\x08"}
    with path.open("wb") as file:
        file.write(marks.get(path.suffix, b""))
        try:
            file.truncate(4 << 40)
        except OSError:
            pytest.skip("this file system has no files of 4 TiB")


SPECIAL: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo if hasattr(os, "mkfifo") else lambda path: None,
    "endless device": lambda path: path.symlink_to("/dev/zero"),
    "socket": listening,
    "folder": Path.mkdir,
    "4 TiB": sparse,
}
special = pytest.mark.parametrize("make", SPECIAL.values(), ids=SPECIAL)
OPTIONS: dict[str, tuple[object, ...]] = {
    "TFLite": ("inspect", "X.tflite"),
    "ONNX": ("plan", "X.onnx"),
    "saved model": ("run", "X.nnapi", "--seed", "0"),
    "profile": ("plan", TFLITE, "--device", "X.toml"),
    "checked profile": ("devices", "check", "X.toml"),
    "defaults": ("--config", "X.toml", "devices"),
    "log": ("plan", TFLITE, "--explain-log", "X.txt"),
    "learned log": ("devices", "learn", "X.txt", "-o", "o.toml"),
    "array": ("run", TFLITE, "--input", "X.npy"),
    "arrays": ("run", TFLITE, "--input", "X.npz"),
    "picture": ("run", TFLITE, "--input", "X.png"),
    "bytes": ("run", TFLITE, "--input", "X.bin"),
    "text": ("run", TFLITE, "--input", "X.txt"),
    "labels": ("run", TFLITE, "--seed", "0", "--labels", "X.txt"),
    "reference": ("compare", TFLITE, "--reference", "X.npz"),
    "tolerances": ("compare", TFLITE, "--reference", "litert", "--tolerances", "X.toml"),
    "bisect": ("bisect", TFLITE, "--reference", "X.npz"),
    "store": ("matrix", TFLITE, "--devices", "nnapi-sample_all", "--store", "X.db"),
    "model of a matrix": ("matrix", "X.tflite", "--devices", "nnapi-sample_all", "--store", "m.db", "--jobs", "1"),
    "profile of a matrix": ("matrix", TFLITE, "--devices", "X.toml", "--store", "m.db", "--jobs", "1"),
    "inputs of a matrix": (
        *("matrix", TFLITE, "--devices", "nnapi-sample_all", "--store", "m.db", "--jobs", "1"),
        *("--reference", "litert", "--input", "X.npy"),
    ),
    "budget": ("matrix", TFLITE, "--devices", "nnapi-sample_all", "--store", "m.db", "--budget", "X.toml"),
    "stores": ("matrix", "--diff", "X.db", "X.db"),
    "cases": ("vts", "X.json.gz"),
    "rewritten": ("rewrite", "X.tflite", "-o", "w.tflite", "--for", "npu"),
}


@special
@pytest.mark.parametrize("arguments", OPTIONS.values(), ids=OPTIONS)
def test_what_is_no_file_of_its_size_is_refused_at_once(
    arguments: tuple[object, ...], make: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = next(str(word) for word in arguments if str(word).startswith("X."))
    make(Path(name))
    started = time.perf_counter()
    done = call(*arguments)
    assert done.exit_code == 2, done.output
    assert "internal error" not in done.output
    assert time.perf_counter() - started < 20  # A tenth of it where nothing else runs; the plan comes before its log.


@special
@pytest.mark.parametrize("read", [open_file, read_file, file_checksum], ids=lambda read: read.__name__)
def test_readers_of_files_name_what_is_none(
    read: Callable[[Path], object], make: Callable[[Path], object], tmp_path: Path
) -> None:
    make(tmp_path / "x")
    expected = (
        "device or pipe|a folder|Is a directory|No such device|Operation not supported|more than the 17,179,869,184 that are"
    )
    with pytest.raises(Exception, match=expected):
        read(tmp_path / "x")


@pytest.mark.parametrize("size", [0, 1, 100, 101])
def test_a_limit_is_the_last_size_that_is_read(size: int, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x" * size)
    for read in (read_file, read_at_most):
        if size <= 100:
            assert read(tmp_path / "x", 100) == b"x" * size
        else:
            with pytest.raises(OSError, match="101 bytes, more than the 100 that are read of a file"):
                read(tmp_path / "x", 100)
    assert MAX_BYTES == 16 << 30


def test_a_pipe_that_says_nothing_is_waited_for_with_a_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)

    def write() -> None:
        while "waiting" not in caplog.text:
            time.sleep(0.01)
        os.write(writer, b"words")
        os.close(writer)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    assert read_at_most(path, 100) == b"words"
    thread.join(20)
    assert "is a pipe: waiting for the program that writes to it" in caplog.text


def test_a_terminal_is_refused(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    try:
        with pytest.raises(OSError, match="a terminal"):
            read_at_most(Path(os.ttyname(theirs)), 100)
    finally:
        os.close(ours)
        os.close(theirs)


# -- archives -----------------------------------------------------------------------------------------------------------


def archive(members: int, name: str = "{}.npy", before: bytes = b"") -> bytes:
    """An archive of empty files, after other bytes."""
    made = io.BytesIO(before)
    made.seek(0, io.SEEK_END)
    with zipfile.ZipFile(made, "a") as file:
        for k in range(members):
            file.writestr(zipfile.ZipInfo(name.format(k)), b"")
    return made.getvalue()


@pytest.mark.parametrize(
    ("members", "name"), [(90_000, "{}.npy"), (70_000, "{:020}"), (65, "{:065000}"), (100, "{:060000}/../../x")], ids=str
)
@pytest.mark.parametrize(
    "arguments", [("compare", TFLITE, "--reference", "X.npz"), ("inspect", "X.tflite"), ("plan", "Y.tflite")]
)
def test_an_archive_of_a_million_members_is_refused_at_once(
    arguments: tuple[object, ...], members: int, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path, before in (("X.npz", b""), ("Y.tflite", b""), ("X.tflite", TFLITE.read_bytes())):
        if path in arguments:
            Path(path).write_bytes(archive(members, name, before))
    read: list[object] = []
    monkeypatch.setattr(zipfile.ZipFile, "_RealGetContents", lambda *_: read.append(1))
    done = call(*arguments)
    assert (done.exit_code, read) == (2, [])
    assert "internal error" not in done.output


def test_an_archive_of_many_members_is_read(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(archive(2_000, before=b"x" * 1000))
    with open_archive(tmp_path / "x.zip") as found:
        assert len(found.namelist()) == 2_000
