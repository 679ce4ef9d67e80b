"""The Vulkan driver that LiteRT's GPU accelerator finds on this machine; where no GPU is, a software driver has the same front
half and computes on the processor."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path

from nnbridge.errors import Reason
from nnbridge.records import dataclass
from nnbridge.trust import planted_library

_VARIABLES = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")
"""Variables of Vulkan's loader that name drivers."""
_BROWSERS = ("/usr/lib/chromium", "/usr/lib64/chromium-browser", "/usr/lib/chromium-browser", "/opt/google/chrome")
"""Folders of browsers, which have a loader and SwiftShader."""
_DRIVERS = ("/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/usr/share/vulkan/icd.d")
_LOADER, _SWIFTSHADER = "libvulkan.so.1", "vk_swiftshader_icd.json"
_RULE = "a Vulkan driver: chromium-common (SwiftShader) or mesa-vulkan-drivers 25 (lavapipe) of the system's packages"


@dataclass(frozen=True)
class VulkanDriver:
    """A loader and a driver for it."""

    name: str
    loader: str = ""
    """Path of Vulkan's loader; empty for the one that the system finds."""
    variables: Mapping[str, str] = field(default_factory=dict)

    def load(self) -> None:
        """Have this process use it; before anything else asks for Vulkan."""
        os.environ.update(self.variables)
        if self.loader:
            # The accelerator asks for the loader by its name, which is found among what is loaded.
            ctypes.CDLL(self.loader, mode=ctypes.RTLD_GLOBAL)


def vulkan_driver() -> VulkanDriver | Reason:
    """The driver that the environment names, else a browser's software driver, else the system's; or what is missing.

    A software driver comes first, since every machine has the same one. Nothing is loaded but the loader.
    """
    if sys.platform != "linux":
        return Reason("Linux: elsewhere nnbridge does not look for drivers", sys.platform, operand="Vulkan driver")
    browser = next((folder for folder in map(Path, _BROWSERS) if (folder / _LOADER).exists()), None)
    loader = "" if _system_has_loader() or browser is None else str(browser / _LOADER)
    if not loader and not _system_has_loader():
        return Reason(_RULE, f"no {_LOADER}", operand="Vulkan driver")
    named = next((os.environ[name] for name in _VARIABLES if os.environ.get(name)), "")
    if named:
        return VulkanDriver(named, loader)
    if browser is not None and (browser / _SWIFTSHADER).exists():
        return VulkanDriver(f"SwiftShader of {browser}", loader, {_VARIABLES[1]: str(browser / _SWIFTSHADER)})
    own = next(_installed(), None)
    if own is None:
        return Reason(_RULE, f"{_LOADER} without a driver", operand="Vulkan driver")
    return VulkanDriver(own, loader)


def _system_has_loader() -> bool:
    if planted_library(_LOADER):
        return False
    try:
        ctypes.CDLL(_LOADER)  # Python's own search runs programs: a linker and a compiler.
    except OSError:
        return False
    return True


def _installed() -> Iterator[str]:
    """The files of drivers that the system has."""
    for folder in _DRIVERS:
        yield from sorted(str(path) for path in Path(folder).glob("*.json"))
