"""The instruction sets that kernels are emitted for, and which of them this processor has.

An instruction set fixes the vector length, how 8-bit products are summed and how many rows a matrix tile holds. Kernels are
written once for all; results are the same bit for bit. ``NNBRIDGE_INSTRUCTIONS`` names one to use instead of the best one.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Mapping

from nnbridge.cpu.compiled.machine import machine
from nnbridge.errors import InputError, Reason
from nnbridge.records import dataclass

ENVIRONMENT = "NNBRIDGE_INSTRUCTIONS"


@dataclass(frozen=True)
class InstructionSet:
    """The instructions of a processor that kernels may use."""

    name: str
    lanes: int
    """32-bit elements in the longest vector."""
    cpu: str
    """LLVM's name of the least processor that has it; empty: the machine's baseline."""
    features: str
    """LLVM's feature string beyond ``cpu``."""
    requires: tuple[str, ...]
    """LLVM's names of the features that the processor must report."""
    quads: bool
    """Sums of four products of an unsigned and a signed byte in one instruction; otherwise of two products of 16 bits."""
    masks: bool
    """Stores that leave bytes out."""
    tiles: tuple[tuple[int, int], ...]
    """Vectors across a matrix tile, and its rows: as many as registers hold. Widest first."""
    matrices: bool = False
    """Tiles of 16 x 64 bytes in registers of their own (AMX), which the system has to permit."""

    @property
    def step_elements(self) -> int:
        """8-bit products that one lane sums at a time."""
        return 4 if self.quads else 2


_VNNI = ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni")

_AMX = (*_VNNI, "amx-tile", "amx-int8")
_AMX_FEATURES = "+avx512vnni,+amx-tile,+amx-int8"

INSTRUCTION_SETS: dict[str, InstructionSet] = {
    isa.name: isa
    for isa in (
        InstructionSet("amx", 16, "x86-64-v4", _AMX_FEATURES, _AMX, True, True, ((4, 6), (2, 12), (1, 12)), True),
        InstructionSet("avx512vnni", 16, "x86-64-v4", "+avx512vnni", _VNNI, True, True, ((4, 6), (2, 12), (1, 12))),
        InstructionSet("avxvnni", 8, "x86-64-v3", "+avxvnni", ("avx2", "fma", "avxvnni"), True, False, ((4, 2), (2, 4), (1, 8))),
        InstructionSet("avx2", 8, "x86-64-v3", "", ("avx2", "fma", "bmi2", "f16c"), False, False, ((4, 2), (2, 4), (1, 8))),
        InstructionSet("plain", 4, "", "", (), False, False, ((4, 2), (2, 4), (1, 4))),
    )
}
"""Best first."""


def supported(features: Mapping[str, bool]) -> list[InstructionSet]:
    """The instruction sets of a processor with these features, best first."""
    return [isa for isa in INSTRUCTION_SETS.values() if all(features.get(name) for name in isa.requires)]


@functools.cache
def host_sets() -> tuple[InstructionSet, ...]:
    """The instruction sets of this processor, best first."""
    found = supported(dict.fromkeys(machine().features, True))
    return tuple(isa for isa in found if not isa.matrices or _tiles_are_permitted())


_SYSTEM_CALL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18
"""Linux's arch_prctl for x86-64, ARCH_REQ_XCOMP_PERM, and the number of the tiles' state."""


def _tiles_are_permitted() -> bool:
    """Ask Linux for the state of matrix tiles, for all threads of this process and those to come."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        answer: int = ctypes.CDLL(None).syscall(_SYSTEM_CALL, _REQUEST_PERMISSION, _TILE_DATA)
    except (OSError, AttributeError):
        return False
    return answer == 0


def chosen() -> InstructionSet:
    """The best instruction set, or the one that the environment names; InputError for one that this processor does not run."""
    available = host_sets()
    requested = os.environ.get(ENVIRONMENT)
    if not requested:
        return available[0]
    found = next((isa for isa in available if isa.name == requested), None)
    if found is None:
        known = ", ".join(isa.name for isa in available)
        raise InputError(Reason(f"an instruction set that this processor runs ({known})", requested, operand=ENVIRONMENT))
    return found
