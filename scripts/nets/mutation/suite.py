"""The conformance cases and the tests, run one by one."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pytest
from mutation.drawing import ROOT
from mutation.reach import NOTED, Place, note_statements

if TYPE_CHECKING:
    from nnbridge.conformance.cases import Case


def conformance_cases() -> dict[str, Case]:
    """Android's conformance cases by name; none where their folder is absent."""
    from nnbridge.conformance.cases import read_cases, spec_files
    from tests.conftest import shared_folder

    folder = shared_folder() / "vts"
    paths = spec_files(folder) if folder.is_dir() else []
    return {f"{case.suite}/{case.spec}/{case.name}": case for path in paths for case in read_cases(path)}


def passes(case: Case) -> bool:
    """True if a conformance case passes on the reference kernels."""
    from nnbridge.conformance.outcome import PASSED, REFUSED
    from nnbridge.conformance.run import Setting, run_case
    from nnbridge.cpu.settings import Settings, preparing

    with preparing(Settings("reference")):
        return run_case(case, Setting()).status in (PASSED, REFUSED)


def spread(names: Sequence[str]) -> list[str]:
    """Names of cases: the first of each spec, then the second of each, and so on."""
    turns: Counter[str] = Counter()
    ordered = []
    for name in names:
        spec = name.rpartition("/")[0]
        ordered.append((turns[spec], name))
        turns[spec] += 1
    return [name for _, name in sorted(ordered, key=lambda item: item[0])]


class Session:
    """A plugin of pytest that has ``work`` done where pytest runs its tests; what runs them one by one."""

    def __init__(self, work: Callable[[Session], None]) -> None:
        self.work = work
        self.imported: set[Place] = set()
        self.items: dict[str, pytest.Item] = {}
        self.failed = False

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Iterator[None]:
        """Note what is executed by imports."""
        if "nnbridge.operations" not in sys.modules:
            note_statements()
        without_surprises()
        yield
        self.imported = set(NOTED)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Work instead of running all."""
        self.items = {item.nodeid: item for item in session.items}
        self.work(self)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure."""
        self.failed |= report.failed

    def passes(self, name: str, then: str | None = None) -> bool:
        """Run one test; ``then`` runs next (fixtures that both use stay)."""
        item = self.items[name]
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=self.items[then] if then else None)
        return not self.failed


def without_surprises() -> None:
    """Let Hypothesis draw the same examples each time, and not look for smaller ones that fail too."""
    from hypothesis import Phase, settings

    importlib.import_module("tests.conftest")  # it loads a profile
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile("mutants", settings(), derandomize=True, database=None, phases=phases)
    settings.load_profile("mutants")


def pytest_with(plugin: Session, tests: Sequence[str]) -> int:
    """Pytest's exit status for some tests; it prints nothing."""
    options = ["-q", "-s", "--tb=no", "-p", "no:cacheprovider", "-p", "no:xdist", "--timeout=0", "--rootdir", str(ROOT)]
    with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
        return int(pytest.main([*options, *tests], plugins=[plugin]))
