"""Findings of nnbridge on this machine: the tier of kernels, the processor, references, the extras."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from nnbridge import __version__
from nnbridge.compare.references import REFERENCE_RUNTIMES
from nnbridge.cpu import compiled
from nnbridge.cpu.settings import Tier, current
from nnbridge.platforms import available_cores
from nnbridge.report.terminal import Table, counted

EXTRAS = {
    "fast": "llvmlite",
    "onnx": "onnx",
    "litert": "ai-edge-litert",
    "onnxruntime": "onnxruntime",
    "ndk": "cffi",
    "images": "pillow",
    "torch": "torch",
}
"""Extra → the package that it adds."""

_CORE = ("numpy", "flatbuffers", "click", "rich")


def doctor_as_dict() -> dict[str, Any]:
    """Tier, instruction set, cache, versions, what references lack; InputError for an unknown word in ``NNBRIDGE_KERNELS``."""
    settings = current()
    found = compiled.status()
    return {
        "nnbridge": __version__,
        "kernels": settings.kernels,
        "tier": settings.tier.name.lower(),
        "why_not_compiled": _why_not(settings.tier, found),
        "compiled": asdict(found),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "cores": available_cores(),
        "packages": {name: installed_version(name) for name in _CORE},
        "references": {name: str(runtime.absent() or "") for name, runtime in REFERENCE_RUNTIMES.items()},
        "extras": {extra: {"package": package, "version": installed_version(package)} for extra, package in EXTRAS.items()},
    }


def _why_not(tier: Tier, found: compiled.Status) -> str:
    if tier is Tier.COMPILED:
        return ""
    return found.reason or "NNBRIDGE_KERNELS=reference asks for the reference kernels"


def installed_version(package: str) -> str | None:
    """A package's version, without importing it; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def doctor_tables(found: Mapping[str, Any]) -> list[Table | str]:
    """Tables of what :func:`doctor_as_dict` found."""
    tier, why = found["compiled"], found["why_not_compiled"]
    rows = [
        ("nnbridge", f"{found['nnbridge']}, Python {found['python']}, {found['machine']}, {counted(found['cores'], 'core')}"),
        ("kernels", f"{found['tier']} ({found['kernels']})" + (f": {why}" if why else "")),
    ]
    if tier["available"]:
        rows.append(("instruction set", f"{tier['instructions']} (this processor runs {', '.join(tier['forms'])})"))
        held = f"{counted(tier['cached'], 'kernel')}, {tier['cached_bytes'] / 2**20:.1f} MiB"
        fault = f"; nothing is stored: {tier['cache_fault']}" if tier["cache_fault"] else ""
        rows.append(("cache of kernels", f"{tier['cache'] or 'in memory only'}: {held}{fault}"))
    packages = [(name, number or "not installed", "core") for name, number in found["packages"].items()]
    packages += [
        (extra["package"], extra["version"] or f"not installed (pip install '.[{name}]' in a clone)", name)
        for name, extra in found["extras"].items()
    ]
    references = [(name, missing or "ready") for name, missing in found["references"].items()]
    tables = [Table("", ("what", "found"), rows), Table("", ("reference", "found"), references)]
    return [*tables, Table("", ("package", "version", "extra"), packages)]
