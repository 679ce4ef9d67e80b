"""libneuralnetworks.so: NNAPI's C interface in front of :mod:`nnbridge.ndk`, for clients that know nothing of nnbridge.

Made with cffi's embedding mode: loaded into a Python process it uses that interpreter, loaded into a C program it starts one.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import site
import sys
import sysconfig
import tempfile
from functools import cache
from pathlib import Path

from nnbridge import __version__
from nnbridge.clib import header
from nnbridge.clib.signatures import SIGNATURES
from nnbridge.errors import InputError, Reason

LIBRARY = "libneuralnetworks.so"
HEADER = "NeuralNetworks.h"
VARIABLES = {
    "NNBRIDGE_DEVICES": "names of the devices that clients see, joined by commas; all installed ones without it",
    "NNBRIDGE_CPU_ONLY": "1: the CPU is the only device",
    "NNBRIDGE_PARTITION": "as Android's debug.nn.partition; 0: no, 1: with fallback to the CPU (the default), 2: without",
    "NNBRIDGE_LOG": "info: where each operation of a compilation goes; debug: why a call was refused as well (standard error)",
    "NNBRIDGE_TRACE": "a file that every call is written to; finished models are saved beside it",
}
"""Environment variables that a client's process may have."""

_INCLUDES = ("#include <stdbool.h>", "#include <stdint.h>", "#include <stddef.h>")

_LOCK = "nnbridge_start_lock"
"""Below Python 3.12, cffi's start-up code locks itself with a field of PyCapsule_Type that it expects to be 0. In a process
where Python has run for a while it is not, and the first call would wait for ever, as PyTorch's does: it gets its own object."""

_START = """
import site, sys
for path in {packages!r}:
    site.addsitedir(path)
sys.path[:0] = [p for p in {paths!r} if p not in sys.path]
if "" not in sys.path:
    sys.path.append("")
from _nnbridge_ndk import ffi
try:
    from nnbridge.clib.glue import connect
    connect(ffi)
except Exception as error:
    kind = "" if type(error).__module__ == "nnbridge.errors" else type(error).__name__ + ": "
    print("libneuralnetworks.so cannot start: " + kind + str(error), file=sys.stderr, flush=True)
    for name, answer in {refusals!r}.items():
        ffi.def_extern(name=name)(lambda *_, answer=answer: answer)
"""
"""What the interpreter runs at the first call. Where nnbridge cannot start, it says why, and every call fails from then on."""


def build(folder: Path) -> Path:
    """Put the library and its header into a folder; compiled once for each Python and version of nnbridge."""
    made = _cached()
    target = folder / LIBRARY
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _copy(made, target)
        _write(folder / HEADER, header.header())
    except OSError as error:
        raise InputError(Reason("a folder that can be written to", error.strerror or str(error), operand=str(folder))) from error
    return target


@cache
def preload() -> Path:
    """Load the library for clients in this process, which find it by its name from then on."""
    made = _cached()
    ctypes.CDLL(str(made), mode=ctypes.RTLD_GLOBAL)
    return made


def _cached() -> Path:
    """The compiled library in the user's cache."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    source = _source() + header.prototypes() + _start()
    mark = hashlib.sha256(f"{__version__}{sys.version}{sys.prefix}{source}".encode()).hexdigest()[:16]
    target = root / "nnbridge" / f"ndk-{sys.version_info.major}.{sys.version_info.minor}-{mark}" / LIBRARY
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as work:
            _copy(_compiled(Path(work)), target)
    return target


def _source() -> str:
    """The C code before cffi's own."""
    return "\n".join([*_INCLUDES, f"PyTypeObject {_LOCK};", header.opaque_types(), header.STRUCTURES])


def _start() -> str:
    """What the interpreter runs first: it finds what the Python that compiled the library has, editable installations too."""
    packages = [*dict.fromkeys([*site.getsitepackages(), *(p for p in sys.path if p.endswith("-packages"))])]
    refusals = {signature.name: signature.failed for signature in SIGNATURES}
    return _START.format(packages=packages, paths=[str(Path(__file__).resolve().parents[2]), *packages], refusals=refusals)


def _compiled(work: Path) -> Path:
    try:
        import cffi
    except ImportError as error:
        raise InputError(Reason("cffi (pip install cffi setuptools)", str(error), operand="ndk build")) from error
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None and shutil.which("cc") is None:
        raise InputError(Reason("a C compiler", f"no {compiler} on the path", operand="ndk build"))
    ffi = cffi.FFI()
    ffi.cdef(f"{header.opaque_types()}\n{header.STRUCTURES}")
    ffi.embedding_api(header.prototypes())
    folder = sysconfig.get_config_var("LIBDIR")
    ffi.set_source(
        "_nnbridge_ndk",
        _source(),
        define_macros=[("PyCapsule_Type", _LOCK)],
        extra_link_args=[f"-Wl,-soname,{LIBRARY}", f"-Wl,-rpath,{folder}"],
    )
    ffi.embedding_init_code(_start())
    try:
        made: str = ffi.compile(tmpdir=str(work), target=LIBRARY, verbose=False)
    except Exception as error:
        # cffi and setuptools raise errors of many kinds for what the compiler says.
        raise InputError(Reason("a C compiler that compiles the library", str(error), operand="ndk build")) from error
    return Path(made)


def _copy(source: Path, target: Path) -> None:
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copyfile(source, temporary)
    os.replace(temporary, target)


def _write(target: Path, text: str) -> None:
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    temporary.write_text(text)
    os.replace(temporary, target)


def environment(folder: Path) -> dict[str, str]:
    """What a client's process needs: where the library is, and the variables that nnbridge reads with their values now."""
    if not (folder / LIBRARY).is_file():
        raise InputError(Reason(f"a folder with {LIBRARY} (nnbridge ndk build)", "none", operand=str(folder)))
    path = os.environ.get("LD_LIBRARY_PATH", "")
    found = {"LD_LIBRARY_PATH": f"{folder.resolve()}{os.pathsep + path if path else ''}"}
    found.update({name: os.environ[name] for name in VARIABLES if name in os.environ})
    return found
