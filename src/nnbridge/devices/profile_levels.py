"""Profiles of any level: drivers that look at NNAPI's operations, and devices that look at a file's operators."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

from nnbridge import toml
from nnbridge.devices.profile_file import MAX_BYTES, SHIPPED, SUFFIX, load_profiles
from nnbridge.devices.profiles import ProfileDevice
from nnbridge.devices.source_profile_file import LEVELS, source_profiles
from nnbridge.devices.source_profiles import SourceProfile


def load_any(path: Path, checked: bool = False) -> tuple[ProfileDevice | SourceProfile, ...]:
    """The devices of a file, all of one level; InputError names its mistakes with their lines. Rules of a checked file are read
    when needed."""
    read = _read_at_source(path)
    return source_profiles(path, *read, checked) if read else load_profiles(path, checked)


def _read_at_source(path: Path) -> tuple[str, dict[str, Any]] | None:
    """The text and data of a file whose first device has another level than NNAPI's; None for others, wrong ones among them."""
    try:
        if not os.path.isfile(path) or path.stat().st_size > MAX_BYTES:
            return None
        text = path.read_text(encoding="utf-8")
        data = toml.parse(text) if any(level in text for level in LEVELS) else {}
    except (OSError, ValueError):
        return None
    listed = data.get("device")
    first = listed[0] if isinstance(listed, list) and listed and isinstance(listed[0], dict) else {}
    return (text, data) if "level" in first else None


@cache
def shipped_at_source() -> tuple[SourceProfile, ...]:
    """The profiles of devices that look at a file's operators, which come with nnbridge."""
    found = (device for path in sorted((SHIPPED / "tflite").glob(f"*{SUFFIX}")) for device in load_any(path, checked=True))
    return tuple(device for device in found if isinstance(device, SourceProfile))
