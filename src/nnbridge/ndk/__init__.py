"""The functions of NeuralNetworks.h and NeuralNetworksExtensions.h, name for name, over nnbridge's own objects.

Every function returns a result code (``ResultCode``'s number) and never raises; what C returns through pointers follows
the code in a tuple: ``code, model = ANeuralNetworksModel_create()``. NULL is None. Handles are numbers that are never used
twice, so that a stale one is refused (BAD_DATA) and NULL as well (UNEXPECTED_NULL). Buffers are anything with the buffer
protocol and are not copied (values of up to 128 bytes are, as in Android).

An error inside nnbridge becomes OP_FAILED and is logged with its traceback, once for each function; an
environment variable with a wrong value is logged in one sentence.
"""

from __future__ import annotations

import ctypes

from nnbridge.ndk.core import FUNCTIONS, HANDLES, OperandType, SymmPerChannelQuantParams, refuse
from nnbridge.ndk.device_functions import *  # noqa: F403
from nnbridge.ndk.device_functions import check_environment
from nnbridge.ndk.functions import *  # noqa: F403


def address(pointer: int, length: int) -> memoryview:
    """The bytes at an address of this process, for callers that have no buffer object; nothing is copied."""
    return memoryview((ctypes.c_char * length).from_address(pointer)).cast("B")


__all__ = [
    "FUNCTIONS",
    "HANDLES",
    "OperandType",
    "SymmPerChannelQuantParams",
    "address",
    "check_environment",
    "refuse",
]
__all__.extend(FUNCTIONS)
