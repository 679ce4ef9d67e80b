"""Map of the kernels' statements to the cases and tests that execute them.

The modules of operations are imported with a note before each statement of their functions: tracing takes ten times as long.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import functools
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any

from mutation.drawing import MACHINERY, OPERATIONS, Mutant, statement_of

Place = tuple[str, int]
"""A module of operations and the line where a statement begins."""

NOTED: set[Place] = set()
"""The statements that were executed lately."""


@dataclass
class Map:
    """The cases that execute each statement, and their times."""

    imported: set[Place] = field(default_factory=set)
    """What is executed while modules are imported and tests collected."""
    reached: dict[Place, list[str]] = field(default_factory=dict)
    """Statement -> names of cases and tests."""
    seconds: dict[str, float] = field(default_factory=dict)

    @contextlib.contextmanager
    def noting(self, name: str) -> Iterator[None]:
        """Note what runs under a name."""
        forget()
        NOTED.clear()
        started = time.process_time()
        yield
        self.seconds[name] = time.process_time() - started
        for place in NOTED:
            self.reached.setdefault(place, []).append(name)

    def join(self, other: Map) -> None:
        """Add what another found."""
        self.seconds.update(other.seconds)
        for place, names in other.reached.items():
            self.reached.setdefault(place, []).extend(names)

    def only(self, names: Collection[str]) -> Map:
        """The part of these names."""
        some = set(names)
        reached = {place: [name for name in found if name in some] for place, found in self.reached.items()}
        return Map(self.imported, reached, {name: self.seconds[name] for name in names})

    def reaching(self, mutant: Mutant) -> list[str]:
        """The cases that execute a mutant's statement, the cheapest first."""
        found = self.reached.get((mutant.module, statement_of(mutant)), [])
        return sorted(found, key=lambda name: (self.seconds[name], name))

    def imports(self, mutant: Mutant) -> bool:
        """True if imports execute a mutant's statement."""
        return (mutant.module, statement_of(mutant)) in self.imported


@functools.cache
def noting_code(path: Path) -> CodeType:
    """The code of a module that notes each statement of its functions."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    blocks = {id(block): block for function in functions for block in _blocks(function)}
    for block in blocks.values():
        block[:] = [part for statement in block for part in _noted(path.name, statement)]
    return compile(ast.fix_missing_locations(tree), str(path), "exec", dont_inherit=True)


def _blocks(function: ast.FunctionDef) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(function):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                yield block


def _noted(module: str, statement: ast.stmt) -> Iterator[ast.stmt]:
    """A note and the statement; a docstring stays the first."""
    if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
        place = ast.Tuple([ast.Constant(module), ast.Constant(statement.lineno)], ast.Load())
        note = ast.Expr(ast.Call(ast.Name("__noted__", ast.Load()), [place], []))
        yield ast.copy_location(note, statement)
    yield statement


class Import(importlib.abc.MetaPathFinder):
    """Imports modules of operations from other code."""

    def __init__(self, codes: Mapping[str, CodeType]) -> None:
        self.codes = {f"nnbridge.operations.{Path(name).stem}": (OPERATIONS / name, code) for name, code in codes.items()}

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """The module's spec, if it is one of them."""
        if name not in self.codes:
            return None
        file, code = self.codes[name]
        loader = importlib.machinery.SourceFileLoader(name, str(file))
        loader.get_code = lambda fullname: code  # type: ignore[method-assign]
        return importlib.util.spec_from_file_location(name, file, loader=loader)


def note_statements() -> None:
    """Import the modules of operations so that they note what they execute."""
    vars(builtins)["__noted__"] = NOTED.add
    finder = Import({path.name: noting_code(path) for path in OPERATIONS.glob("*.py") if path.name not in MACHINERY})
    sys.meta_path.insert(0, finder)
    try:
        importlib.import_module("nnbridge.operations").definitions()
    finally:
        sys.meta_path.remove(finder)


def forget() -> None:
    """Empty the caches of functions, so that what they cached is computed again."""
    for cached in caches():
        cached.cache_clear()


@functools.cache
def caches() -> list[Any]:
    """The caches of nnbridge's functions; that of declarations, which other modules hold, is none of them."""
    kind = type(caches)
    return [
        found
        for found in gc.get_objects()
        if isinstance(found, kind) and str(found.__module__).startswith("nnbridge.") and found.__name__ != "definitions"
    ]
