"""State that outlives an execution: variable tensors and resource variables, as values that a subgraph starts with and ends
with."""

from __future__ import annotations

from collections.abc import Hashable

from nnbridge.converters.draft import Value

Key = Hashable
"""Which variable: subgraph and tensor, or container and name of a resource."""


def outlives_bodies(key: Key) -> bool:
    """True for resource variables. Variable tensors of a body start again each time that IF or WHILE runs, as in LiteRT."""
    return isinstance(key, tuple) and isinstance(key[0], str)


class Variables:
    """The variables of one subgraph, which may be inside another one."""

    def __init__(self, outer: Variables | None = None) -> None:
        self.starts: dict[Key, Value] = {}
        """What the subgraph starts with: variables that it reads before it assigns them."""
        self.now: dict[Key, Value] = {}
        self.changed: dict[Key, None] = {}
        """What the subgraph assigns, in order."""
        self.firsts: dict[Key, Value] = {} if outer is None else outer.firsts
        """Constants that variables hold before the first run."""
        self._outer = outer

    def held(self, key: Key) -> Value | None:
        """The present value, here or further out; else the first one; None if nothing has assigned the variable."""
        if key in self.now:
            return self.now[key]
        return self._outer.held(key) if self._outer is not None else self.firsts.get(key)

    def read(self, key: Key) -> Value:
        """The present value of a variable that something has assigned."""
        if key not in self.now:
            self.now[key] = self.start(key)
        return self.now[key]

    def start(self, key: Key) -> Value:
        """The value that the subgraph starts with for a variable."""
        if key not in self.starts:
            outside = self.firsts.get(key) if self._outer is None else self._outer.held(key)
            assert outside is not None
            self.starts[key] = outside.like(name=outside.name, source_type=outside.source_type)
        return self.starts[key]

    def assign(self, key: Key, value: Value) -> None:
        """The value from now on."""
        self.now[key] = value
        self.changed.setdefault(key)

    def begin(self, key: Key, first: Value) -> None:
        """Say what a variable holds before the first run, unless that is known."""
        self.firsts.setdefault(key, first)


def variable_name(key: Key) -> str:
    """A variable's name for operands and messages."""
    return "/".join(str(part) for part in key[1:] if part != "") if isinstance(key, tuple) else str(key)
