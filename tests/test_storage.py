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

from nnbridge import load, storage
from nnbridge.builder import ModelBuilder
from nnbridge.errors import BadDataError, ConversionError, InputError, NnbridgeError
from nnbridge.extensions import OPTIONS_TYPE, TYPES
from nnbridge.model import ChannelQuant, Model, Source, State
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.storage import saved_model
from nnbridge.storage.atomic import atomic_write
from nnbridge.storage.flatbuffer import parse_schema
from nnbridge.storage.saved_model import MAX_EXTENSIONS
from nnbridge.types import OperandCode, OperationCode
from tests.conftest import MODELS
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


def test_saving_reports_the_length_of_the_file(tmp_path: Path) -> None:
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


def test_files_of_other_threads_keep_the_umask_while_a_file_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0o027)
    try:
        monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("the umask belongs to the whole process"))
        _written(tmp_path / "file")
    finally:
        monkeypatch.undo()
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    fsync, rename = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: (calls.append(os.fstat(file).st_size), fsync(file)))
    monkeypatch.setattr(os, "replace", lambda old, new: (calls.append("replace"), rename(old, new)))
    _written(tmp_path / "file")
    assert calls == [5, "replace"]


def test_what_killed_writers_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    names = [".file.0a1b2c3d", ".file.9a1b2c3d", ".other.0a1b2c3d", ".file.config", "file.0a1b2c3d"]
    for name in names:
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, 0))
    os.utime(tmp_path / names[1])  # its writer lives
    _written(tmp_path / "file")
    assert {path.name for path in tmp_path.iterdir()} == {*names[1:], "file"}


def test_a_link_is_replaced_where_links_are_not_followed(tmp_path: Path) -> None:
    target, link, loose = tmp_path / "target", tmp_path / "link", tmp_path / "loose"
    target.write_bytes(b"before")
    link.symlink_to(target)
    loose.symlink_to(tmp_path / "nothing")
    for path in (link, loose):
        with atomic_write(path, 0o600, follow_links=False) as file:
            file.write(b"after")
        assert not path.is_symlink()
    assert target.read_bytes() == b"before"
    assert not (tmp_path / "nothing").exists()


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


