"""No command, child process or library touches what is in the current folder or above without being named."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from nnbridge import clib, delegate, neuron
from nnbridge.cli.commands import cli
from nnbridge.delegate import library as delegate_library
from tests.conftest import MODELS, shared_folder
from tests.security.traps import Traps

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems start other processes")
NNBRIDGE = str(Path(sys.executable).with_name("nnbridge"))
MINIMAL, DRIVER = "--device nnapi-sample_minimal", "--device process:nnapi-sample_all"
COMMANDS = (
    "bench digits.tflite --seconds 0.1 --rounds 3",
    "bench digits.onnx --seconds 0.1 --rounds 3",
    f"bisect digits.tflite {MINIMAL} --predicate fails",
    "compare digits.tflite --reference litert --seeds 0",
    f"compare digits.tflite --reference litert --seeds 0 --layers {MINIMAL}",
    "compare digits.onnx --reference onnxruntime --seeds 0",
    "convert digits.onnx -o named.nnapi",
    "convert digits.tflite -o named.cpp",
    "build delegate named",
    "devices",
    "devices --profiles",
    "devices ask nnapi-sample_all named.jsonl",
    "devices check named.toml",
    "devices explain arm-nn-21.11",
    "devices family arm-nn",
    "devices find pixel 8",
    "devices learn named.log",
    "devices serve nnapi-sample_all --socket named.socket",
    "doctor",
    "report digits.tflite -o named.json",
    "convert digits.tflite --operators 0 -o named.tflite",
    "inspect digits.tflite",
    "inspect digits.onnx",
    "matrix digits.tflite digits.onnx --devices samples --jobs 2 --store named.db --reference auto",
    "matrix memory://digits.tflite --devices samples --store named.db",
    "matrix digits.tflite --devices samples --store named2.db --scheduler tcp://127.0.0.1:9",
    "build ndk named",
    "build ndk-env named",
    f"build neuron-file digits.tflite {MINIMAL} -o named.tflite",
    "build neuron named",
    f"plan digits.tflite {MINIMAL} --advice --cost",
    f"plan digits.onnx {DRIVER}",
    "build provider named",
    f"reduce digits.tflite {MINIMAL} --predicate fails -o named",
    "reduce digits.tflite --predicate named.sh -o named",
    "report digits.tflite -o named.html --reference litert --input named.png",
    f"rewrite digits.tflite {MINIMAL} --advice 1 -o named.tflite",
    f"run digits.tflite --seed 0 {DRIVER}",
    "run digits.onnx --seed 0 --host onnxruntime",
    f"run digits.tflite --seed 0 --disallow-nnapi-cpu {MINIMAL}",
    "run digits.tflite --input named.png --trace named.json",
    "vts VTS --spec add --jobs 2",
    "doctor --warm digits.tflite",
    "plan no-such.tflite",
    "plan digits.tflite --device nosuch",
    "--help",
    "--version",
)


@pytest.fixture(scope="module")
def traps(tmp_path_factory: pytest.TempPathFactory) -> Traps:
    """The folder, with the files that commands name."""
    made = Traps(tmp_path_factory.mktemp("traps"))
    made.folder.chmod(0o755)
    for suffix in ("tflite", "onnx"):
        shutil.copy(MODELS / f"digits_float32.{suffix}", made.folder / f"digits.{suffix}")
    (made.folder / "named.toml").write_text('[[device]]\nname = "npu"\n[device.operations]\nSOFTMAX = ["TENSOR_FLOAT32"]\n')
    (made.folder / "named.log").write_text("nothing\n")
    (made.folder / "named.jsonl").write_text("{}\n")
    (made.folder / "named.sh").write_text("#!/bin/sh\nexit 1\n")
    (made.folder / "named.sh").chmod(0o755)
    image = pytest.importorskip("PIL.Image")
    image.new("L", (8, 8)).save(made.folder / "named.png")
    return made


@pytest.fixture
def watched(traps: Traps) -> Iterator[Traps]:
    """The folder, which must be untouched at the end."""
    traps.touched()
    yield traps
    # What --scheduler names is connected to.
    assert [line for line in traps.touched() if "127.0.0.1" not in line] == []
    # ONNX Runtime's reports begin with a file ``.ses``.
    assert [path.name for path in traps.temporary.iterdir()] == []


def test_every_command_is_walked() -> None:
    def names(group: click.Group, before: str) -> Iterator[str]:
        context = click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            if isinstance(command, click.Group):
                yield from names(command, f"{before}{name} ")
            else:
                yield f"{before}{name}"

    assert not [name for name in names(cli, "") if not any(command.startswith(name) for command in COMMANDS)]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_touches_nothing_that_is_not_named(watched: Traps, command: str) -> None:
    vts = shared_folder() / "vts"
    if "VTS" in command and not vts.is_dir():
        pytest.skip(f"needs {vts}, which is not part of the repository")
    words = [str(vts) if word == "VTS" else word for word in command.split()]
    if "serve" in words:
        words = ["timeout", "5", NNBRIDGE, *words]
        words[0] = shutil.which("timeout") or pytest.skip("needs timeout of coreutils")
    else:
        words = [NNBRIDGE, *words]
    ended = watched.run(words)
    assert "internal error" not in ended.stderr
    assert "Traceback" not in ended.stderr


def test_what_a_shell_asks_for_completion_touches_nothing(watched: Traps) -> None:
    asked = {"_NNBRIDGE_COMPLETE": "bash_complete", "COMP_WORDS": "nnbridge plan digits.tflite --device nnapi", "COMP_CWORD": "4"}
    assert "nnapi-sample_all" in watched.run([NNBRIDGE], asked).stdout


def test_the_hook_sees_a_touch(traps: Traps) -> None:
    traps.touched()
    traps.run([sys.executable, "-c", "import colorsys; open('gs')"])
    found = traps.touched()
    assert "ran: colorsys" in found
    assert f"open: {traps.folder.resolve()}/gs" in found


@pytest.mark.parametrize("path", [":", ".", "", "packed.zip:packed-1.0-py3.egg", "../here:./"])
def test_relative_entries_of_pythonpath_are_not_searched_by_what_nnbridge_imports(traps: Traps, path: str) -> None:
    # What Python itself imports before the first line of nnbridge, with this PYTHONPATH, is Python's: as for any script.
    traps.touched()
    python = [sys.executable, "-c", "import re, sys, importlib"]
    traps.run(python, {"PYTHONPATH": path})
    pythons = set(traps.touched())
    traps.run([NNBRIDGE, "plan", "digits.tflite", "--device", "process:nnapi-sample_all"], {"PYTHONPATH": path})
    assert [line for line in traps.touched() if line not in pythons] == []


@pytest.mark.parametrize("flags", [["-P"], []])
def test_python_m_nnbridge_runs_no_more_of_the_folder_than_python_m_itself(traps: Traps, flags: list[str]) -> None:
    if flags and sys.version_info < (3, 11):
        pytest.skip("Python 3.11 has -P")
    traps.touched()
    traps.run([sys.executable, *flags, "-m", "nnbridge.no_such"])
    pythons = set(traps.touched())
    assert not (flags and pythons)
    ended = traps.run([sys.executable, *flags, "-m", "nnbridge", "run", "digits.tflite", "--seed", "0"])
    assert ended.returncode == 0, ended.stderr
    touched = [
        line for line in traps.touched() if line not in pythons and not line.startswith(("import", "os.listdir", "open", "exec"))
    ]
    assert touched == []


C_CLIENT = """
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
int main(int count, char **words) {
  void *library = dlopen(words[1], RTLD_NOW);
  if (!library) { fprintf(stderr, "%s\\n", dlerror()); return 2; }
  uint64_t answer[8] = {0};
  void *(*call)(void *, void *, uint64_t, void *) = (void *(*)(void *, void *, uint64_t, void *))dlsym(library, words[2]);
  if (!call) return 3;
  call(answer, answer + 4, 0, 0);
  return 0;
}
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc on this machine")
@pytest.mark.parametrize("path", ["", ":", ".:WATCH", "packed.zip:WATCH"])
@pytest.mark.parametrize("name", ["ndk", "delegate", "neuron"])
def test_a_library_in_a_c_program_touches_nothing_of_the_folder(watched: Traps, name: str, path: str) -> None:
    pytest.importorskip("cffi")
    library, function = {
        "ndk": (clib._library(), "ANeuralNetworks_getDeviceCount"),
        "delegate": (delegate._LIBRARY, "tflite_plugin_create_delegate"),
        "neuron": (neuron.adapter(), "Neuron_getVersion"),
    }[name]
    program = watched.root / "client"
    if not program.exists():
        (watched.root / "client.c").write_text(C_CLIENT)
        subprocess.run(["gcc", str(watched.root / "client.c"), "-o", str(program), "-ldl"], check=True)
    changes = {"PYTHONPATH": path.replace("WATCH", str(watched.watch))} if path else {}
    ended = watched.run([str(program), str(library.cached()), function], changes)
    assert ended.returncode == 0, ended.stderr
    assert "cannot start" not in ended.stderr


