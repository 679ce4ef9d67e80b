"""The object cache: what is read from disk, what is compiled anew, and what happens where nothing can be written."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import platform
import struct
import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnbridge.cpu.arena import address_of
from nnbridge.cpu.compiled import image, objects
from nnbridge.cpu.compiled.constants import POOLED, ConstantPool
from nnbridge.cpu.compiled.image import Unloadable, place
from nnbridge.cpu.compiled.instructions import INSTRUCTION_SETS, chosen, host_sets, supported
from nnbridge.cpu.compiled.machine import cache_directory, machine
from nnbridge.cpu.compiled.objects import Library, Variant, function
from nnbridge.errors import InputError
from nnbridge.storage import save
from nnbridge.types import OperationCode
from tests.graphs import unary_chain

CLAMP = Variant("clamp_bytes")
PRODUCT = Variant("product", (("form", "signed"), ("row_sums", ""), ("single", False)))
OWN_LOADER = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="objects that nnbridge loads itself"
)


@functools.cache
def compiled_product() -> bytes:
    """An object file with relocations."""
    return Library(chosen(), None).compile(PRODUCT)


def clamps(library: Library) -> bool:
    """True if a library's clamp_bytes clamps 100 bytes to 3 to 200."""
    source = np.arange(100, 200, dtype=np.uint8)
    target = np.zeros(100, np.uint8)
    block = np.array([source.ctypes.data, target.ctypes.data, 100, 103, 180], np.int64)
    function(library.address(CLAMP))(block.ctypes.data, 0, 1)
    return bool((target == np.clip(source, 103, 180)).all())


def test_a_second_library_reads_what_the_first_compiled(tmp_path: Path) -> None:
    first, second = Library(chosen(), tmp_path), Library(chosen(), tmp_path)
    assert clamps(first)
    assert clamps(second)
    assert (first.statistics.compiled, first.statistics.loaded) == (1, 0)
    assert (second.statistics.compiled, second.statistics.loaded) == (0, 1)


def test_a_damaged_object_is_compiled_anew(tmp_path: Path) -> None:
    assert clamps(Library(chosen(), tmp_path))
    (stored,) = tmp_path.glob("*.o")
    stored.write_bytes(stored.read_bytes()[:-7])
    library = Library(chosen(), tmp_path)
    assert clamps(library)
    assert library.statistics.compiled == 1


WARM = """
import sys, numpy as np
from nnbridge.cpu import compiled
from nnbridge.cpu.compiled.instructions import chosen
from nnbridge.cpu.compiled.objects import Variant, function, library
from nnbridge.errors import InputError
assert compiled.unavailable() is None
source, target = np.array([7], np.uint8), np.zeros(1, np.uint8)
block = np.array([source.ctypes.data, target.ctypes.data, 1, 9, 20], np.int64)
function(library(chosen()).address(Variant("clamp_bytes")))(block.ctypes.data, 0, 1)
print(target[0], "llvmlite.binding" in sys.modules)
"""


@OWN_LOADER
def test_a_process_with_a_filled_cache_imports_no_compiler(tmp_path: Path) -> None:
    environment = {**os.environ, "NNBRIDGE_CACHE": str(tmp_path)}
    answers = [
        subprocess.run([sys.executable, "-c", WARM], env=environment, check=True, capture_output=True, text=True).stdout
        for _ in range(2)
    ]
    assert answers == ["9 True\n", "9 False\n"]


def test_what_llvm_said_is_asked_again_where_its_file_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNBRIDGE_CACHE", str(tmp_path))
    first = machine.__wrapped__()
    for stored in tmp_path.glob("machine-*.json"):
        stored.write_text('{"triple": 3')
    assert machine.__wrapped__() == first
    assert first.triple == llvm.get_process_triple()


