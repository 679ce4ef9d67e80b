"""Commands of the pages that a test machine does not have: ``python standins.py NAME ARGUMENTS`` does what they would do.

``pip`` installs packages that lie in a folder and nothing from an index; extras of nnbridge's must be declared. ``adb`` is a
phone in the folder ``.machine/phone``, whose log and driver are ``phone.log`` and ``phone.toml``. ``benchmark_model`` loads an
external delegate into LiteRT's interpreter. ``model-explorer`` calls an extension as Model Explorer does.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

READER = Path(os.environ["READER"])
PHONE = READER / ".machine" / "phone"
REPOSITORY = Path(__file__).resolve().parents[2]
DATA = "/data/local/tmp"


def pip(*arguments: str) -> None:
    """``pip install``: a folder's own package, or extras."""
    command, *requirements = arguments
    assert command == "install", arguments
    for requirement in requirements:
        if requirement == "." and Path("pyproject.toml").exists():
            target = str(READER / ".machine" / "site")
            offline = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet")
            subprocess.run([sys.executable, "-m", "pip", "install", *offline, "--target", target, "."], check=True)
            continue
        declared = (REPOSITORY / "pyproject.toml").read_text().split("[project.optional-dependencies]")[1]
        for extra in re.fullmatch(r"(?:\.|\./nnbridge)\[([\w,]+)\]", requirement)[1].split(","):
            assert f"\n{extra} = [" in declared, f"expected an extra of pyproject.toml, found {extra}"


def adb(*arguments: str) -> None:
    """A phone on which a driver named my-npu runs."""
    PHONE.mkdir(exist_ok=True)
    command, *rest = arguments
    if command == "logcat":
        print(Path(__file__).with_name("phone.log").read_text())
    elif command == "push":
        assert rest[-1] == DATA, rest
        subprocess.run(["cp", *rest[:-1], str(PHONE)], check=True)
    else:
        assert command == "shell", arguments
        line = " ".join(rest)
        if line.startswith(("setprop ", f"{DATA}/benchmark_model ")):
            return
        libraries = {
            "LD_LIBRARY_PATH": str(PHONE.parent / "libraries"),
            "NNBRIDGE_DEVICES": str(Path(__file__).with_name("phone.toml")),
        }
        subprocess.run(["sh", "-ec", line.replace(DATA, str(PHONE))], env={**os.environ, **libraries}, check=True)


def benchmark_model(*arguments: str) -> None:
    """TFLite's program, as far as it loads an external delegate and runs the graph once."""
    from ai_edge_litert.interpreter import Interpreter, load_delegate

    parser = argparse.ArgumentParser()
    for name in ("graph", "external_delegate_path", "external_delegate_options"):
        parser.add_argument(f"--{name}", required=True)
    asked = parser.parse_args(arguments)
    options = dict(pair.split(":") for pair in asked.external_delegate_options.split(";"))
    loaded = load_delegate(asked.external_delegate_path, options)
    interpreter = Interpreter(asked.graph, experimental_delegates=[loaded])
    interpreter.allocate_tensors()
    interpreter.invoke()


def model_explorer(flag: str, path: str) -> None:
    """Model Explorer, as far as it loads an extension and asks it for a file's graphs."""
    module = flag.removeprefix("--extensions=")
    if importlib.util.find_spec("model_explorer"):
        adapters = vars(importlib.import_module(f"{module}.main"))
        graphs = adapters["NnbridgeAdapter"]().convert(path, {})["graphs"]
    else:
        graphs = importlib.import_module(f"{module}.graphs").planned_graphs(Path(path))
    assert graphs


if __name__ == "__main__":
    globals()[sys.argv[1].replace("-", "_")](*sys.argv[2:])
