"""Without llvmlite these tests are skipped. Kernels that they compile are cached in one folder for the session."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from nnbridge.cpu.compiled import unavailable
from nnbridge.cpu.compiled.instructions import INSTRUCTION_SETS, InstructionSet


class Skipped(pytest.Module):
    """A module of tests that cannot be imported."""

    def collect(self) -> list[pytest.Item | pytest.Collector]:
        """None, and why."""
        pytest.skip(str(unavailable()), allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Modules as they are where there is a compiler."""
    return None if unavailable() is None else Skipped.from_parent(parent, path=module_path)


@pytest.fixture(scope="session", autouse=True)
def kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A folder of the session's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NNBRIDGE_CACHE", str(tmp_path_factory.mktemp("kernels")))
        yield


@pytest.fixture
def tiles() -> InstructionSet:
    """The instruction set with matrix tiles; the kernels that use none of them are those of the next one."""
    from nnbridge.cpu.compiled.instructions import host_sets

    found = next((isa for isa in host_sets() if isa.matrices), None)
    return found or pytest.skip("this processor has no matrix tiles, or the system permits none")


@pytest.fixture(params=[name for name, isa in INSTRUCTION_SETS.items() if not isa.matrices])
def isa(request: pytest.FixtureRequest) -> InstructionSet:
    """Each instruction set."""
    from nnbridge.cpu.compiled.instructions import host_sets

    chosen, available = INSTRUCTION_SETS[request.param], host_sets()
    if chosen in available:
        return chosen
    if chosen.name == "avxvnni" and INSTRUCTION_SETS["avx512vnni"] in available:
        # The same vectors and instructions in AVX-512's encoding.
        return replace(chosen, features="+avx512vl,+avx512vnni")
    pytest.skip(f"this processor does not have {chosen.name}")