@OWN_LOADER
def test_what_the_own_loader_does_not_know_it_refuses_with_what_it_found(monkeypatch: pytest.MonkeyPatch) -> None:
    code = Library(chosen(), None).compile(CLAMP)
    aarch64 = code[:18] + struct.pack("<H", 183) + code[20:]
    for wrong, found in ((b"no object file", "found 6e6f206f626a"), (aarch64, "found 0100b700")):
        with pytest.raises(Unloadable, match=found):
            place(wrong, CLAMP.symbol)
    with pytest.raises(Unloadable, match="a function another"):
        place(code, "another")
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(Unloadable, match="requires Linux on x86_64, found linux on riscv64"):
        place(code, CLAMP.symbol)


@OWN_LOADER
@given(data=st.data())
def test_a_damaged_object_is_loaded_or_refused_and_nothing_else(data: st.DataObject) -> None:
    """Headers alone: damaged instructions can be loaded, but not run. The cache's digest finds both."""
    code = bytearray(compiled_product())
    headers = struct.unpack_from("<Q", code, 40)[0]
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, 63) | st.integers(headers, len(code) - 1))
        code[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(Unloadable):
        place(bytes(code[: data.draw(st.integers(0, len(code)) | st.just(len(code)))]), PRODUCT.symbol)


@OWN_LOADER
def test_an_unknown_relocation_is_left_to_llvm_and_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(image, "_ABSOLUTE_64", 77)
    objects._report_unloadable.cache_clear()
    with caplog.at_level(logging.INFO):
        assert Library(chosen(), None).address(PRODUCT)
        assert Library(chosen(), None).address(PRODUCT)
    assert [record.message.split("loader ")[1] for record in caplog.records] == [
        "requires relocations of kind 77 (absolute, 64 bits), found kind 1"
    ]


FORBIDDEN = """
import ctypes, logging, sys
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) != 0:  # PR_SET_MDWE: memory that was written does not become code
    sys.exit(77)
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
import numpy as np
from nnbridge import Compilation, Execution, load
compilation = Compilation.create(load(sys.argv[1]), [], kernels="compiled")
compilation.finish()
print(next(iter(Execution(compilation).run([np.float32([[-1, 0, 2, 9]])]).values())).tolist())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux forbids a process to make code")
def test_where_no_memory_may_become_code_the_reference_tier_computes(tmp_path: Path) -> None:
    path = tmp_path / "model.nnapi"
    save(unary_chain(OperationCode.RELU), path)
    done = subprocess.run([sys.executable, "-c", FORBIDDEN, str(path)], capture_output=True, text=True)
    if done.returncode == 77:
        pytest.skip("Linux 6.3 or later")
    *logged, answer = done.stdout.splitlines()
    assert answer == "[[0.0, 0.0, 2.0, 9.0]]", done.stderr
    assert logged.count("compiled kernels: requires memory that may become code, found Permission denied") == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes that fork")
def test_a_process_forked_while_another_thread_compiles_is_not_blocked() -> None:
    library = Library(chosen(), None)
    assert clamps(library)
    with library._lock:
        child = os.fork()
        if child == 0:
            os._exit(0 if clamps(library) else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_instruction_sets_do_not_share_objects(tmp_path: Path) -> None:
    for isa in host_sets():
        assert clamps(Library(isa, tmp_path))
    assert len(list(tmp_path.glob("*.o"))) == len(host_sets())


def test_without_a_directory_that_can_be_written_objects_live_in_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with caplog.at_level(logging.INFO):
        library = Library(chosen(), blocked / "kernels")
        assert clamps(library)
        library.address(Variant("fill"))
    messages = [record for record in caplog.records if "not cached" in record.message]
    assert len(messages) == 1
    assert messages[0].levelno == logging.INFO


def test_the_environment_names_the_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NNBRIDGE_CACHE", str(tmp_path))
    assert cache_directory() == tmp_path
    monkeypatch.setenv("NNBRIDGE_CACHE", "")
    assert cache_directory() is None
    monkeypatch.delenv("NNBRIDGE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert cache_directory() == tmp_path / "cache" / "nnbridge" / "kernels"


def test_instruction_sets_are_chosen_by_features() -> None:
    everything = {name: True for isa in INSTRUCTION_SETS.values() for name in isa.requires}
    assert [isa.name for isa in supported(everything)] == ["amx", "avx512vnni", "avxvnni", "avx2", "plain"]
    assert next(isa.name for isa in supported({**everything, "amx-int8": False})) == "avx512vnni"
    assert [isa.name for isa in supported({**everything, "avx512vnni": False})] == ["avxvnni", "avx2", "plain"]
    assert [isa.name for isa in supported({"avx2": True, "fma": True, "bmi2": True, "f16c": True})] == ["avx2", "plain"]
    assert [isa.name for isa in supported({})] == ["plain"]


def test_the_environment_forces_an_instruction_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNBRIDGE_INSTRUCTIONS", "plain")
    assert chosen().name == "plain"
    monkeypatch.setenv("NNBRIDGE_INSTRUCTIONS", "")
    assert chosen() == host_sets()[0]


@pytest.mark.parametrize("name", ["of another processor", "sse9", "PLAIN", " ", "plain,avx2"])
def test_an_instruction_set_that_the_processor_does_not_run_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNBRIDGE_INSTRUCTIONS", name)
    with pytest.raises(InputError, match="NNBRIDGE_INSTRUCTIONS: expected an instruction set that this processor runs"):
        chosen()


def test_importing_the_package_imports_no_compiler() -> None:
    code = "import sys, nnbridge, nnbridge.cpu.compiled; assert 'llvmlite' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.skipif(not llvm.get_process_triple().startswith("x86_64"), reason="assembly of x86 processors")
@pytest.mark.parametrize(
    ("name", "instruction"),
    [("avx512vnni", "vpdpbusd"), ("avxvnni", "{vex}\tvpdpbusd"), ("avx2", "vpmaddwd"), ("plain", "pmaddwd")],
)
def test_products_are_those_of_the_instruction_set(name: str, instruction: str) -> None:
    """Also for processors that this one is not."""
    assembly = Library(INSTRUCTION_SETS[name], None).assembly(PRODUCT)
    assert instruction in assembly
    assert "vpmaddubsw" not in assembly


EVERYWHERE = [
    PRODUCT,
    Variant("product", (("form", "real"), ("row_sums", ""), ("single", False))),
    Variant("depthwise", (("dilation", (1, 1)), ("form", "general"), ("sets", 1), ("size", (3, 3)), ("stride", (1, 1)))),
    Variant("softmax_bytes"),
    Variant("run_shared"),
    Variant("help_out"),
]


@pytest.mark.parametrize("variant", EVERYWHERE, ids=lambda variant: variant.kernel)
def test_the_plain_instruction_set_is_code_for_other_processors(variant: Variant) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    triple = "aarch64-unknown-linux-gnu"
    machine = llvm.Target.from_triple(triple).create_target_machine(opt=2)
    parsed = llvm.parse_assembly(str(Library(INSTRUCTION_SETS["plain"], None).module(variant, triple)))
    parsed.verify()
    assembly = machine.emit_assembly(parsed)
    assert variant.symbol in assembly
    if variant.kernel == "product" and ("form", "signed") in variant.parameters:
        assert "smlal" in assembly


def test_equal_constants_of_a_program_lie_once_and_large_ones_alone() -> None:
    pool = ConstantPool()
    small, large = np.arange(5, dtype=np.int32), np.ones(POOLED + 1, np.uint8)
    assert [pool.place(small), pool.place(small + 1), pool.place(small.copy())] == [0, 64, 0]
    assert pool.constant().data[:20].view(np.int32).tolist() == [0, 1, 2, 3, 4]
    held = pool.held(large)
    assert held.data.tobytes() == large.tobytes()
    assert address_of(held.data) % 64 == 0
    assert pool.held(held) is held


def test_addresses_are_not_read_from_memory_that_was_freed() -> None:
    """Python's checked allocator overwrites what is freed."""
    code = """if True:
        import numpy as np
        from nnbridge.cpu.arena import address_of
        array = np.zeros(10)
        assert address_of(array[3:]) == array.ctypes.data + 24
    """
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONMALLOC": "debug"}, check=True)
