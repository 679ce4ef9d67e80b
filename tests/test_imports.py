"""The packages depend on each other in one direction, no modules import each other in a circle."""

from __future__ import annotations

import ast
import logging
import subprocess
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from nnbridge.entry_points import installed

ROOT = Path(__file__).parents[1]
LAYERS = (
    "records",
    "types trust json_data",
    "errors reading caches",
    "platforms",
    "processes ahead",
    "apart",
    "model entry_points escaping foreign budget releases",
    "toml allowlist log_lines",
    "source",
    "estimate",
    "extensions",
    "operations",
    "device_view cpu storage",
    "builder embedding",
    "devices",
    "runtime converters",
    "file conformance ndk",
    "engines cost",
    "target",
    "plan_data summary",
    "plan",
    "compare clib",
    "inputs advice bench phone_log routes since",
    "report",
    "sampling",
    "api export delegate neuron matrix provider",
    "learning reduction explorer",
    "cli",
    "__main__",
)
"""Parts of nnbridge, from the lowest: each imports those above its own line alone. Converters come on top of them."""
CONVERTERS_MAY_IMPORT = {
    "apart", "records", "releases", "converters", "storage", "source", "operations", "extensions", "model", "errors", "platforms",
    "trust", "types",
    "budget", "log_lines", "reading",
}  # fmt: skip
IMPORTERS = ("nnbridge_tflite", "nnbridge_onnx")
"""Built alike: a class may have its counterpart, under the same name, in the other one's module of the same name."""


def modules() -> dict[str, Path]:
    """Every module of the project by name."""
    found = {}
    for folder in (ROOT / "src", ROOT / "converters"):
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def statements(node: ast.AST, types: bool, later: bool) -> Iterator[ast.AST]:
    """The statements that run on import; with ``types`` those that only type checkers read, with ``later`` bodies of functions
    too."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not later:
            continue
        if types or not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield child
            yield from statements(child, types, later)


def imported(path: Path, known: Mapping[str, Path], types: bool, later: bool = False) -> set[str]:
    """The project's modules that one imports."""
    found: set[str] = set()
    for node in statements(ast.parse(path.read_text(encoding="utf-8")), types, later):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            found.update(full if full in known else node.module for full in names.values())
    return found & known.keys()


MODULES = modules()
IMPORTS = {name: imported(path, MODULES, True) - {name} for name, path in MODULES.items()}


def part(module: str) -> str:
    """The part of nnbridge that a module belongs to, or the converter."""
    package, *rest = module.split(".")
    return rest[0] if package == "nnbridge" and rest else package


@pytest.mark.parametrize(
    ("types", "later"), [(False, False), (True, False), (False, True)], ids=["at once", "for types", "later"]
)
def test_no_modules_import_each_other_in_a_circle(types: bool, later: bool) -> None:
    imports = {name: imported(path, MODULES, types, later) - {name} for name, path in MODULES.items()}
    imports["nnbridge"] = set()  # names of the package's interface, for type checkers
    try:
        list(TopologicalSorter(imports).static_order())
    except CycleError as error:
        pytest.fail(" -> ".join(reversed(error.args[1])))


def test_parts_import_those_below_them_alone() -> None:
    levels = {name: level for level, line in enumerate(LAYERS) for name in line.split()}
    levels["nnbridge"] = -1
    upwards = [
        f"{name} imports {other}"
        for name, others in IMPORTS.items()
        for other in others
        if name.startswith("nnbridge.") and part(other) != part(name) and levels[part(other)] >= levels[part(name)]
    ]
    assert not upwards


def test_converters_import_no_devices_and_no_runtime() -> None:
    found = {
        (name, part(other))
        for name, others in IMPORTS.items()
        for other in others
        if not name.startswith("nnbridge.") and name != "nnbridge" and part(other) != part(name)
    }
    # backend.py runs models, as ONNX's interface for it requires; host/runtime.py has ONNX Runtime in another process.
    assert {(name, other) for name, other in found if other not in CONVERTERS_MAY_IMPORT} <= {
        ("nnbridge_onnx.backend", "devices"),
        ("nnbridge_onnx.backend", "runtime"),
        ("nnbridge_onnx.host.runtime", "engines"),
    }


def test_no_module_imports_a_private_name_of_another() -> None:
    found = [
        f"{name} imports {node.module}.{alias.name}"
        for name, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name.startswith("_") and not alias.name.startswith("__")
    ]
    assert not found


def test_one_class_name_has_one_meaning() -> None:
    places: dict[str, set[str]] = {}
    for name, path in MODULES.items():
        package, _, module = name.partition(".")
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, set()).add(f"importer {module}" if package in IMPORTERS else name)
    assert not {name: found for name, found in places.items() if len(found) > 1}


def test_records_are_declared_in_one_way() -> None:
    # Python's own is written out where a class has what nnbridge.records does not know.
    for path in MODULES.values():
        imports = [node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.ImportFrom)]
        assert not [n for n in imports if n.module == "dataclasses" and "dataclass" in {name.name for name in n.names}], path


@pytest.mark.parametrize("package", ["storage", "file", "devices", "runtime.execution", "extensions", "operations", "ndk"])
def test_package_can_be_imported_first(package: str) -> None:
    subprocess.run([sys.executable, "-c", f"import nnbridge.{package}"], check=True, timeout=60)


def test_what_cannot_be_loaded_is_logged_and_the_rest_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    package = tmp_path / "theirs-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[nnbridge.tried]\nbroken = no_such_module:X\ngood = math:pi\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with caplog.at_level(logging.WARNING):
        assert list(installed("nnbridge.tried")) == [3.141592653589793]
    assert caplog.messages == ["not loaded: broken = no_such_module:X: No module named 'no_such_module'"]