@pytest.mark.parametrize("suffix", ["nnapi", "tflite"])
def test_a_file_that_is_cut_short_after_loading_is_a_conversion_error(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"model.{suffix}"
    path.write_bytes((MODELS / "digits_float32.tflite").read_bytes())
    if suffix == "nnapi":
        storage.save(load(MODELS / "digits_float32.tflite"), path)
    model = load(path)
    os.truncate(path, 100)
    with pytest.raises(ConversionError, match="while in use, found 100 bytes"):
        Compilation.create(model, []).finish()
    with pytest.raises(ConversionError, match="while in use"):
        storage.save(model, tmp_path / "copy.nnapi")


def test_a_file_may_be_replaced_after_loading(tmp_path: Path) -> None:
    path = saved(constant_add(np.ones(100, np.float32)), tmp_path)
    model = storage.load(path)
    storage.save(add_then(OperationCode.ABS), path)
    assert answer(model, np.ones(100, np.float32)).tolist() == [2] * 100


def _with_extensions(path: Path, names: list[str], used: int) -> Path:
    """A file that names extensions, the first of which its operations use."""
    builder = ModelBuilder()
    x = builder.add_operand(OperandCode.TENSOR_FLOAT32, (1,))
    for _ in range(used):
        y = builder.add_operand(OperandCode.TENSOR_FLOAT32, (1,))
        builder.add_operation(OperationCode.RELU, [x], [y])
        x = y
    builder.identify_inputs_and_outputs([0], [x])
    model = builder.finish()
    operations = tuple(replace(o, type=(i + 1) << 16) for i, o in enumerate(model.main.operations))
    model = replace(model, main=replace(model.main, operations=operations), extensions={n: i + 1 for i, n in enumerate(names)})
    storage.save(model, path)
    return path


@pytest.mark.parametrize(("names", "used"), [(MAX_EXTENSIONS + 1, MAX_EXTENSIONS + 1), (2, 1)], ids=["too many", "unused"])
def test_a_file_of_needless_extensions_is_refused_and_takes_no_prefix(tmp_path: Path, names: int, used: int) -> None:
    path = _with_extensions(tmp_path / "m.nnapi", [f"com.evil.n{i}" for i in range(names)], used)
    before = len(TYPES._names)
    with pytest.raises(ConversionError, match=r"extension"):
        storage.load(path)
    assert len(TYPES._names) == before


def test_a_file_that_is_wrong_elsewhere_takes_no_prefix(tmp_path: Path) -> None:
    path = _with_extensions(tmp_path / "m.nnapi", ["com.evil.one", "Not a Name"], 2)
    before = len(TYPES._names)
    with pytest.raises(ConversionError, match="an extension name of"):
        storage.load(path)
    assert len(TYPES._names) == before


def test_operations_of_extensions_that_no_device_has_can_be_loaded(tmp_path: Path) -> None:
    model = storage.load(_with_extensions(tmp_path / "m.nnapi", ["com.elsewhere.one"], 1))
    assert [model.operation_name(o) for o in model.main.operations] == ["com.elsewhere.one#0"]
    assert model.extensions == {"com.elsewhere.one": TYPES.prefix("com.elsewhere.one")}


def test_a_model_of_another_process_takes_no_prefix(tmp_path: Path) -> None:
    before = len(TYPES._names)
    with _with_extensions(tmp_path / "m.nnapi", ["com.client.one", "com.client.two"], 2).open("rb") as file:
        model = storage.read_model(file.fileno(), "the client's model", foreign=True)
    assert [model.operation_name(o) for o in model.main.operations] == ["com.client.one#0", "com.client.two#0"]
    assert len(TYPES._names) == before


def test_files_leave_prefixes_for_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _with_extensions(tmp_path / "m.nnapi", ["com.elsewhere.last"], 1)
    monkeypatch.setattr("nnbridge.storage.saved_model.MOST_FROM_FILES", len(TYPES._names) - 1)
    with pytest.raises(BadDataError, match="extension prefixes"):
        storage.load(path)
    assert TYPES.prefix("com.elsewhere.device") == len(TYPES._names) - 1


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan")])
def test_scales_of_channels_that_are_not_above_0_are_a_conversion_error(scale: float, tmp_path: Path) -> None:
    builder = ModelBuilder()
    x = builder.add_operand(OperandCode.TENSOR_QUANT8_SYMM_PER_CHANNEL, (2, 3))
    builder.set_operand_symm_per_channel_quant_params(x, [1.0, 2.0], 0)
    y = builder.add_operand(OperandCode.TENSOR_FLOAT32, (2, 3))
    builder.add_operation(OperationCode.DEQUANTIZE, [x], [y])
    builder.identify_inputs_and_outputs([x], [y])
    model = builder.finish()
    operands = list(model.main.operands)
    operands[x] = replace(operands[x], channel_quant=ChannelQuant((1.0, scale), 0))
    wrong = replace(model, main=replace(model.main, operands=tuple(operands)))
    with pytest.raises(ConversionError, match="scales of channels that are not above 0"):
        storage.load(saved(wrong, tmp_path))
    storage.load(saved(model, tmp_path))


@pytest.mark.parametrize("options", [b"\xda{}", b"{", b"[1]", b"[" * 100_000], ids=["no UTF-8", "cut off", "a list", "deep"])
def test_options_of_host_operations_are_checked_when_a_file_is_read(tmp_path: Path, options: bytes) -> None:
    extension = sorted(TYPES.host_extensions())[0]
    kind = TYPES.code(extension, OPTIONS_TYPE.number)
    builder = ModelBuilder()
    x, y = (builder.add_operand(OperandCode.TENSOR_FLOAT32, (1,)) for _ in range(2))
    o = builder.add_operand(kind, (len(options),))
    builder.set_operand_value(o, np.frombuffer(options, np.uint8))
    builder.add_operation(TYPES.code(extension, 0), [x, o], [y])
    builder.identify_inputs_and_outputs([x], [y])
    with pytest.raises(ConversionError, match=r"model\.nnapi.*options as"):
        storage.load(saved(builder.finish(), tmp_path))


def test_a_state_of_an_unknown_type_is_a_conversion_error(tmp_path: Path) -> None:
    model = add_then(OperationCode.ABS)
    x, y = model.main.inputs[0], model.main.outputs[0]
    operands = list(model.main.operands)
    operands[x], operands[y] = (replace(operands[i], type=255) for i in (x, y))
    wrong = replace(model, main=replace(model.main, operands=tuple(operands)), states=(State(0, 0),))
    with pytest.raises(ConversionError, match="a known operand type"):
        storage.load(saved(wrong, tmp_path))


def test_names_that_are_no_utf_8_can_be_saved(tmp_path: Path) -> None:
    model = replace(add_then(OperationCode.ABS), name=os.fsdecode(b"m\xff"))
    assert storage.load(saved(model, tmp_path)).name == "m\\udcff"


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
