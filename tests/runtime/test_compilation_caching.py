"""Compilation caching: counterparts of Android's TestCompilationCaching.cpp, then what our files hold (facts C16 to C21)."""

from __future__ import annotations

import hashlib
import os
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge import devices as device_list
from nnbridge.devices.cpu import CpuPreparedModel
from nnbridge.devices.device import CacheFiles, PreparedModel, PrepareModelConfig, cache_files_needed
from nnbridge.devices.wrapped import WrappedDevice
from nnbridge.errors import (
    BadDataError,
    BadStateError,
    InputError,
    NnapiError,
    NnbridgeError,
    OpFailedError,
    Reason,
    UnexpectedNullError,
)
from nnbridge.model import Model
from nnbridge.runtime.caching import CacheRecord, file_name
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.runtime.plan import Plan
from nnbridge.types import OperationCode, PreferenceCode, PriorityCode
from tests.graphs import add_then
from tests.runtime.drivers import CannotPrepare, Driver

TOKEN = bytes(32)
MODEL = add_then(OperationCode.FLOOR)
COUNTS = [(0, 0), (0, 1), (1, 0), (1, 1), (32, 0), (32, 1), (0, 32), (1, 32), (32, 32)]


@dataclass
class CachingDriver(Driver):
    """Needs some files, and says how it was asked to prepare."""

    name: str = "deviceTestCompilationCaching"
    counts: Any = (1, 1)
    from_cache: Exception | None = None
    calls: list[str] = field(default_factory=list)
    tokens: list[bytes] = field(default_factory=list)
    found: list[CacheFiles] = field(default_factory=list)

    def number_of_cache_files_needed(self) -> Any:
        if isinstance(self.counts, Exception):
            raise self.counts
        return self.counts

    def prepare_model_with_config(self, model: Model, config: PrepareModelConfig) -> PreparedModel:
        self.tokens.append(config.token)
        self.calls.append("with cache" if config.save else "without cache")
        if config.save:
            config.save(CacheFiles(*(tuple(bytes([kind, i]) * 128 for i in range(n)) for kind, n in enumerate(self.counts))))
        return CpuPreparedModel(model)

    def prepare_model_from_cache(self, files: CacheFiles, token: bytes, deadline: int | None = None) -> PreparedModel:
        self.calls.append("from cache")
        self.tokens.append(token)
        self.found.append(files)
        if self.from_cache:
            raise self.from_cache
        return CpuPreparedModel(MODEL)


def compiled(driver: Driver, folder: Path | None, token: bytes = TOKEN, **settings: int) -> Plan:
    compilation = Compilation.create_for_devices(MODEL, [driver])
    if folder is not None:
        compilation.set_caching(folder, token)
    for name, value in settings.items():
        getattr(compilation, f"set_{name}")(value)
    return compilation.finish()


# -- TestCompilationCaching.cpp ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("counts", [*COUNTS, (33, 0), (0, 33), (33, 33), OpFailedError("no answer"), None])
def test_device_registration_caching_failure(counts: Any) -> None:
    right = isinstance(counts, tuple) and max(counts) <= 32
    assert (cache_files_needed(CachingDriver(counts=counts)) == counts) is right


@pytest.mark.parametrize("counts", COUNTS)
def test_token_provided_and_cache_not_exist(counts: tuple[int, int], tmp_path: Path) -> None:
    driver = CachingDriver(counts=counts)
    compiled(driver, tmp_path)
    assert driver.calls == ["without cache" if counts == (0, 0) else "with cache"]
    assert len(list(tmp_path.iterdir())) == sum(counts)


@pytest.mark.parametrize("error", [None, OpFailedError("GENERAL_FAILURE"), BadDataError("INVALID_ARGUMENT")])
@pytest.mark.parametrize("counts", COUNTS)
def test_token_provided_and_cache_exist(counts: tuple[int, int], error: NnapiError | None, tmp_path: Path) -> None:
    compiled(CachingDriver(counts=counts), tmp_path)
    driver = CachingDriver(counts=counts, from_cache=error)
    compiled(driver, tmp_path)
    expected = ["from cache"] if error is None else ["from cache", "with cache"]
    assert driver.calls == (expected if counts != (0, 0) else ["without cache"])


def test_token_not_provided() -> None:
    driver = CachingDriver()
    plan = compiled(driver, None)
    assert (driver.calls, driver.tokens, plan.cache) == (["without cache"], [bytes(32)], ())


