"""Someone who reads a page in a folder and does what every block says, in the order of the page.

Commands of nnbridge alone run in this process, everything else in a real shell, whose variables and folder last to the end of the
page. ``nnbridge`` and ``python`` are the environment's own there; ``standins.py`` has what no test machine has, such as a phone.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import nnbridge
import nnbridge_tflite
from nnbridge.cli.commands import cli
from nnbridge.converters import converters
from tests.conftest import REPOSITORY
from tests.site.blocks import Block

STANDINS = ("pip", "adb", "benchmark_model", "model-explorer")
SOURCES = [str(Path(package.__file__).resolve().parents[1]) for package in (nnbridge, nnbridge_tflite) if package.__file__]
LOADS = ("clib", "delegate", "provider", "neuron", "torch", "onnxruntime", "ai_edge_litert")
"""Python that imports one of these loads libraries, which stay in a process: it runs in one of its own."""
SHORTER = {
    r"--cases 20000": "--cases 20",
    r"--inputs 1000": "--inputs 2 --android 12 --devices arm-nn-18.05 arm-nn-21.11",
    r"--inputs 0$": "--inputs 0 --android 12 --devices arm-nn-18.05 arm-nn-21.11",
    r"benchmark_conversion.py": "benchmark_conversion.py --megabytes 30",
    r"--seeds 0 1 2 3 4": "--seeds 0",
    r"--count 1000": "--count 2 --only reductions.py --tests tests/operations/test_reductions.py",
    r"--tests tests/operations tests/compiled": "--tests tests/operations/test_reductions.py",
    r"\[|\]": "",
    r"FOLDER": "models",
}
"""What scripts are called with here instead, to end within seconds; a workflow runs on fewer devices for the same reason."""


@dataclass
class Reader:
    """The state of a reader: folder, variables, names of Python, and what the last block printed."""

    folder: Path
    patch: pytest.MonkeyPatch
    printed: str = ""
    skipped: list[str] = field(default_factory=list)
    code: list[str] = field(default_factory=list)
    names: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        bin_, site = self.folder / ".machine" / "bin", self.folder / ".machine" / "site"
        for path in (bin_, site):
            path.mkdir(parents=True, exist_ok=True)
        own = os.pathsep.join([str(site), *SOURCES])
        commands = {"python": "", "python3": "", "nnbridge": "-c 'from nnbridge.cli import main; main()'"}
        for name in STANDINS:
            commands[name] = f"'{REPOSITORY}/tests/site/standins.py' {name}"
        for name, rest in commands.items():
            (bin_ / name).write_text(f"#!/bin/sh\nPYTHONPATH='{own}' exec '{sys.executable}' {rest} \"$@\"\n")
            (bin_ / name).chmod(0o755)
        self.environment = {
            **os.environ,
            "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": sysconfig.get_path("purelib"),  # what pip would download for a new environment
            "PYTHONDONTWRITEBYTECODE": "1",
            "READER": str(self.folder),
            "NDK": str(self.folder / ".machine" / "ndk"),
            "GITHUB_STEP_SUMMARY": str(self.folder / ".machine" / "summary.md"),
            "PIP_NO_INDEX": "1",
            "PIP_NO_BUILD_ISOLATION": "0",  # pip reads a variable of a "no" option as the option without "no"
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "LIBRARY_PATH": str(self.folder / ".machine" / "lib"),
            "LD_LIBRARY_PATH": str(self.folder / ".machine" / "lib"),
            "CMAKE_GENERATOR": "Ninja" if shutil.which("ninja") else "Unix Makefiles",
        }
        self.patch.setenv("GITHUB_STEP_SUMMARY", self.environment["GITHUB_STEP_SUMMARY"])
        self.patch.chdir(self.folder)
        self.patch.syspath_prepend(str(self.folder))
        self.patch.syspath_prepend(str(site))

    def follow(self, block: Block) -> None:
        """Do what a block says."""
        if block.mark == "output":
            if block.text_of_mark:
                self.printed = ""
                self._command(block.text_of_mark)
            self._compare(block)
        elif block.file:
            self._write(block)
        elif block.language == "python":
            self._python(block.text)
        elif block.language == "json":
            json.loads(block.text)
        elif block.language == "toml":
            (self.folder / "page.toml").write_text(block.text)
            self._command("nnbridge devices check page.toml")
        elif block.language == "yaml":
            self._workflow(block.text)
        elif block.language == "":
            self._commands(block)
        else:
            assert block.language == "text", f"{block.language}: expected a drawing (text) or a block that runs"

    def _write(self, block: Block) -> None:
        path = self.folder / block.file
        path.parent.mkdir(exist_ok=True)
        path.write_text(block.text)
        path.chmod(0o755)

    def _commands(self, block: Block) -> None:
        if block.is_sample:
            return
        if block.is_nnbridge_alone:
            self.printed = ""
            for line in block.lines:
                self._command(line)
        else:
            self._shell(block.text)

    def _command(self, line: str) -> None:
        refused = line.startswith("! ")
        done = CliRunner().invoke(cli, shlex.split(line.removeprefix("! "), comments=True)[1:])
        assert (done.exit_code != 0) is refused, f"{line}\n{done.output}"
        self.printed += done.output

    def _shell(self, text: str) -> None:
        for long, short in SHORTER.items() if "python scripts/" in text else ():
            text = re.sub(long, short, text, flags=re.MULTILINE)
        if shutil.which("bash") is None:
            pytest.skip("there is no bash on this machine")
        after = self.folder / ".machine" / "environment"
        script = f"set -euo pipefail\n{text}\nenv -0 > '{after}'\n"
        done = subprocess.run(
            ["bash", "-c", script],
            env=self.environment,
            cwd=Path.cwd(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=280,
            check=False,
        )
        self.printed = done.stdout
        if "python scripts/" in text and (missing := re.search(r"No module named '(\w+)'", done.stdout)):
            self.skipped.append(f"{missing[1]}, which a script imports")
            return
        assert done.returncode == 0, f"{text}\n{done.stdout}"
        self.environment = dict(entry.split("=", 1) for entry in after.read_text().split("\0") if entry)
        self.patch.chdir(self.environment["PWD"])
        importlib.invalidate_caches()
        converters.cache_clear()

    def _python(self, text: str) -> None:
        roots = {module.split(".")[0] for module in _imported(text)}
        known = {root for root in roots if root in sys.modules or PathFinder.find_spec(root, [str(self.folder), *sys.path])}
        if missing := roots - known:
            self.skipped.append(f"{', '.join(sorted(missing))}, which a block imports")
            return
        self.code.append(text)
        if any(name.rpartition(".")[2] in LOADS or name.split(".")[0] in LOADS for code in self.code for name in _imported(code)):
            (self.folder / ".machine" / "code.py").write_text("\n".join(self.code))
            self._shell(f"PYTHONPATH= python '{self.folder}/.machine/code.py'")
        else:
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(text, "block", "exec"), self.names)
            self.printed = printed.getvalue()

    def _workflow(self, text: str) -> None:
        yaml = pytest.importorskip("yaml")
        workflow = yaml.safe_load(text)
        assert workflow["name"]
        for job in workflow["jobs"].values():
            for step in job["steps"]:
                assert ("uses" in step) is not ("run" in step), step
                if "run" in step:
                    self._shell(step["run"].replace("--devices profiles", "--devices 'arm-nn-*'"))

    def _compare(self, block: Block) -> None:
        """Every line of a block is in what the block before it printed. ``…`` stands for anything, white space is left out."""
        printed = re.sub(r"\s", "", self.printed)
        for line in block.text.splitlines():
            pattern = ".*".join(re.escape(re.sub(r"\s", "", part)) for part in line.split("…"))
            assert re.search(pattern, printed), f"expected {line}\nfound {self.printed}"


def _imported(text: str) -> set[str]:
    """The modules and names that code imports, dotted."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found
