"""The policy of trust (docs/security.md): where code is looked for, which files are obeyed, what child processes start with.

Nothing of the current folder is run or imported but a module that is named (``--device module:NAME``). Python adds that folder
to its path by itself, at several places: this module takes it away again and finds named modules without it. It is imported
before anything else, so that it imports nothing itself that could be found there.
"""

from __future__ import annotations

import os
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from pathlib import Path
    from types import ModuleType
    from typing import Any

_LISTS = (
    "PATH", "PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONPYCACHEPREFIX", "HOME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH",
    "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX", "CPATH", "C_INCLUDE_PATH",
)  # fmt: skip
"""Variables that name folders of programs, modules, their bytecode, libraries and headers, most of them several; an empty entry
is the current folder."""

_DECLINED = {"ORT_DISABLE_TELEMETRY": "1"}
"""Variables that keep libraries from reporting to their makers. ONNX Runtime's official builds (1.32 on Linux
too) keep a number of this machine in ``~/.cache/Microsoft`` and send events; see Privacy.md of the package."""

FOLDER = "NNBRIDGE_FOLDER"
"""Variable with the current folder of who started this process, for one that runs in another: named files are there."""


def named_path(text: str) -> str:
    """The path of a file that is named from the current folder of who started this process."""
    return os.path.join(os.environ.get(FOLDER, ""), text)


def environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a process that nnbridge starts: no list of folders has an empty or relative entry, and nothing is
    reported to makers of libraries, unless the user has set the variable for that."""
    found = {**_DECLINED, **os.environ, **(changes or {})}
    for name in _LISTS:
        parts = found.get(name, "").split(os.pathsep)
        absolute = [part for part in parts if os.path.isabs(part)]
        if absolute:
            found[name] = os.pathsep.join(absolute)
        else:  # An empty list is the current folder again, and a variable that is missing is not.
            found.pop(name, None)
    return found


def planted_library(name: str) -> bool:
    """True where the system's loader would take a library of this name from an empty or relative entry of LD_LIBRARY_PATH.

    It has read the variable when this process started: nothing takes such an entry away from it any more.
    """
    entries = os.environ.get("LD_LIBRARY_PATH", "/").split(os.pathsep)
    return any(os.path.exists(os.path.join(entry, name)) for entry in entries if not os.path.isabs(entry))


def search_path(path: Sequence[str] | None = None) -> list[str]:
    """Python's path without what no one has named: see :func:`_unnamed_folders`."""
    entries = list(sys.path if path is None else path)
    unnamed = _unnamed_folders()
    own = (os.path.dirname(os.__file__), f"python{sys.version_info.major}{sys.version_info.minor}.zip")
    before = next((k for k, entry in enumerate(entries) if entry == own[0] or os.path.basename(entry) == own[1]), len(entries))
    user = getattr(sys.modules.get("site"), "USER_SITE", None) or ""  # relative where HOME or PYTHONUSERBASE is
    packages = _real(user) if user and not os.path.isabs(user) else ""
    return [
        entry
        for k, entry in enumerate(entries)
        if os.path.isabs(entry) and _real(entry) != packages and not (k < before and _real(entry) in unnamed)
    ]


def _unnamed_folders() -> set[str]:
    """The current folder and relative entries of PYTHONPATH, which Python puts in front of its own library as absolute paths.

    What PYTHONPATH has as an absolute path is named. Entries after Python's own library are those of installed packages.
    """
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    try:
        found = {os.getcwd(), *(os.path.abspath(entry) for entry in entries if not os.path.isabs(entry))}
    except OSError:  # The current folder was removed.
        return set()
    return {_real(entry) for entry in found} - {_real(entry) for entry in entries if os.path.isabs(entry)}


def _real(path: str) -> str:
    return os.path.realpath(path)


def clean_path() -> None:
    """Take the current folder away from the paths of modules and programs: in processes of nnbridge's own, as early as possible.

    Python's library and packages start programs too, such as ``uname``.
    """
    sys.path[:] = search_path()
    if sys.pycache_prefix and not os.path.isabs(sys.pycache_prefix):
        sys.pycache_prefix = None  # Bytecode of the current folder would be run in place of what is installed.
    clean = environment().get("PATH")
    if clean is None:
        os.environ.pop("PATH", None)
    else:
        os.environ["PATH"] = clean
    decline_reports()


