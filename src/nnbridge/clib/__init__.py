"""libneuralnetworks.so: NNAPI's C interface in front of :mod:`nnbridge.ndk`, for clients that know nothing of nnbridge.

Compiled with cffi's embedding mode: loaded into a Python process it uses that interpreter, loaded into a C program it starts one.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import shutil
import site
import subprocess
import sys
import sysconfig
import tempfile
from functools import cache
from pathlib import Path

from nnbridge import __version__
from nnbridge.clib import header
from nnbridge.clib.signatures import SIGNATURES
from nnbridge.errors import InputError, Reason
from nnbridge.platforms import require_linux
from nnbridge.storage.atomic import atomic_write

LIBRARY = "libneuralnetworks.so"
HEADER = "NeuralNetworks.h"
_MODE = 0o644
_SHOWN = 4000
"""Characters of a compiler's message that are shown, the last ones."""
VARIABLES = {
    "NNBRIDGE_DEVICES": "names of the devices that clients see, joined by commas; all installed ones without it",
    "NNBRIDGE_CPU_ONLY": "1: the CPU is the only device",
    "NNBRIDGE_PARTITION": "as Android's debug.nn.partition; 0: no, 1: with fallback to the CPU (the default), 2: without",
    "NNBRIDGE_LOG": "info: where each operation of a compilation goes; debug: why a call was refused as well (standard error)",
    "NNBRIDGE_TRACE": "a file that every call is written to; finished models are saved beside it",
}
"""Environment variables that a client's process may have."""

_LOCK = "nnbridge_start_lock"
"""Below Python 3.12, cffi's start-up code locks itself with a field of PyCapsule_Type that it expects to be 0. In a process
where Python has run for a while it is not, and the first call would wait for ever, as PyTorch's does: it gets its own object."""

_SOURCE = f"""
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

PyTypeObject {_LOCK};

/* Python's own forks prepare themselves. In any other, this thread carries Python's lock over into the child, where a thread
   that held it would not exist. */
static __thread bool nnbridge_prepared;
static __thread PyGILState_STATE nnbridge_state;

static void nnbridge_before_fork(void) {{
    nnbridge_prepared = Py_IsInitialized() && !PyGILState_Check();
    if (!nnbridge_prepared) return;
    nnbridge_state = PyGILState_Ensure();
    PyOS_BeforeFork();
}}

static void nnbridge_after_fork_in_parent(void) {{
    if (!nnbridge_prepared) return;
    PyOS_AfterFork_Parent();
    PyGILState_Release(nnbridge_state);
}}

static void nnbridge_after_fork_in_child(void) {{
    if (!nnbridge_prepared) return;
    PyOS_AfterFork_Child();
    PyGILState_Release(nnbridge_state);
}}

/* A Python that this library starts is the one that compiled it, with its virtual environment: cffi is looked for at once. */
static void nnbridge_name_python(void) {{
    if (!Py_IsInitialized()) Py_SetProgramName(nnbridge_python);
}}

static int nnbridge_start(void) {{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, nnbridge_name_python);
    return cffi_start_python();
}}

__attribute__((constructor)) static void nnbridge_loaded(void) {{
    /* Extension modules look for Python's symbols in the global scope, where they are not if this was opened with RTLD_LOCAL. */
    Dl_info python;
    if (dladdr((void*)&Py_IsInitialized, &python) && python.dli_fname)
        dlopen(python.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
    pthread_atfork(nnbridge_before_fork, nnbridge_after_fork_in_parent, nnbridge_after_fork_in_child);
}}
"""

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
"""What the interpreter runs at the first call. If nnbridge cannot start, it prints the reason, and every call fails."""


def build(folder: str | Path) -> Path:
    """Put the library and its header into a folder; compiled once for each Python and version of nnbridge.

    InputError for a folder without a name, and for one with a NeuralNetworks.h that is not nnbridge's.
    """
    if not str(folder):
        raise InputError(Reason("a folder's name", "''", operand="FOLDER"))
    target, declared = Path(folder) / LIBRARY, Path(folder) / HEADER
    if declared.exists() and header.GUARD.encode() not in declared.read_bytes():
        raise InputError(Reason(f"a folder without a {HEADER} of another origin", "one", operand=str(folder)))
    compiled = _cached()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _write(target, compiled.read_bytes())
        _write(declared, header.header().encode())
    except OSError as error:
        raise InputError(Reason("a folder that can be written to", error.strerror or str(error), operand=str(folder))) from error
    return target


