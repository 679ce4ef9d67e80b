"""Saved models: round trips, constants in place, and files that do not hold together."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nnbridge import storage
from nnbridge.errors import ConversionError, InputError, NnbridgeError
from nnbridge.model import Model, Source
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.storage import saved_model
from nnbridge.storage.atomic import atomic_write
from nnbridge.storage.flatbuffer import parse_schema
from nnbridge.types import OperationCode
from tests.graphs import add_then, constant_add, unary_chain
from tests.runtime.planning import nested
from tests.runtime.test_execution import _loop


def saved(model: Model, folder: Path) -> Path:
    path = folder / "model.nnapi"
    storage.save(model, path)
    return path


def answer(model: Model, value: np.ndarray) -> np.ndarray:
    compilation = Compilation.create(model, [])
    compilation.finish()
    return next(iter(Execution(compilation).run([value]).values()))


def test_a_saved_model_is_the_same_model(tmp_path: Path) -> None:
    model = constant_add(np.arange(100, dtype=np.float32))
    loaded = storage.load(saved(model, tmp_path))
    assert loaded.main == model.main
    assert loaded.name == model.name
    for ours, theirs in zip(model.main.operands, loaded.main.operands, strict=True):
        if ours.is_constant:
            np.testing.assert_array_equal(model.value(ours), loaded.value(theirs))
    x = np.ones(100, np.float32)
    np.testing.assert_array_equal(answer(loaded, x), answer(model, x))


def test_control_flow_keeps_its_models(tmp_path: Path) -> None:
    loaded = storage.load(saved(_loop(4.0), tmp_path))
    assert answer(loaded, np.array([1], np.float32)).tolist() == [13]


def test_referenced_models_keep_their_relaxed_flags(tmp_path: Path) -> None:
    model = nested()
    relaxed = tuple(replace(body, relaxed=i % 2 == 0) for i, body in enumerate(model.referenced))
    loaded = storage.load(saved(replace(model, referenced=relaxed), tmp_path))
    assert [body.relaxed for body in loaded.referenced] == [True, False, True, False]


def test_constants_start_at_multiples_of_64_bytes_in_the_file(tmp_path: Path) -> None:
    model = storage.load(saved(constant_add(np.ones(100, np.float32)), tmp_path))
    [pool] = model.pools
    value = next(model.value(o) for o in model.main.operands if o.name == "value")
    assert value is not None
    assert value.ctypes.data % 64 == 0
    assert not value.flags.writeable
    assert len(pool) == 448  # 400 bytes, rounded up


def test_a_failing_write_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")

    def fail() -> None:
        with atomic_write(path) as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["file"]


def _written(path: Path, mode: int | None = None) -> None:
    with atomic_write(path, mode) as file:
        file.write(b"after")


def test_writing_to_a_symbolic_link_writes_its_target(tmp_path: Path) -> None:
    target, link, loose = tmp_path / "target", tmp_path / "link", tmp_path / "loose"
    target.write_bytes(b"before")
    link.symlink_to(target)
    loose.symlink_to(tmp_path / "new")
    _written(link)
    _written(loose)
    assert link.is_symlink()
    assert loose.is_symlink()
    assert target.read_bytes() == (tmp_path / "new").read_bytes() == b"after"


def test_writing_to_a_pipe_leaves_it_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        _written(pipe)
        assert os.read(reading, 100) == b"after"
    finally:
        os.close(reading)
    assert pipe.is_fifo()


def test_saving_tells_the_length_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "saved.nnapi"
    assert storage.save(constant_add(np.ones(100, np.float32)), path) == path.stat().st_size


def test_writing_keeps_the_files_permissions(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    path.chmod(0o600)
    _written(path)
    assert (path.stat().st_mode & 0o777, path.read_bytes()) == (0o600, b"after")
    _written(path, 0o640)
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere"):
        storage.save(add_then(OperationCode.ABS), tmp_path / "nowhere" / "model.nnapi")


@pytest.mark.parametrize("content", [b"", b"text", b"\0" * 100, b"\x10\0\0\0NNBM" + b"\xff" * 50])
def test_files_that_are_no_models(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.nnapi"
    path.write_bytes(content)
    with pytest.raises(ConversionError, match=r"model\.nnapi"):
        storage.load(path)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    path = saved(constant_add(np.ones(100, np.float32)), tmp_path)
    whole = path.read_bytes()
    for length in range(0, len(whole) - 64, 13):
        path.write_bytes(whole[:length])
        with pytest.raises(ConversionError):
            storage.load(path)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_changed_bytes_give_our_errors_only(data: st.DataObject, tmp_path: Path) -> None:
    path = saved(constant_add(np.ones(40, np.float32)), tmp_path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(content))
    with contextlib.suppress(NnbridgeError):
        storage.load(path)


def test_source_operators_are_saved(tmp_path: Path) -> None:
    path = tmp_path / "model.nnapi"
    sources = [Source(3, "CONV_2D", 1, (2, 5)), None, Source(0, "Add")]
    model = unary_chain(OperationCode.ABS, OperationCode.NEG, OperationCode.ABS)
    operations = tuple(replace(o, source=source) for o, source in zip(model.main.operations, sources, strict=True))
    storage.save(replace(model, main=replace(model.main, operations=operations)), path)
    assert [o.source for o in storage.load(path).main.operations] == sources


def test_files_without_source_operators_stay_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = files("nnbridge.storage").joinpath("nnapi_model.fbs").read_text(encoding="utf-8")
    older = parse_schema("".join(line for line in text.splitlines(keepends=True) if "source: Source" not in line))
    path, model = tmp_path / "model.nnapi", constant_add(np.ones(3, np.float32))
    with monkeypatch.context() as patched:
        patched.setattr(saved_model, "schema", lambda: older)
        storage.save(model, path)
    loaded = storage.load(path)
    assert loaded.main.operations[0].source is None
    np.testing.assert_array_equal(answer(loaded, np.float32([1, 2, 3])), [2, 3, 4])
