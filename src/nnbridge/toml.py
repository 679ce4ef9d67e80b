"""TOML's reader: Python's own, or the package of the same content where Python is older."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 11):
    import tomllib as tomllib
else:
    import tomli as tomllib

__all__ = ["tomllib"]
