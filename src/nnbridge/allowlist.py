"""Clients that may use vendor extensions: Android decides once for each process (facts X20 and X21).

A workstation has neither Android's partitions nor its packages, so a process says whom it stands for. By default it is an
app that the user installed, which Android 13 allows; ``NNBRIDGE_CLIENT`` names another one. Before Android 12 the client
had to be listed in a file of the vendor's as well: ``NNBRIDGE_EXTENSIONS_ALLOWLIST`` names such a file and adds that rule
back.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping
from pathlib import Path

from nnbridge.errors import InputError, Reason, cannot_read
from nnbridge.escaping import printable
from nnbridge.reading import read_at_most
from nnbridge.records import dataclass

LOG = logging.getLogger(__name__)

CLIENT_VARIABLE = "NNBRIDGE_CLIENT"
ALLOWLIST_VARIABLE = "NNBRIDGE_EXTENSIONS_ALLOWLIST"
DENY_ON_PRODUCT_VARIABLE = "NNBRIDGE_EXTENSIONS_DENY_ON_PRODUCT"
"""Stands for the property ``ro.nnapi.extensions.deny_on_product``."""

APP_PROCESSES = ("/system/bin/app_process64", "/system/bin/app_process32")
"""The binaries that Android apps run in."""
_PARTITIONS = ("/vendor/", "/odm/", "/data/")
_PRODUCT = "/product/"
_IMAGES = ("data", "system", "vendor", "product")


@dataclass(frozen=True, slots=True)
class Client:
    """A process that uses NNAPI: a native binary, or an app (``binary`` is then one of the app processes)."""

    binary: str
    package: str = ""
    system_app: bool = False
    on_vendor_image: bool = False
    on_product_image: bool = False


DEFAULT_CLIENT = Client(APP_PROCESSES[0], "com.example.nnbridge")


def extensions_allowed(client: Client, allowlist: Collection[str] | None = None, *, on_product: bool = True) -> bool:
    """True if a client may use vendor extensions.

    ``allowlist`` holds the entries of the vendor's file; None for Android 12 and later, where there is none. ``on_product``
    states whether the product image's binaries and apps can be candidates.
    """
    if client.binary in APP_PROCESSES:
        on_image = client.on_vendor_image or (client.on_product_image and on_product)
        candidate, entry = on_image or not client.system_app, client.package
    else:
        candidate = client.binary.startswith(_PARTITIONS) or (client.binary.startswith(_PRODUCT) and on_product)
        entry = client.binary
    return candidate and (allowlist is None or entry in allowlist)


_MAX_BYTES = 1 << 20
_LOGGED, _LONGEST = 20, 200
"""Lines that are logged, and characters of each."""


def read_allowlist(path: Path) -> frozenset[str]:
    """The entries of a file: a binary's path or a package's name on each line; other lines are ignored and logged."""
    try:
        content = read_at_most(path, _MAX_BYTES)
        if len(content) > _MAX_BYTES:
            raise InputError(Reason(f"an allowlist of at most {_MAX_BYTES:,} bytes", "more", file=str(path)))
        lines = [line.strip() for line in content.decode("utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(Reason("a readable allowlist", cannot_read(error), file=str(path))) from error
    entries = {line for line in lines if line.startswith("/") or ("." in line and " " not in line)}
    ignored = [(number, line) for number, line in enumerate(lines, 1) if line and line not in entries]
    for number, line in ignored[:_LOGGED]:
        LOG.error("%s:%d: neither a path nor a package name: %s", path, number, printable(line[:_LONGEST]))
    if len(ignored) > _LOGGED:
        LOG.error("%s: %d other lines are neither", path, len(ignored) - _LOGGED)
    return frozenset(entries)


def parse_client(text: str) -> Client:
    """A client from ``/path/of/a/binary``, or from ``package.name`` or ``package.name@IMAGE``.

    IMAGE is where the app is installed: data (default), system, vendor or product.
    """
    if text.startswith("/"):
        return Client(text)
    package, separator, image = text.partition("@")
    if "." not in package or (separator and image not in _IMAGES):
        raise InputError(Reason(f"/a/path, package.name or package.name@{'|'.join(_IMAGES)}", text, operand=CLIENT_VARIABLE))
    preinstalled = image in ("system", "vendor", "product")
    return Client(APP_PROCESSES[0], package, preinstalled, image == "vendor", image == "product")


def process_may_use_extensions(environment: Mapping[str, str] = os.environ) -> bool:
    """True if this process may, by its environment."""
    named, listed = environment.get(CLIENT_VARIABLE), environment.get(ALLOWLIST_VARIABLE)
    denied = environment.get(DENY_ON_PRODUCT_VARIABLE, "0") not in ("", "0", "false")
    client = parse_client(named) if named else DEFAULT_CLIENT
    return extensions_allowed(client, read_allowlist(Path(listed)) if listed else None, on_product=not denied)