def decline_reports() -> None:
    """Set the variables that keep libraries from reporting to their makers, which they read when they are imported."""
    for name, value in _DECLINED.items():
        os.environ.setdefault(name, value)


def clean_path_of_program() -> None:
    """:func:`clean_path` if this process is ``nnbridge`` or ``python -m nnbridge``, and not a program that imports nnbridge."""
    typed = getattr(sys, "argv", [])
    if typed[:1] == ["-m"]:  # Python looks for the module; its name is where ``-m`` is among what was typed.
        module = sys.orig_argv[-len(typed)].removeprefix("-m")
        is_own = module.partition(".")[0] == "nnbridge"
    else:
        is_own = os.path.basename((typed or [""])[0]) in ("nnbridge", "nnbridge.exe")
    if is_own:
        clean_path()


class _CurrentFolder:
    """Finds modules in the current folder, as the last of Python's finders.

    A finder, and not an entry of the path: whoever looks for installed packages in the meantime does not find them there.
    """

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        from importlib.machinery import PathFinder

        try:
            return PathFinder.find_spec(name, [named_path("") or os.getcwd()], target) if path is None else None
        except OSError:  # The current folder was removed.
            return None


def import_named(name: str) -> ModuleType:
    """Import a module that the user has named: from wherever Python finds modules, else from the current folder.

    The current folder is searched during this import only, so that what the module imports later has to be installed.
    """
    from importlib import import_module

    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if not error.name or not f"{name}.".startswith(f"{error.name}."):
            raise  # Another module is missing.
    finder: Any = _CurrentFolder()
    sys.meta_path.append(finder)
    try:
        return import_module(name)
    finally:
        sys.meta_path.remove(finder)


def python_command(module: str, *arguments: str) -> list[str]:
    """The command of a process that calls ``main`` of a module, which finds modules where this one does.

    Only ``python -m`` and ``-c`` put the current folder first, and run any file there that is named like a standard module.
    Before Python 3.11, which has ``-P`` against that, nothing is imported either before the path is set.
    """
    code = f"import sys; sys.path[:] = {search_path()!a}; from {module} import main; main()"
    return [sys.executable, *(["-P"] if sys.version_info >= (3, 11) else []), "-c", code, *arguments]


def this_user() -> int | None:
    """The user's number; None where files have no such owner, as on Windows."""
    return os.geteuid() if hasattr(os, "geteuid") else None


def foreign(status: os.stat_result) -> str:
    """The reason why a file or folder is not this user's: another owner than this user or root, or others may write; empty if
    it is."""
    user = this_user()
    if user is None:
        return ""
    if status.st_uid not in (user, 0):
        return f"user {status.st_uid} owns it"
    if stat.S_ISLNK(status.st_mode):
        return ""  # No one writes to links.
    return "its group or others may write to it" if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) else ""


def foreign_file(path: Path) -> str:
    """The reason why a file is not this user's: a link, another owner, or others may write to it or its folder; empty if it
    is."""
    try:
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            return "it is a link"
        folder = foreign(path.parent.stat())
    except OSError as error:
        return error.strerror or str(error)
    return foreign(status) or (folder and f"its folder: {folder}")


def foreign_way(folder: Path) -> str:
    """The reason why others decide on a folder's path, with the part of the path where they do; empty if no one else does.

    They do by a link of theirs, and where they may replace what is in a folder: all may write to it, and no sticky bit, as
    /tmp has it, stops them.
    """
    user = this_user()
    if user is None:
        return ""
    ways = (folder.absolute(), folder.resolve())
    for above in dict.fromkeys(above for way in ways for above in reversed(way.parents)):
        try:
            status = above.lstat()
        except FileNotFoundError:  # It will be created.
            continue
        if stat.S_ISLNK(status.st_mode):
            if status.st_uid not in (user, 0):
                return f"{above}: a link of user {status.st_uid}"
        elif status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            return f"{above}: others may write to it"
    return ""
