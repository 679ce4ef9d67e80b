"""A folder full of traps: whatever of it is imported, run, read or listed without being named leaves a line in a log."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import packages_distributions
from pathlib import Path

OPTIONAL = (
    "sitecustomize", "usercustomize", "_suggestions", "_distributor_init_local", "threadpoolctl", "olefile", "defusedxml", "pkg_resources",
    "tomli", "tflite_runtime", "tensorflow", "torch", "pandas", "cupy", "bottleneck", "lz4", "snappy", "zstandard", "cramjam", "blosc", "uvloop",
    "winloop", "ujson", "orjson", "simplejson", "colorama", "win32api", "jnius", "java", "com", "apport", "apport_python_hook", "numpy_distutils",
    "scipy", "keyring", "gi", "IPython", "ipywidgets", "sparse", "bokeh", "h5py", "tables", "coloredlogs", "mpmath", "sympy", "xdg", "rlcompleter2",
    "nnbridge_tflite_local", "planted",
)  # fmt: skip
"""Names that Python's library or packages only try to import, or that others plant."""
GROUPS = (
    "nnbridge.converters", "nnbridge.devices", "nnbridge.host_extensions", "console_scripts", "fsspec.specs", "distributed.preloads", "dask.array.backends",
    "onnxruntime.execution_providers", "onnxruntime.ep", "cffi", "pillow.plugins", "rich", "click", "pytest11", "distutils.commands", "llvmlite",
    "dask.sizeof", "tblib", "importlib_metadata",
)  # fmt: skip
PROGRAMS = (
    "cc",
    "gcc",
    "ld",
    "as",
    "uname",
    "ldconfig",
    "objdump",
    "gs",
    "sh",
    "git",
    "python",
    "python3",
    "lscpu",
    "file",
    "lsb_release",
)

_MODULE = """\
import os, sys
_log = os.open({log!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.write(_log, b"ran: {name}\\n")
os.close(_log)
_path = sys.path[:]
sys.path[:] = [p for p in _path if p not in ("", ".") and os.path.realpath(p) != {folder!r}]
sys.modules.pop({name!r}, None)
import importlib
sys.modules[__name__] = importlib.import_module({name!r})
sys.path[:] = _path
"""
_WATCH = """\
import os, sys
_ROOT, _LOG, _NAMED = {root!r}, {log!r}, {named!r}
_NAMES = dict(open=0, exec=0, **{{"os.listdir": 0, "os.scandir": 0, "os.exec": 0, "os.posix_spawn": 0, "ctypes.dlopen": 0, "subprocess.Popen": 0,
    "os.system": 0, "import": 1, "sqlite3.connect": 0, "sqlite3.enable_load_extension": 1, "socket.connect": 1, "socket.getaddrinfo": 0}})
def _watch(event, args, real=os.path.realpath, join=os.path.join, write=os.write, opened=os.open, close=os.close):
    if event not in _NAMES or len(args) <= _NAMES[event]:
        return
    found = args[_NAMES[event]]
    if event in ("socket.connect", "socket.getaddrinfo") and isinstance(found, (tuple, str)):
        touched = f"{{event}}: {{found!r}}"
    else:
        if isinstance(found, bytes):
            found = os.fsdecode(found)
        found = getattr(found, "co_filename", found)
        found = "." if found is None and event in ("os.listdir", "os.scandir") else found
        if not isinstance(found, (str, os.PathLike)) or _WATCHING:
            return
        if event in ("subprocess.Popen", "os.exec", "ctypes.dlopen") and os.sep not in str(found):
            return  # looked for in folders that lists name, where planted programs and libraries leave their own line
        _WATCHING.append(1)
        try:
            path = real(str(found))
            below = path == _ROOT or path.startswith(_ROOT + os.sep)
            if not below or os.path.basename(path).startswith(_NAMED):
                return
            touched = f"{{event}}: {{path}}"
        except (OSError, ValueError):
            return
        finally:
            _WATCHING.pop()
    log = opened(_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    write(log, (touched + "\\n").encode())
    close(log)
_WATCHING = []
sys.addaudithook(_watch)
"""


