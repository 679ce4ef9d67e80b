"""The models and devices of a matrix: folders, patterns, addresses of fsspec; names, patterns, groups of devices."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from glob import glob
from pathlib import Path

from nnbridge import devices as device_list
from nnbridge.caches import folder_fault
from nnbridge.converters import converters
from nnbridge.devices.evidence import Evidence, evidence
from nnbridge.errors import NO_SUCH_FILE, InputError, PackageError, Reason, first_line, pass_shortage
from nnbridge.storage.atomic import atomic_write
from nnbridge.trust import foreign_file

_PATTERN = frozenset("*?[")


def find_models(texts: Sequence[str], cache: Path) -> dict[str, Path]:
    """Name → file of every model that files, folders, patterns and addresses (``s3://bucket/*.tflite``) name.

    Names are the files' own, with as many folders before them as distinguish them. Files at addresses are stored in ``cache``.
    InputError for what names nothing.
    """
    found: dict[Path, None] = {}
    for text in texts:
        listed = _remote(text, cache) if "://" in text else _local(text)
        if not listed:
            there = "://" in text or _PATTERN & set(text) or os.path.exists(text)
            raise InputError(Reason(f"models ({', '.join(_suffixes())})", "none" if there else NO_SUCH_FILE, file=text))
        found.update(dict.fromkeys(listed))
    return _names(list(found))


def _suffixes() -> tuple[str, ...]:
    return tuple(suffix for importer in converters() for suffix in importer.suffixes)


def _local(text: str) -> list[Path]:
    path = Path(text)
    if os.path.isdir(path):
        # Path.rglob ends where a folder of another process vanishes in the meantime.
        files = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
        return sorted(file for file in files if file.suffix.lower() in _suffixes() and os.path.isfile(file))
    if os.path.exists(path) or not _PATTERN & set(text):
        return [path] if os.path.isfile(path) else []
    try:
        return sorted(Path(file) for file in glob(text, recursive=True) if os.path.isfile(file))
    except RecursionError:  # Python's glob goes into itself for each folder of the text.
        return []


def _remote(address: str, cache: Path) -> list[Path]:
    """Files at an address that fsspec knows, stored once each under their address."""
    try:
        import fsspec
    except ImportError as error:
        raise PackageError.needed("fsspec for addresses", "fsspec", error, address) from error
    try:
        system, path = fsspec.core.url_to_fs(address)
        files = system.find(path) if system.isdir(path) else system.glob(path)
        found = []
        for file in sorted(files):
            if Path(file).suffix.lower() not in _suffixes():
                continue
            mark = hashlib.sha256(f"{address}\0{file}\0{system.checksum(file)}".encode()).hexdigest()[:16]
            target = cache / mark / Path(file).name
            _create_own(cache, target.parent)
            if not target.is_file() or foreign_file(target):
                with atomic_write(target, follow_links=False) as out:
                    out.write(system.cat_file(file))
            found.append(target)
    except InputError:
        raise
    except Exception as error:  # Each file system has its own.
        pass_shortage(error)
        raise InputError(Reason("an address that fsspec can read", first_line(error), operand=address)) from error
    return found


def _create_own(*folders: Path) -> None:
    """Create folders of copies. InputError for one in which others decide what is there."""
    for folder in folders:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fault = folder_fault(folder)
        if fault:
            raise InputError(Reason("a folder of copies to which only this user writes", fault, operand=str(folder)))


def _names(paths: Sequence[Path]) -> dict[str, Path]:
    """Each file under the shortest end of its path that no other has."""
    parts = {path: path.resolve().parts for path in paths}

    def name(path: Path) -> str:
        for count in range(1, len(parts[path]) + 1):
            end = parts[path][-count:]
            if sum(other[-count:] == end for other in parts.values()) == 1:
                return "/".join(end)
        return str(path)

    return {name(path): path for path in paths}


def find_devices(texts: Iterable[str]) -> list[str]:
    """Names of devices in order, each once: ``profiles`` are all shipped ones, ``samples`` AOSP's drivers, ``vsi-*`` a pattern,
    ``A+B`` two that are offered a model together. InputError for what names none."""
    groups: Mapping[str, list[str]] = {
        "profiles": [device.name for device in (*device_list.shipped(), *device_list.shipped_at_source())],
        "samples": [device.name for device in device_list.drivers()],
    }
    found: dict[str, None] = {}
    for text in (part.strip() for listed in texts for part in listed.split(",")):
        names = groups.get(text) or _matching(text, [name for group in groups.values() for name in group])
        for name in names:
            for part in name.split("+"):
                device_list.device(part)
        found.update(dict.fromkeys(names))
    return list(found)


def evidence_of(devices: Iterable[str]) -> list[Evidence]:
    """The evidence of each device, of each part of a pair, under the name that was asked for."""
    parts = dict.fromkeys(part for name in devices for part in name.split("+"))
    return [replace(evidence(device_list.device(part)), device=part) for part in parts]


def _matching(text: str, known: Sequence[str]) -> list[str]:
    if not _PATTERN & set(text) or ".toml" in text:
        return [text]
    names = [name for name in known if fnmatchcase(name, text)]
    if not names:
        raise InputError(Reason("a pattern that names devices of `nnbridge devices --profiles`", text, operand="devices"))
    return names