@cache
def preload() -> Path:
    """Load the library for clients in this process, which find it by its name from then on."""
    compiled = _cached()
    ctypes.CDLL(str(compiled), mode=ctypes.RTLD_GLOBAL)
    return compiled


def _cached() -> Path:
    """The compiled library in the user's cache."""
    require_linux("the C library", "ELF libraries", "nnbridge.ndk has the same functions in Python")
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    source, start = _source(), _start()
    mark = hashlib.sha256(f"{__version__}{sys.version}{sys.prefix}{source}{start}".encode(errors="backslashreplace"))
    name = f"ndk-{sys.version_info.major}.{sys.version_info.minor}-{mark.hexdigest()[:16]}"
    target = root / "nnbridge" / name / LIBRARY
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as work:
            _write(target, _compiled(Path(work), source, start).read_bytes())
    return target


def _source() -> str:
    """The C code between cffi's own."""
    inner = [f"extern {signature.prototype(signature.inner)};" for signature in SIGNATURES]
    program = f"static const wchar_t nnbridge_python[] = {{{', '.join(str(ord(c)) for c in sys.executable)}, 0}};"
    return "\n".join([program, _SOURCE, _types(), *inner, *(signature.definition for signature in SIGNATURES)])


def _types() -> str:
    return f"{header.opaque_types()}\n{header.STRUCTURES}"


def _start() -> str:
    """What the interpreter runs first: it finds what the Python that compiled the library has, editable installations too."""
    packages = [*dict.fromkeys([*site.getsitepackages(), *(p for p in sys.path if p.endswith("-packages"))])]
    refusals = {signature.inner: signature.failed for signature in SIGNATURES}
    paths = [str(Path(__file__).resolve().parents[2]), *packages]
    return _START.format(packages=packages, paths=paths, refusals=refusals)


def _compiled(work: Path, source: str, start: str) -> Path:
    """The library, compiled from cffi's code. InputError with the compiler's message if it fails."""
    try:
        import cffi
    except ImportError as error:
        raise InputError(Reason("cffi (pip install cffi)", str(error), operand="ndk build")) from error
    ffi = cffi.FFI()
    ffi.cdef(_types())
    ffi.embedding_api("\n".join(f"{signature.prototype(signature.inner)};" for signature in SIGNATURES))
    ffi.set_source("_nnbridge_ndk", source)
    ffi.embedding_init_code(start)
    code, target = work / "_nnbridge_ndk.c", work / LIBRARY
    ffi.emit_c_code(str(code))
    found = {name: sysconfig.get_config_var(name) or "" for name in ("CC", "LIBDIR", "LIBPL", "LIBS", "SYSLIBS", "LDVERSION")}
    compiler = shlex.split(os.environ.get("CC") or found["CC"] or "cc")
    if shutil.which(compiler[0]) is None:
        raise InputError(Reason("a C compiler", f"no {compiler[0]} on the path", operand="ndk build"))
    include = {sysconfig.get_path("include"), sysconfig.get_path("platinclude")}
    ended = subprocess.run(
        [
            *compiler,
            *("-shared", "-fPIC", "-O2", f"-DPyCapsule_Type={_LOCK}", str(code), "-o", str(target)),
            *(f"-I{path}" for path in sorted(include)),
            *(f"-L{found[name]}" for name in ("LIBDIR", "LIBPL") if found[name]),
            *(f"-lpython{found['LDVERSION']}", *shlex.split(found["LIBS"]), *shlex.split(found["SYSLIBS"]), "-ldl", "-lpthread"),
            *(f"-Wl,-soname,{LIBRARY}", f"-Wl,-rpath,{found['LIBDIR']}"),
        ],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if ended.returncode:
        message = (ended.stderr or ended.stdout).strip()[-_SHOWN:] or f"exit status {ended.returncode}"
        raise InputError(Reason("a C compiler that compiles the library", f"\n{message}", operand="ndk build"))
    return target


def _write(target: Path, content: bytes) -> None:
    with atomic_write(target, _MODE, follow_links=False) as file:
        file.write(content)


def environment(folder: Path) -> dict[str, str]:
    """What a client's process needs: where the library is, and the variables that nnbridge reads with their values now."""
    if not (folder / LIBRARY).is_file():
        raise InputError(Reason(f"a folder with {LIBRARY} (nnbridge ndk build)", "none", operand=str(folder)))
    path = os.environ.get("LD_LIBRARY_PATH", "")
    found = {"LD_LIBRARY_PATH": f"{folder.resolve()}{os.pathsep + path if path else ''}"}
    found.update({name: os.environ[name] for name in VARIABLES if name in os.environ})
    return found