@dataclass(frozen=True)
class Traps:
    """The folder, what is beside it and the log."""

    root: Path
    named: tuple[str, ...] = ("digits", "named")
    """How names of files begin that commands name, or write."""
    log: Path = field(init=False)
    folder: Path = field(init=False)
    """Where commands run."""
    watch: Path = field(init=False)
    """Holds the audit hook, which processes that read PYTHONPATH install."""

    def __post_init__(self) -> None:
        for name in ("log", "watch"):
            object.__setattr__(self, name, self.root / name)
        object.__setattr__(self, "folder", self.root / "above" / "here")
        self.folder.mkdir(parents=True)
        self.watch.mkdir()
        above = self.folder.parent
        hook = _WATCH.format(root=str(above.resolve()), log=str(self.log), named=self.named)
        (self.watch / "sitecustomize.py").write_text(hook)
        for place in (above, self.folder):
            self._plant(place)
        for file in (above / "nnbridge.toml", above / "pyproject.toml"):
            file.write_text('[plan]\ndevice = "planted:X"\n[tool.nnbridge]\ndevice = "planted:X"\n')
            file.chmod(0o666)

    def _plant(self, folder: Path) -> None:
        known = {*sys.stdlib_module_names, *packages_distributions(), *OPTIONAL} - {"sys", "__main__"}
        for name in sorted(name for name in known if name.isidentifier()):
            text = _MODULE.format(log=str(self.log), name=name, folder=str(folder.resolve()))
            (folder / f"{name}.py").write_text(text)
        points = "".join(f"[{group}]\nplanted = planted:X\n" for group in GROUPS)
        metadata = "Metadata-Version: 2.1\nName: {0}\nVersion: 1.0\n"
        for kind, file in (("planted-1.0.dist-info", "METADATA"), ("model-1.0.egg-info", "PKG-INFO")):
            (folder / kind).mkdir()
            (folder / kind / file).write_text(metadata.format(kind))
            (folder / kind / "entry_points.txt").write_text(points)
        (folder / "single-1.0.egg-info").write_text(metadata.format("single"))
        for name in ("packed-1.0-py3.egg", "packed.zip"):
            with zipfile.ZipFile(folder / name, "w") as packed:
                packed.writestr("EGG-INFO/PKG-INFO", metadata.format("packed"))
                packed.writestr("EGG-INFO/entry_points.txt", points)
                packed.writestr("packed-1.0.dist-info/METADATA", metadata.format("packed"))
                packed.writestr("packed-1.0.dist-info/entry_points.txt", points)
        (folder / "planted.pth").write_text("import planted\n")
        (folder / "nnbridge.egg-link").write_text(".\n")
        for name in PROGRAMS:
            (folder / name).write_text(f"#!/bin/sh\necho 'ran: program {name}' >> '{self.log}'\nexit 1\n")
            (folder / name).chmod(0o755)

    def environment(self, **changes: str) -> dict[str, str]:
        """A process's environment: the audit hook, and every list of folders with an empty and a relative entry."""
        here = {
            name: f":.:{os.environ.get(name, '')}:"
            for name in ("PATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "COMPILER_PATH")
        }
        found = {**os.environ, **here, "PYTHONPATH": str(self.watch), "PYTHONDONTWRITEBYTECODE": "1"}
        for name in ("NNBRIDGE_CACHE", "XDG_CACHE_HOME"):
            found.pop(name, None)
        return {**found, **changes}

    def run(self, command: Sequence[str], changes: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """A command in the folder."""
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment(**(changes or {})),
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )

    def touched(self) -> list[str]:
        """What was touched since the last look."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return sorted(set(lines))
