"""Trust is decided in one place: no other module starts Python, changes its path or looks for packages."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.conftest import REPOSITORY

STARTS = {
    "subprocess": {"run", "Popen", "call", "check_call", "check_output", "getoutput", "getstatusoutput"},
    "os": {
        "system",
        "popen",
        "execv",
        "execve",
        "execvp",
        "execvpe",
        "spawnv",
        "spawnve",
        "posix_spawn",
        "posix_spawnp",
        "startfile",
    },
}
USERS_OWN = "src/nnbridge/reduction/symptoms.py"
"""The command of ``reduce --predicate`` is the user's, and so is its environment."""
ISOLATED = "converters/nnbridge_onnx/native.py"
"""It starts Python with ``-I -S``, which read no path and no environment."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    for folder in ("src", "converters"):
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            yield path.relative_to(REPOSITORY).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def found(*kinds: type[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
    yield from ((name, node) for name, module in modules() for node in ast.walk(module) if isinstance(node, kinds))


def words(node: ast.AST) -> str:
    return ast.unparse(node)


def test_every_process_has_the_environment_of_the_one_place() -> None:
    calls = [
        (name, node)
        for name, node in found(ast.Call)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.attr in STARTS.get(node.func.value.id, ())
    ]
    assert len(calls) >= 7
    without = [name for name, call in calls if not any(keyword.arg == "env" for keyword in call.keywords)]
    assert without == [USERS_OWN]


def test_python_is_started_by_the_one_place() -> None:
    users = {name for name, node in found(ast.List) if "sys.executable" in words(node)}
    assert users == {"src/nnbridge/trust.py", ISOLATED, USERS_OWN}


@pytest.mark.parametrize(
    ("module", "names", "allowed"),
    [
        ("multiprocessing", {"Process", "Pool", "get_context", "Manager", "set_start_method"}, set()),
        ("concurrent.futures", {"ProcessPoolExecutor"}, set()),
        ("importlib.metadata", {"entry_points", "distributions"}, {"src/nnbridge/entry_points.py"}),
        ("runpy", {"run_path", "run_module"}, set()),
        ("pkg_resources", {"iter_entry_points"}, set()),
    ],
)
def test_processes_and_packages_are_had_from_the_one_place(module: str, names: set[str], allowed: set[str]) -> None:
    used = set()
    for name, node in found(ast.ImportFrom, ast.Import, ast.Attribute):
        if isinstance(node, ast.ImportFrom):
            if node.module == module and names & {alias.name for alias in node.names}:
                used.add(name)
        elif isinstance(node, ast.Import):
            if module in {alias.name for alias in node.names} and "." not in module:
                used.add(name)
        elif isinstance(node, ast.Attribute) and words(node) in {f"{module}.{each}" for each in names}:
            used.add(name)
    assert used == allowed


def test_python_s_path_is_changed_in_the_one_place() -> None:
    changed = {
        name
        for name, node in found(ast.Call, ast.Assign, ast.AugAssign)
        if words(node).startswith(
            ("sys.path.append(", "sys.path.insert(", "sys.path.extend(", "sys.path[", "sys.path =", "sys.path +=")
        )
    }
    assert changed == {"src/nnbridge/trust.py"}


def test_folders_of_caches_are_known_to_the_one_place() -> None:
    texts = {
        name
        for name, node in found(ast.Constant)
        if isinstance(node, ast.Constant) and node.value in ("XDG_CACHE_HOME", ".cache", "XDG_CONFIG_HOME")
    }
    assert texts == {"src/nnbridge/caches.py"}
