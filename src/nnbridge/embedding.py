"""Shared libraries in front of nnbridge, for programs that know nothing of it: C code, compiled with cffi's embedding mode.

Loaded into a Python process, a library uses that interpreter; loaded into a C program, it starts one.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import site
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from contextlib import redirect_stdout, suppress
from dataclasses import field
from functools import cache
from io import StringIO
from pathlib import Path

from nnbridge import __version__, caches, trust
from nnbridge.errors import InputError, PackageError, Reason, cannot_read
from nnbridge.platforms import require_linux
from nnbridge.records import dataclass
from nnbridge.storage.atomic import atomic_write
from nnbridge.storage.temporary import TemporaryFolder

_MODE = 0o644
_MOST_BYTES = 1 << 26
"""Bytes of a library; they have some hundred thousand."""
_SHOWN = 4000
"""Characters of a compiler's message that are shown, the last ones."""

_LOCK = "nnbridge_start_lock"
"""Below Python 3.12, cffi's start-up code locks itself with a field of PyCapsule_Type that it expects to be 0. In a process
where Python has run for a while it is not, and the first call would deadlock, as PyTorch's does: it gets its own object."""

_SOURCE = f"""
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

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

/* Without empty and relative entries, which stand for the current folder: nothing there is imported that is not named. */
static void nnbridge_clean_path(void) {{
    const char *named = getenv("PYTHONPATH"), *part = named, *end;
    char *clean = named ? malloc(strlen(named) + 1) : NULL, *at = clean;
    if (!clean) return;
    for (; part; part = *end ? end + 1 : NULL) {{
        end = part + strcspn(part, ":");
        if (*part != '/') continue;
        if (at != clean) *at++ = ':';
        memcpy(at, part, end - part);
        at += end - part;
    }}
    *at = 0;
    if (!*clean) unsetenv("PYTHONPATH");
    else if (strcmp(clean, named)) setenv("PYTHONPATH", clean, 1);
    free(clean);
}}

/* A Python that this library starts is the one that compiled it, with its virtual environment: cffi is looked for at once. */
static void nnbridge_name_python(void) {{
    if (Py_IsInitialized()) return;
    nnbridge_clean_path();
    Py_SetProgramName(nnbridge_python);
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
import {module} as embedded
try:
    from {glue} import connect
    connect(embedded)
except Exception as error:
    kind = "" if type(error).__module__ == "nnbridge.errors" else type(error).__name__ + ": "
    print("{library} cannot start: " + kind + str(error), file=sys.stderr, flush=True)
    for name, answer in {refusals!r}.items():
        embedded.ffi.def_extern(name=name)(lambda *_, answer=answer: answer)
"""
"""What the interpreter runs at the first call. If nnbridge cannot start, it prints the reason, and every call fails."""