DELEGATE_HOST = """
import numpy as np, sys
from ai_edge_litert.interpreter import Interpreter, load_delegate
nnapi = load_delegate(sys.argv[1], {"accelerator_name": "nnapi-sample_all"})
interpreter = Interpreter("digits.tflite", experimental_delegates=[nnapi])
interpreter.allocate_tensors()
interpreter.invoke()
print("computed")
"""


def test_the_delegate_in_litert_touches_nothing_of_the_folder(watched: Traps) -> None:
    pytest.importorskip("ai_edge_litert")
    pytest.importorskip("cffi")
    host = watched.root / "host" / "host.py"
    host.parent.mkdir()
    host.write_text(DELEGATE_HOST)
    ended = watched.run([sys.executable, str(host), str(delegate_library())])
    assert ended.stdout == "computed\n", ended.stderr


def test_an_image_that_pillow_would_start_a_program_for_is_refused(traps: Traps, tmp_path: Path) -> None:
    # Pillow knows PostScript by its first bytes, and starts Ghostscript to draw it.
    (tmp_path / "named.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n")
    program = tmp_path / "bin" / "gs"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho gs >> '{tmp_path / 'ran'}'\nexit 1\n")
    program.chmod(0o755)
    path = f"{program.parent}:/usr/bin:/bin"
    ended = traps.run([NNBRIDGE, "run", "digits.tflite", "--input", str(tmp_path / "named.png")], {"PATH": path})
    assert ended.returncode == 2
    assert "an image that Pillow reads" in ended.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("variable", ["HOME", "PYTHONUSERBASE", "PYTHONPYCACHEPREFIX", "XDG_CACHE_HOME", "NNBRIDGE_CACHE"])
