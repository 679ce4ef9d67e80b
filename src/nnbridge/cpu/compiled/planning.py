"""Which operations of a model become programs of compiled kernels, and why the others do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nnbridge.cpu.compiled.bindings import bind
from nnbridge.cpu.compiled.instructions import InstructionSet, chosen
from nnbridge.cpu.compiled.program import Bound, Candidate, Join, Program, Shared, Step, Unsupported, program_of
from nnbridge.errors import NnapiError
from nnbridge.operations.call import NeedsValue


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


@np.errstate(all="ignore")
def plan(operations: Sequence[Candidate], outputs: Sequence[int], instructions: InstructionSet | None = None) -> ProgramPlan:
    """Bind operations in run order. ``outputs`` are the operands that the caller reads besides them."""
    isa = instructions or chosen()
    # Of the program at hand alone: what another one reads is not there to be merged with.
    producers: dict[int, Candidate] = {}
    groups: list[list[tuple[Candidate, list[Bound]]]] = [[]]
    left: dict[int, str] = {}
    shared = Shared([c.call for c in operations if c.resolved is not None])
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
        # Views alone are for the reference tier, but for a whole model of them: then no step of Python is left.
        if len(group) < len(operations) and not any(isinstance(step, Step | Join) for _, bound in group for step in bound):
            left.update((c.index, "requires a compiled neighbour: nothing is computed here") for c, _ in group)
            continue
        inside = {c.index for c, _ in group}
        read_outside = {i for c in operations if c.index not in inside for i in c.inputs} | set(outputs)
        programs.append(program_of(group, read_outside, isa))
    return ProgramPlan(tuple(programs), left)
