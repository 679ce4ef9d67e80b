"""Choice of the operations of a model that become programs of compiled kernels, with the reasons for the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from nnbridge.cpu.compiled.bindings import bind
from nnbridge.cpu.compiled.instructions import InstructionSet, chosen
from nnbridge.cpu.compiled.program import (
    Bound,
    Candidate,
    Join,
    KernelCall,
    Program,
    Shared,
    Unsupported,
    is_half,
    program_of,
    size_of,
)
from nnbridge.errors import NnapiError
from nnbridge.operations.call import Call, NeedsValue
from nnbridge.records import dataclass
from nnbridge.types import OperationCode as O


@dataclass(frozen=True)
class ProgramPlan:
    """The outcome of each operation: programs in run order, and why the others are left to the reference tier."""

    programs: tuple[Program, ...]
    left: Mapping[int, str]
    """Operation index → the reason."""

    @property
    def covered(self) -> tuple[int, ...]:
        """The operations that programs compute."""
        return tuple(i for program in self.programs for i in program.operations)


_LARGE = 1 << 17
"""Bytes of operands from which on a light operation by itself is the reference tier's."""
_COMPARISONS = frozenset({O.EQUAL, O.NOT_EQUAL, O.LESS, O.LESS_EQUAL, O.GREATER, O.GREATER_EQUAL})
_LIGHT_FUNCTIONS = frozenset({O.ABS, O.NEG, O.FLOOR, O.RELU, O.RELU1, O.RELU6, O.EXP, O.LOG, O.TANH})
_LIGHT_BYTES = _COMPARISONS | {O.LOGICAL_AND, O.LOGICAL_OR, O.LOGICAL_NOT, O.MAXIMUM, O.MINIMUM, O.GATHER}
_LIGHT: dict[str, frozenset[O]] = {
    "f": _COMPARISONS | _LIGHT_FUNCTIONS | {O.ADD, O.SUB, O.MUL, O.DIV, O.MAXIMUM, O.MINIMUM, O.GATHER, O.ARGMAX, O.ARGMIN},
    "u": _LIGHT_BYTES,
    "i": _COMPARISONS | {O.MAXIMUM, O.MINIMUM, O.GATHER},
}
"""Kind of the first operand's element type → operations that take NumPy less time than copies of their operands into a program's
memory and out of it: by ``nnbridge bench`` of models of one operation."""


def _is_light(call: Call) -> bool:
    """True if there is less to compute than to copy, which only neighbours in the same program would spare."""
    first, out = call.args[0], call.out
    if call.definition.code not in _LIGHT.get(first.dtype.kind, ()) or is_half(first) or is_half(out):
        return False
    read = [arg for arg in call.args if arg.dtype == first.dtype and arg.rank]
    steps = {(arg.scale, arg.zero_point) for arg in (*read, *call.outs) if arg.dtype == first.dtype}
    # Rows that repeat and bytes that have to be rescaled take NumPy longer.
    alike = len({arg.dims for arg in read}) == len(steps) == 1
    return alike and sum(size_of(arg) for arg in (*read, *call.outs)) >= _LARGE


@np.errstate(all="ignore")
def plan(operations: Sequence[Candidate], outputs: Sequence[int], instructions: InstructionSet | None = None) -> ProgramPlan:
    """Bind operations in run order. ``outputs`` are the operands that the caller reads besides them."""
    isa = instructions or chosen()
    # Only of this program: what another one reads is not there to be merged with.
    producers: dict[int, Candidate] = {}
    groups: list[list[tuple[Candidate, list[Bound]]]] = [[]]
    left: dict[int, str] = {}
    shared = Shared([c.call for c in operations if c.resolved is not None])
    readers = Counter((*outputs, *(i for c in operations for i in c.inputs)))
    for candidate in operations:
        try:
            groups[-1].append((candidate, bind(candidate, producers, isa, shared)))
            producers.update(dict.fromkeys(candidate.outputs, candidate))
            continue
        except (Unsupported, NnapiError) as reason:
            # Of what is refused the reference kernel reports it when the operation runs.
            left[candidate.index] = str(reason)
        except NeedsValue:
            left[candidate.index] = "requires constant parameters"
        except (ArithmeticError, ValueError) as error:
            left[candidate.index] = f"requires parameters that floats and integers hold: {error}"
        groups.append([])
        producers.clear()
        shared.channels_last.clear()
    programs = []
    for group in groups:
        # Programs with only views are for the reference tier, but for a whole model of them: then no step of Python is left.
        if len(group) < len(operations) and not any(isinstance(step, KernelCall | Join) for _, bound in group for step in bound):
            left.update((c.index, "requires a compiled neighbour: nothing is computed here") for c, _ in group)
            continue
        if len(group) == 1 and _is_light(group[0][0].call):
            left[group[0][0].index] = "requires a compiled neighbour: to copy these operands takes longer than to compute"
            continue
        inside = Counter(i for c, _ in group for i in c.inputs)
        mine = {*inside, *(i for c, _ in group for i in c.outputs)}
        read_outside = {i for i in mine if readers[i] > inside[i]}
        programs.append(program_of(group, read_outside, isa))
    return ProgramPlan(tuple(programs), left)