# -- facts ------------------------------------------------------------------------------------------------------------


def test_c8_arguments_of_set_caching(tmp_path: Path) -> None:
    compilation = Compilation.create_for_devices(MODEL, [CachingDriver()])
    for folder, token in ((None, TOKEN), (tmp_path, None)):
        with pytest.raises(UnexpectedNullError):
            compilation.set_caching(folder, token)  # type: ignore[arg-type]
    with pytest.raises(BadDataError):
        compilation.set_caching(tmp_path, bytes(31))
    compilation.finish()
    with pytest.raises(BadStateError):
        compilation.set_caching(tmp_path, TOKEN)


def test_c8_the_last_directory_wins_and_nothing_is_touched_before_finish(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    compilation = Compilation.create_for_devices(MODEL, [CachingDriver()])
    compilation.set_caching(tmp_path / "missing", TOKEN)
    compilation.set_caching(first, TOKEN)
    compilation.set_caching(second, TOKEN)
    assert not list(second.iterdir())
    compilation.finish()
    assert (len(list(first.iterdir())), len(list(second.iterdir()))) == (0, 2)


def test_c16_the_token_is_a_checksum_of_all_that_the_compiled_model_depends_on(tmp_path: Path) -> None:
    driver = CachingDriver()
    compiled(driver, tmp_path, b"t" * 32, preference=PreferenceCode.LOW_POWER, priority=PriorityCode.HIGH)
    text = b"t" * 32 + b"deviceTestCompilationCaching" + b"1" + struct.pack("<ii", 0, 110)
    assert driver.tokens == [hashlib.sha256(text).digest()]


def test_c16_the_operations_of_a_compound_plans_step_are_in_its_token(tmp_path: Path) -> None:
    driver = CachingDriver(takes=frozenset({OperationCode.FLOOR}))
    compilation = Compilation.create(MODEL, [driver])
    compilation.set_caching(tmp_path, TOKEN)
    compilation.finish()
    # FLOOR is the second operation of the main model.
    text = TOKEN + struct.pack("<Ii", 0, 1) + b"deviceTestCompilationCaching1" + struct.pack("<ii", 1, 100)
    assert driver.tokens == [hashlib.sha256(text).digest()]


def test_c16_attributes_are_in_the_token_by_name_and_number(tmp_path: Path) -> None:
    driver = CachingDriver()
    compilation = Compilation.create_for_devices(MODEL, [driver])
    compilation.set_caching(tmp_path, TOKEN)
    for name, number in (("b.c", 1), ("a.b", 7), ("a.b", 2)):
        compilation.add_extension_attribute(name, number, b"value")
    compilation.finish()
    tail = b"".join(n.encode() + struct.pack("<H", k) + b"value" for n, k in (("a.b", 2), ("a.b", 7), ("b.c", 1)))
    text = TOKEN + b"deviceTestCompilationCaching1" + struct.pack("<ii", 1, 100) + tail
    assert driver.tokens == [hashlib.sha256(text).digest()]


def test_c17_files_are_named_after_the_token(tmp_path: Path) -> None:
    # 0x1f: low half 15 is P, high half 1 is B; 0xa0: A, K.
    assert file_name(bytes((0x1F, 0xA0)), "1", 10) == "PBAK110"
    driver = CachingDriver(counts=(1, 2))
    compiled(driver, tmp_path)
    names = {file_name(driver.tokens[0], kind, i) for kind, i in (("1", 0), ("2", 0), ("2", 1))}
    assert {path.name for path in tmp_path.iterdir()} == names


def test_c18_what_was_saved_comes_back_from_files_that_only_their_owner_reads(tmp_path: Path) -> None:
    compiled(CachingDriver(), tmp_path)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    driver = CachingDriver()
    plan = compiled(driver, tmp_path)
    files = driver.found[0]
    assert ([bytes(f) for f in files.model], [bytes(f) for f in files.data]) == ([bytes(256)], [b"\1\0" * 128])
    assert plan.cache[0].result == "read"


@pytest.mark.parametrize("missing", [0, 1])
def test_c18_one_missing_file_means_to_prepare_again(missing: int, tmp_path: Path) -> None:
    compiled(CachingDriver(), tmp_path)
    sorted(tmp_path.iterdir())[missing].unlink()
    driver = CachingDriver()
    assert (compiled(driver, tmp_path).cache[0].result, driver.calls) == ("written", ["with cache"])


def _folder_is_missing(folder: Path) -> None:
    folder.rmdir()


def _folder_is_a_file(folder: Path) -> None:
    folder.rmdir()
    folder.write_bytes(b"")


@pytest.mark.parametrize("damage", [_folder_is_missing, _folder_is_a_file])
def test_c19_files_that_cannot_be_made_are_noted_and_the_device_still_has_its_token(damage: Any, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    damage(folder)
    driver = CachingDriver()
    record = compiled(driver, folder).cache[0]
    assert (record.result, driver.tokens[0].hex()) == ("not used", record.token)
    assert str(folder) in str(record.notes[-1])


def test_c20_each_step_of_a_driver_is_cached_apart_and_the_cpu_caches_nothing(tmp_path: Path) -> None:
    model = add_then(OperationCode.FLOOR, OperationCode.ABS, OperationCode.FLOOR)
    driver = CachingDriver(counts=(1, 0), takes=frozenset({OperationCode.FLOOR}))
    compilation = Compilation.create(model, [driver])
    compilation.set_caching(tmp_path, TOKEN)
    plan = compilation.finish()
    assert [plan.devices[step.device].kind for step in plan.steps] == ["cpu", "device", "cpu", "device"]
    assert (len(set(driver.tokens)), len(list(tmp_path.iterdir()))) == (2, 2)


def test_c20_another_model_under_the_same_token_is_not_noticed(tmp_path: Path) -> None:
    compiled(CachingDriver(), tmp_path)
    driver = CachingDriver()
    compilation = Compilation.create_for_devices(add_then(OperationCode.ABS), [driver])
    compilation.set_caching(tmp_path, TOKEN)
    compilation.finish()
    assert driver.calls == ["from cache"]


def _cut_short(data: bytes) -> bytes:
    return data[:-1]


def _cut_off(data: bytes) -> bytes:
    return data[:100]


def _emptied(data: bytes) -> bytes:
    return b""


def _lengthened(data: bytes) -> bytes:
    return data + b"\0"


def _foreign(data: bytes) -> bytes:
    return b"ELF!" + data[4:]


def _of_another_version(data: bytes) -> bytes:
    return data[:4] + b"\2" + data[5:]


def _of_another_token(data: bytes) -> bytes:
    return data[:8] + bytes([data[8] ^ 1]) + data[9:]


def _changed(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (_cut_short, "255 bytes instead of 256"),
        (_cut_off, "100 bytes"),
        (_emptied, "0 bytes"),
        (_lengthened, "257 bytes instead of 256"),
        (_foreign, "another program"),
        (_of_another_version, "format version 2"),
        (_of_another_token, "another token"),
        (_changed, "wrong checksum"),
    ],
)
def test_c21_a_damaged_file_is_noted_ignored_and_made_again(damage: Any, found: str, tmp_path: Path) -> None:
    compiled(CachingDriver(), tmp_path)
    path = sorted(tmp_path.iterdir())[1]
    path.write_bytes(damage(path.read_bytes()))
    driver = CachingDriver()
    record = compiled(driver, tmp_path).cache[0]
    assert (driver.calls, record.result) == (["with cache"], "written")
    assert found in record.notes[0].found
    assert record.notes[0].operand == str(path)
    assert compiled(CachingDriver(), tmp_path).cache[0].result == "read"


def test_c21_files_of_two_entries_are_not_mixed(tmp_path: Path) -> None:
    @dataclass
    class Other(CachingDriver):
        def prepare_model_with_config(self, model: Model, config: PrepareModelConfig) -> PreparedModel:
            assert config.save
            config.save(CacheFiles((b"other",), (b"contents",)))
            return CpuPreparedModel(model)

    compiled(CachingDriver(), tmp_path)
    kept = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for path in kept:
        path.unlink()
    compiled(Other(), tmp_path)
    first = min(kept)
    first.write_bytes(kept[first])
    assert compiled(CachingDriver(), tmp_path).cache[0].notes[0].found == "files of several"


def test_c21_a_device_that_fails_with_its_files_is_noted(tmp_path: Path) -> None:
    compiled(CachingDriver(), tmp_path)
    record = compiled(CachingDriver(from_cache=ZeroDivisionError("a bug")), tmp_path).cache[0]
    assert (record.result, record.notes[0].found) == ("written", "ZeroDivisionError: a bug")


def test_c21_what_was_cached_before_a_fallback_is_reported(tmp_path: Path) -> None:
    first, second = CachingDriver(takes=frozenset({OperationCode.ADD})), CannotPrepare("b", frozenset({OperationCode.FLOOR}))
    compilation = Compilation.create(MODEL, [first, second])
    compilation.set_caching(tmp_path, TOKEN)
    plan = compilation.finish()
    assert (plan.fallback is not None, [record.result for record in plan.cache]) == (True, ["written"])


def test_c21_a_device_that_saves_another_number_of_files_stores_none(tmp_path: Path) -> None:
    @dataclass
    class SavesTooMany(CachingDriver):
        def prepare_model_with_config(self, model: Model, config: PrepareModelConfig) -> PreparedModel:
            assert config.save
            config.save(CacheFiles((b"1", b"2"), (b"3",)))
            return CpuPreparedModel(model)

    record = compiled(SavesTooMany(), tmp_path).cache[0]
    assert (record.result, record.notes[0].found, list(tmp_path.iterdir())) == ("not used", "2 and 1", [])


def test_c21_an_error_while_writing_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    record = compiled(CachingDriver(), tmp_path).cache[0]
    assert "no space is left" in record.notes[0].found
    assert list(tmp_path.iterdir()) == []


def test_a_cached_model_with_another_interface_is_prepared_anew(tmp_path: Path) -> None:
    """Whoever may write there can make checksums right; a model that does not fit the step's buffers is noticed still."""
    driver = device_list.device("caching:nnapi-sample_float_fast")

    def cached(model: Model) -> CacheRecord:
        compilation = Compilation.create_for_devices(model, [driver])
        compilation.set_caching(tmp_path, TOKEN)
        return compilation.finish().cache[0]

    # The token stands for the model: the client's promise is broken here.
    assert cached(MODEL).result == "written"
    record = cached(add_then(dims=(3, 5)))
    assert record.result == "written"
    assert "the step's inputs and outputs" in str(record.notes[0])
    assert cached(add_then(dims=(3, 5))).result == "read"


# -- the driver that is shipped ---------------------------------------------------------------------------------------


def test_a_caching_driver_computes_from_its_cache_as_without(tmp_path: Path) -> None:
    results = []
    for expected in ("written", "read"):
        compilation = Compilation.create_for_devices(MODEL, [device_list.device("caching:nnapi-sample_float_fast")])
        compilation.set_caching(tmp_path, TOKEN)
        assert compilation.finish().cache[0].result == expected
        results.append(Execution(compilation).run([np.float32([[0.5, -1.5, 2, 3]])])["y"])
    np.testing.assert_array_equal(results, [[[1, -1, 3, 4]]] * 2)  # floor(x + 1)


def test_only_drivers_can_be_made_to_cache() -> None:
    with pytest.raises(InputError, match="caching:"):
        device_list.device("caching:nnapi-reference")


BEFORE_NNAPI = ["hexagon", "edgetpu", "ethos-u55-128", "gpu-delegate", "xnnpack", "litert-mediatek", "litert-qualcomm"]


@pytest.mark.parametrize(
    "name",
    [
        *(form.format(name) for name in BEFORE_NNAPI for form in ("caching:{}", "{}@3", "caching:{}@3")),
        *("process:hexagon", "caching:process:hexagon", "process:caching:hexagon", "process:hexagon@3"),
    ],
)
def test_a_device_before_nnapi_has_no_form_of_a_driver(name: str) -> None:
    with pytest.raises(NnbridgeError, match="looks at a file's operators: name it by itself"):
        assert device_list.device(name).capabilities


def test_no_wrapper_of_one_s_making_takes_a_device_before_nnapi() -> None:
    class Logged(WrappedDevice):
        pass

    with pytest.raises(InputError, match="a driver for Logged"):
        Logged(device_list.device("edgetpu"))


def test_a_device_with_too_many_cache_files_is_not_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "GREEDY", CachingDriver(counts=(33, 0)))
    with pytest.raises(InputError, match="33 and 0"):
        device_list.device(f"{__name__}:GREEDY")


def test_the_reason_of_a_note_names_the_device() -> None:
    found = cache_files_needed(CachingDriver(counts=(1, 33)))
    assert isinstance(found, Reason)
    assert (found.operation, found.found) == ("deviceTestCompilationCaching", "1 and 33")
