"""A folder full of traps: whatever of it is imported, run, read or listed without being named leaves a line in a log."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import packages_distributions
from pathlib import Path

_OPTIONAL = """
    sitecustomize usercustomize _suggestions _distributor_init_local threadpoolctl olefile defusedxml pkg_resources tomli
    tflite_runtime tensorflow torch pandas cupy bottleneck lz4 snappy zstandard cramjam blosc uvloop winloop ujson orjson
    simplejson colorama win32api jnius java com apport apport_python_hook numpy_distutils scipy keyring gi IPython ipywidgets
    sparse bokeh h5py tables coloredlogs mpmath sympy xdg rlcompleter2 planted nnbridge_tflite nnbridge_onnx
"""
"""Names that Python's library or packages only try to import, and one that metadata names."""
_GROUPS = """
    nnbridge.converters nnbridge.devices nnbridge.host_extensions console_scripts fsspec.specs distributed.preloads
    dask.array.backends dask.sizeof onnxruntime.execution_providers onnxruntime.ep cffi pillow.plugins rich click pytest11
    distutils.commands llvmlite tblib importlib_metadata
"""
LIBRARIES = """
    libvulkan.so.1 libOpenCL.so libOpenCL.so.1 libLiteRt.so libLiteRtGpuAccelerator.so libonnxruntime.so libonnxruntime.so.1
    libtensorflowlite_c.so libm.so libhip.so
"""
"""Libraries that programs look for by name, in the current folder and beside the model. nnbridge's own are opened by name in
a folder of the cache, whose descriptor an audit hook does not see."""
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
_LIBRARY = """
#include <stdio.h>
__attribute__((constructor)) static void ran(void) {
  FILE *log = fopen("%s", "a");
  if (log) { fputs("ran: library\\n", log); fclose(log); }
}
"""
_WATCH = """\
import os, sys
_ROOT, _LOG, _NAMED = {root!r}, {log!r}, {named!r}
_WHERE = {{
    "open": 0, "exec": 0, "import": 1, "os.listdir": 0, "os.scandir": 0, "os.exec": 0, "os.posix_spawn": 0, "os.system": 0,
    "subprocess.Popen": 0, "ctypes.dlopen": 0, "sqlite3.connect": 0, "socket.connect": 1, "socket.getaddrinfo": 0,
}}
_WATCHING = []
def _touched(event, found, real=os.path.realpath, exists=os.path.lexists, name=os.path.basename, separator=os.sep):
    if event.startswith("socket."):  # local sockets of commands are named, addresses never
        return f"{{event}}: {{found!r}}" if isinstance(found, tuple) or event == "socket.getaddrinfo" else None
    found = "." if found is None and event in ("os.listdir", "os.scandir") else getattr(found, "co_filename", found)
    found = os.fsdecode(found) if isinstance(found, bytes) else found
    if not isinstance(found, (str, os.PathLike)) or str(found).startswith("<"):
        return None
    if event in ("subprocess.Popen", "os.exec", "ctypes.dlopen") and separator not in str(found):
        return None  # looked for in folders that lists name, where planted programs leave their own line
    if event in ("os.listdir", "os.scandir"):
        caller = sys._getframe(2)
        while caller is not None:  # who writes a named file looks for its own temporary files beside it
            if caller.f_code.co_filename.endswith("nnbridge/storage/atomic.py"):
                return None
            caller = caller.f_back
    path = real(str(found))
    below = path == _ROOT or path.startswith(_ROOT + separator)
    return f"{{event}}: {{path}}" if below and exists(path) and not name(path).startswith(_NAMED) else None
def _watch(event, args, write=os.write, opened=os.open, close=os.close):
    if event not in _WHERE or len(args) <= _WHERE[event] or _WATCHING:
        return
    _WATCHING.append(1)
    try:
        touched = _touched(event, args[_WHERE[event]])
        if touched:
            log = opened(_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            write(log, (touched + "\\n").encode())
            close(log)
    except (OSError, ValueError):
        pass
    finally:
        _WATCHING.pop()
sys.addaudithook(_watch)
"""


@dataclass(frozen=True)
class Traps:
    """The folder, what is beside it and the log."""

    root: Path
    named: tuple[str, ...] = ("digits", "named", "pyproject.toml")
    """How names of files begin that commands name, write, or read to see whether they say anything of nnbridge."""
    log: Path = field(init=False)
    folder: Path = field(init=False)
    """Where commands run."""
    watch: Path = field(init=False)
    """Holds the audit hook, which processes that read PYTHONPATH install."""
    temporary: Path = field(init=False)
    """The folder of temporary files, where nothing may stay."""

    def __post_init__(self) -> None:
        for name in ("log", "watch", "temporary"):
            object.__setattr__(self, name, self.root / name)
        object.__setattr__(self, "folder", self.root / "above" / "here")
        self.folder.mkdir(parents=True)
        self.watch.mkdir()
        self.temporary.mkdir()
        above = self.folder.parent
        hook = _WATCH.format(root=str(above.resolve()), log=str(self.log), named=self.named)
        (self.watch / "sitecustomize.py").write_text(hook)
        for place in (above, self.folder):
            self._plant(place)
        for file in (above / "nnbridge.toml", above / "pyproject.toml"):
            file.write_text('[plan]\ndevice = "planted:X"\n[tool.nnbridge]\ndevice = "planted:X"\n')
            file.chmod(0o666)

    def _plant(self, folder: Path) -> None:
        known = {*sys.stdlib_module_names, *packages_distributions(), *_OPTIONAL.split()} - {"sys", "__main__"}
        for name in sorted(name for name in known if name.isidentifier()):
            text = _MODULE.format(log=str(self.log), name=name, folder=str(folder.resolve()))
            (folder / f"{name}.py").write_text(text)
        points = "".join(f"[{group}]\nplanted = planted:X\n" for group in _GROUPS.split())
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
        if shutil.which("gcc"):
            # Where LiteRT's MediaTek plug-in looks for the maker's libraries, below the current folder.
            library = folder / "external" / "neuro_pilot" / "v9_latest" / "host" / "lib" / "libneuronusdk_adapter.so"
            library.parent.mkdir(parents=True)
            code = _LIBRARY % str(self.log)
            subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)], input=code.encode(), check=True)
            for other in ("libneuron_adapter.so", "libneuron_adapter_mgvi.so", "libneuron_sys_util.mtk.so"):
                shutil.copy(library, library.with_name(other))
            for other in LIBRARIES.split():
                shutil.copy(library, folder / other)
        for name in PROGRAMS:
            (folder / name).write_text(f"#!/bin/sh\necho 'ran: program {name}' >> '{self.log}'\nexit 1\n")
            (folder / name).chmod(0o755)

    def environment(self, **changes: str) -> dict[str, str]:
        """A process's environment: the audit hook, and every list of folders with an empty and a relative entry."""
        here = {
            name: f":.:{os.environ.get(name, '')}:"
            for name in ("PATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "COMPILER_PATH")
        }
        folders = {"PYTHONPATH": str(self.watch), "TMPDIR": str(self.temporary)}
        found = {**os.environ, **here, **folders, "PYTHONDONTWRITEBYTECODE": "1"}
        # Tests of this process decline ONNX Runtime's reports: commands have to do it themselves.
        for name in ("NNBRIDGE_CACHE", "XDG_CACHE_HOME", "ORT_DISABLE_TELEMETRY"):
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
        """The files touched since the last call."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return sorted(set(lines))