def test_variables_that_name_the_current_folder_lead_nowhere(traps: Traps, variable: str) -> None:
    before = sorted(path.name for path in traps.folder.iterdir())
    traps.touched()
    ended = traps.run([NNBRIDGE, "run", "digits.tflite", "--seed", "0", "--device", "process:nnapi-sample_all"], {variable: "."})
    assert ended.returncode == 0, ended.stderr
    pythons = {"PYTHONUSERBASE": "lib", "HOME": ".local"}.get(variable)
    assert [line for line in traps.touched() if not pythons or pythons not in line] == []
    assert sorted(path.name for path in traps.folder.iterdir() if path.name != "__pycache__") == before


PROVIDER_HOST = """
import numpy as np, onnxruntime, os
from nnbridge import provider
session = onnxruntime.InferenceSession("digits.onnx", provider.session_options("nnapi-sample_all"))
[given] = session.get_inputs()
session.run(None, {given.name: np.zeros([d if isinstance(d, int) else 1 for d in given.shape], np.float32)})
print("computed")
"""


def test_the_provider_in_onnx_runtime_touches_nothing_of_the_folder(watched: Traps) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("cffi")
    if not hasattr(onnxruntime, "register_execution_provider_library"):
        pytest.skip("ONNX Runtime is older than 1.23")
    host = watched.root / "provider_host" / "host.py"
    host.parent.mkdir()
    host.write_text(PROVIDER_HOST)
    # The program is the user's, and so is the decision what ONNX Runtime reports.
    ended = watched.run([sys.executable, str(host)], {"ORT_DISABLE_TELEMETRY": "1"})
    assert ended.stdout == "computed\n", ended.stderr
