"""Weights that are copied into SRAM before the array reads them, in slices of output channels.

The first slice is copied while the operator before runs, each other one while the slice before it is computed, so that two
buffers take turns. Facts: the scheduler of regor in Arm's ethos-u-vela 5.2.0 (Apache-2.0), without a limit on SRAM.
"""

from __future__ import annotations

from collections.abc import Iterator

from nnbridge.estimate.blocks import SPLIT, PassCost
from nnbridge.estimate.numbers import ArrayNumbers
from nnbridge.records import dataclass

START = 1000
"""Cycles of waiting that do not count: before the first operator, and for a slice of one that computes longer than it reads."""
LEAST_USE = 0.3
"""Of a block's channels; thinner slices are not worth it."""
ALIGNMENT = 16


@dataclass(frozen=True)
class Buffer:
    """Slices of an operator's weights in SRAM, in run order; none if the array reads them where they are stored."""

    slices: tuple[int, ...] = ()
    """Bytes of each."""
    early: bool = False
    """The first is copied while the operator before runs."""
    slack: float = 0.0
    """Cycles while which weights of the next operator can be copied."""

    @property
    def parts(self) -> tuple[int, ...]:
        """Bytes of one buffer, or of two that take turns."""
        return tuple(max(self.slices[k::2]) for k in range(min(2, len(self.slices))))

    @property
    def last(self) -> int:
        """Bytes of the part that is held until the operator ends."""
        return self.parts[(len(self.slices) - 1) % 2] if self.slices else 0


NO_BUFFER = Buffer()


def buffer_of(depth: int, stored: float, found: PassCost, numbers: ArrayNumbers, slack: float | None) -> Buffer:
    """The buffering of a product with ``depth`` output channels and ``stored`` bytes of weights.

    ``slack``: cycles of the operator before while which they can be copied; None for the first one.
    """
    copied = stored / numbers.bandwidth["weights"] + numbers.weight_latency
    read = (stored / numbers.bandwidth["maps"] + numbers.latency / 2) * found.rereads
    unmoved = copied * found.rereads
    smallest = copied * min(1.0, SPLIT / depth)
    computes_longer = found.cycles > unmoved
    ready = slack or 0.0
    hurried = slack is None and found.rereads > 1 and (smallest < unmoved / 10 or smallest <= START)
    waited = max(copied - ready, 0.0)
    useful = read + waited < unmoved or depth // found.depth > 2 or (smallest < ready and found.rereads > 1)
    none = Buffer(slack=found.cycles)
    if not (hurried or useful):
        return none
    slices = _slices(depth, copied, found, ready, computes_longer)
    widest = slices[1] if len(slices) > 2 else 0
    if widest and computes_longer and widest / _up(widest, found.depth) < LEAST_USE:
        return none
    cycles = [found.cycles * each / depth for each in slices]
    spare = ready if slack is not None else START * hurried
    visible = 0.0
    for each, took in zip(slices, cycles, strict=True):
        loads = stored * each / depth / numbers.bandwidth["weights"] + numbers.weight_latency
        visible += max(loads - spare, 0.0)
        spare = took if len(slices) > 1 else 0.0
    maps = found.moved / numbers.bandwidth["maps"]
    before, after = max(found.cycles, unmoved, maps), max(found.cycles + visible, read, maps)
    if computes_longer:
        longest = after == found.cycles + visible
        after -= visible if visible / len(slices) < START else 0.0
        after -= len(slices) * START / 2 if len(slices) > 1 and longest and hurried else 0.0
    if before < after or (found.rereads == 1 and copied + read > before):
        return none
    sizes = tuple(_up(int(stored * each / depth), ALIGNMENT) for each in slices)
    return Buffer(sizes, slack is not None, cycles[-1])


def _slices(depth: int, copied: float, found: PassCost, ready: float, computes_longer: bool) -> list[int]:
    """Channels of each slice: as many first as can be copied before, then as many as while these are computed."""
    least, share = min(1.0, SPLIT / depth), min(1.0, ready / copied)
    ratio = 1.0 if 1 - share // least * least < least / 2 else share
    if computes_longer and 0.5 < ratio < 1:
        ratio = min(1.0, max(0.5, _up(depth // 2, SPLIT) / depth))
    first = max(int(depth * max(ratio, least)) // SPLIT * SPLIT, SPLIT)
    if ratio >= 1 or first >= depth:
        return [depth]
    then = _up(max(int(depth * (found.cycles * first / depth) / copied), SPLIT), found.depth)
    return [first, *_cut(depth - first, then)]


def _cut(rest: int, step: int) -> Iterator[int]:
    while rest > 0:
        yield min(step, rest)
        rest -= step


def _up(value: int, step: int) -> int:
    return -(-value // step) * step
