"""Kernels that tests compile are cached in one folder for the session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nnbridge.cpu.compiled.instructions import FORMS, InstructionSet


@pytest.fixture(scope="session", autouse=True)
def kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A folder of the session's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NNBRIDGE_CACHE", str(tmp_path_factory.mktemp("kernels")))
        yield


@pytest.fixture(params=list(FORMS))
def form(request: pytest.FixtureRequest) -> InstructionSet:
    """Each form of the kernels."""
    from nnbridge.cpu.compiled.instructions import host_forms

    chosen = FORMS[request.param]
    if chosen not in host_forms():
        pytest.skip(f"this processor does not run the form {chosen.name}")
    return chosen
