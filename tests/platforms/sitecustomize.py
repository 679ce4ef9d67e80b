"""Hides what a system lacks (``NNBRIDGE_TEST_LACKS``: darwin or win32) from a Python process, before anything is imported."""

import mmap
import os
import select
import socket
import sys

DARWIN = {
    os: "memfd_create MFD_ eventfd EFD_",
    socket: "MSG_CMSG_CLOEXEC SO_PEERCRED",
}
WIN32 = {
    os: "memfd_create MFD_ eventfd EFD_ fork register_at_fork getuid fchmod O_NONBLOCK O_NOFOLLOW O_CLOEXEC",
    socket: "MSG_CMSG_CLOEXEC SO_PEERCRED AF_UNIX SCM_RIGHTS CMSG_LEN MSG_CTRUNC",
    select: "poll epoll POLL",
    mmap: "PROT_ MAP_",
}

lacking = os.environ.get("NNBRIDGE_TEST_LACKS")
for module, prefixes in {"darwin": DARWIN, "win32": WIN32, None: {}}[lacking].items():
    for name in [name for name in vars(module) if name.startswith(tuple(prefixes.split()))]:
        delattr(module, name)
if lacking == "win32":
    sys.modules["fcntl"] = sys.modules["resource"] = None  # type: ignore[assignment]
elif lacking == "darwin":
    import fcntl

    for name in [name for name in vars(fcntl) if "SEAL" in name]:
        delattr(fcntl, name)
