"""One row of numbers for the operations and operands of a plan's sources: the main subgraph's, then each body's."""

from __future__ import annotations

from itertools import accumulate

from nnbridge.records import dataclass
from nnbridge.runtime.partitioner import Partition


@dataclass(frozen=True)
class Numbering:
    """The first number of each source's operations and operands."""

    operations: tuple[int, ...]
    operands: tuple[int, ...]

    @classmethod
    def of(cls, partition: Partition) -> Numbering:
        """The numbers of a partition's sources."""
        mains = [source.model.main for source in partition.sources]
        return cls(
            tuple(accumulate((len(main.operations) for main in mains), initial=0)),
            tuple(accumulate((len(main.operands) for main in mains), initial=0)),
        )

    def operation(self, source: int, index: int) -> int:
        """The number of an operation."""
        return self.operations[source] + index

    def operand(self, source: int, index: int) -> int:
        """The number of an operand."""
        return self.operands[source] + index
