"""Choice of groups of operators to delegate: TFLite's N largest, or the cut that takes least time under a memory limit."""

from __future__ import annotations

from collections.abc import Sequence

from nnbridge.records import dataclass


@dataclass(frozen=True)
class CutOption:
    """One group, or a run of operators within one: what delegating it gains and needs."""

    group: int
    operators: tuple[int, ...]
    gain_us: float
    """CPU time saved without the device's time, its call and copies; negative where delegating does not pay."""
    bytes: int
    """Weights, which stay on the device, and peak memory of values."""
    peak: int = 0
    """The part of ``bytes`` that groups share, since one runs after the other."""


@dataclass(frozen=True)
class Cut:
    """A choice of options, at most one for each group."""

    options: tuple[CutOption, ...]

    @property
    def gain_us(self) -> float:
        """Time saved."""
        return sum(option.gain_us for option in self.options)

    @property
    def bytes(self) -> int:
        """Memory: the weights of all, and the largest peak."""
        return memory(self.options)


def memory(options: Sequence[CutOption]) -> int:
    """Bytes of options that are delegated together."""
    return sum(o.bytes - o.peak for o in options) + max((o.peak for o in options), default=0)


def largest(options: Sequence[CutOption], count: int, limit: int | None = None) -> Cut:
    """TFLite's rule: the ``count`` groups with the most operators (0: all), as long as they fit, whether they gain or not."""
    chosen: list[CutOption] = []
    for option in sorted(options, key=lambda o: (-len(o.operators), o.group)):
        if count and len(chosen) == count:
            break
        if limit is None or memory([*chosen, option]) <= limit:
            chosen.append(option)
    return Cut(tuple(sorted(chosen, key=lambda o: o.group)))


def best_cut(options: Sequence[CutOption], limit: int | None = None) -> Cut:
    """The choice with the largest gain within the limit, exactly: at most one option of each group.

    Without a limit every group with a gain is chosen. With one, each peak that the choice may have is tried as the memory set
    aside for values; for each, choices are built group by group, and those that need no less memory than another and gain no
    more are dropped.
    """
    gaining = [o for o in options if o.gain_us > 0 and (limit is None or o.bytes <= limit)]
    if limit is None:
        by_group: dict[int, CutOption] = {}
        for option in gaining:
            by_group[option.group] = max(by_group.get(option.group, option), option, key=lambda o: o.gain_us)
        return Cut(tuple(by_group[group] for group in sorted(by_group)))
    best = Cut(())
    for peak in sorted({o.peak for o in gaining}):
        found = _within([o for o in gaining if o.peak <= peak], limit - peak)
        best = max(best, found, key=lambda cut: cut.gain_us)
    return best


def _within(options: Sequence[CutOption], available: int) -> Cut:
    """The best choice whose weights fit into a number of bytes."""
    front: list[tuple[int, float, tuple[CutOption, ...]]] = [(0, 0.0, ())]
    for group in sorted({o.group for o in options}):
        members = [o for o in options if o.group == group]
        wider = front + [
            (used + o.bytes - o.peak, gain + o.gain_us, (*chosen, o))
            for used, gain, chosen in front
            for o in members
            if used + o.bytes - o.peak <= available
        ]
        wider.sort(key=lambda state: (state[0], -state[1]))
        front, top = [], -1.0
        for state in wider:
            if state[1] > top:
                front.append(state)
                top = state[1]
    return Cut(max(front, key=lambda state: state[1])[2])