@dataclass(frozen=True)
class EmbeddedLibrary:
    """A library: its C code, and the functions of it that Python defines."""

    name: str
    """The file's name."""
    kind: str
    """The command that builds it, as ``ndk`` of ``nnbridge build ndk``; what follows a ``_`` names one of several libraries."""
    what: str
    """What it is called in refusals."""
    instead: str
    """What there is where it cannot be built."""
    types: str
    """C types, for C and for Python."""
    inner: Mapping[str, str]
    """Functions that Python defines: name → prototype."""
    exported: str
    """C functions, after the prototypes; each entry from outside calls ``nnbridge_start``, which is 0 where Python runs."""
    glue: str
    """The module whose ``connect``, called with cffi's module, defines the functions."""
    refusals: Mapping[str, int | None]
    """What the functions return where nnbridge cannot start."""
    called_by_python: tuple[str, ...] = field(default=())
    """Prototypes of C functions that Python calls."""

    @property
    def module(self) -> str:
        """The name of cffi's module."""
        return f"_nnbridge_{self.kind}"

    def cached(self) -> Path:
        """The compiled library in the user's cache; compiled once for each Python and version of nnbridge.

        In a folder of this process where the cache is not to be trusted or cannot be written to, which is said once.
        """
        require_linux(self.what, "ELF libraries", self.instead)
        source, start = self._source(), self._start()
        mark = hashlib.sha256(f"{__version__}{sys.version}{sys.prefix}{source}{start}".encode(errors="backslashreplace"))
        name = f"{self.kind}-{sys.version_info.major}.{sys.version_info.minor}-{mark.hexdigest()[:16]}"
        root = caches.user_folder("nnbridge")
        if root is not None:
            with suppress(caches.UnsafeError):  # It is said when the library is stored.
                if caches.read(root / name, self.name, _MOST_BYTES) is not None:
                    return root / name / self.name
        with TemporaryFolder() as work:
            content = self._compiled(Path(work), source, start).read_bytes()
        if root is not None:
            try:
                caches.store(root / name, self.name, content)
            except OSError as error:
                caches.say_once(f"compiled libraries are not cached in {root}: {error.strerror or error}")
            else:
                return root / name / self.name
        folder = Path(_own_folder().name, name)
        caches.store(folder, self.name, content)
        return folder / self.name

    def put(self, folder: str | Path, **others: bytes) -> Path:
        """Put the library into a folder, with ``others`` beside it (name → content). InputError for a folder that cannot be."""
        if not str(folder):
            raise InputError(Reason("a folder's name", "''", operand="FOLDER"))
        target, compiled = Path(folder) / self.name, caches.content(self.cached())
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            write_file(target, compiled)
            for name, content in others.items():
                write_file(target.with_name(name), content)
        except OSError as error:
            raise InputError(Reason("a folder that can be written to", cannot_read(error), operand=str(folder))) from error
        return target

    def _source(self) -> str:
        """The C code between cffi's own."""
        inner = [f"extern {prototype};" for prototype in self.inner.values()]
        program = f"static const wchar_t nnbridge_python[] = {{{', '.join(str(ord(c)) for c in sys.executable)}, 0}};"
        return "\n".join([program, _SOURCE, self.types, *inner, self.exported])

    def _start(self) -> str:
        """The first code that the interpreter runs: it finds the packages of the Python that compiled the library, editable
        installations too."""
        packages = [*dict.fromkeys([*site.getsitepackages(), *(p for p in trust.search_path() if p.endswith("-packages"))])]
        paths = [str(Path(__file__).resolve().parents[1]), *packages]
        names = {"module": self.module, "glue": self.glue, "library": self.name}
        return _START.format(packages=packages, paths=paths, refusals=dict(self.refusals), **names)

    def _compiled(self, work: Path, source: str, start: str) -> Path:
        """The library, compiled from cffi's code. InputError with the compiler's message if it fails."""
        command = f"{self.kind.partition('_')[0]} build"
        try:
            import cffi
        except ImportError as error:
            raise PackageError.needed("cffi", "cffi", error, command) from error
        ffi = cffi.FFI()
        ffi.cdef("\n".join([self.types, *(f"{prototype};" for prototype in self.called_by_python)]))
        ffi.embedding_api("\n".join(f"{prototype};" for prototype in self.inner.values()))
        ffi.set_source(self.module, source)
        ffi.embedding_init_code(start)
        code, target = work / f"{self.module}.c", work / self.name
        with redirect_stdout(StringIO()):  # cffi prints what it does
            ffi.emit_c_code(str(code))
        found = {name: sysconfig.get_config_var(name) or "" for name in ("CC", "LIBDIR", "LIBPL", "LIBS", "SYSLIBS", "LDVERSION")}
        compiler = shlex.split(os.environ.get("CC") or found["CC"] or "cc")
        clean = trust.environment()
        program = shutil.which(compiler[0], path=clean.get("PATH", os.defpath))
        if program is None:
            rule = "a C compiler on the path, or one that the variable CC names"
            raise InputError(Reason(rule, f"no {compiler[0]}", operand=command))
        include = {sysconfig.get_path("include"), sysconfig.get_path("platinclude")}
        ended = subprocess.run(
            [
                *(os.path.abspath(program), *compiler[1:]),
                *("-shared", "-fPIC", "-O2", f"-DPyCapsule_Type={_LOCK}", str(code), "-o", str(target)),
                *(f"-I{path}" for path in sorted(include)),
                *(f"-L{found[name]}" for name in ("LIBDIR", "LIBPL") if found[name]),
                *(f"-lpython{found['LDVERSION']}", *shlex.split(found["LIBS"]), *shlex.split(found["SYSLIBS"])),
                # Python cannot be unloaded, and clients open and close a library several times.
                *("-ldl", "-lpthread", f"-Wl,-soname,{self.name}", "-Wl,-z,nodelete", f"-Wl,-rpath,{found['LIBDIR']}"),
            ],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            cwd=work,
            env=clean,
        )
        if ended.returncode:
            message = (ended.stderr or ended.stdout).strip()[-_SHOWN:] or f"exit status {ended.returncode}"
            raise InputError(Reason("a C compiler that compiles the library", f"\n{message}", operand=command))
        return target


@cache
def _own_folder() -> TemporaryFolder:
    """A folder for this process only, until it ends."""
    return TemporaryFolder()


def write_file(target: Path, content: bytes) -> None:
    """Write a library or what belongs to it, whole or not at all."""
    with atomic_write(target, _MODE, follow_links=False) as file:
        file.write(content)
