"""JSON of others: one that is intact, with any JSON value in place of any of its values."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

MUTATIONS = settings(
    max_examples=int(os.environ.get("NNBRIDGE_MUTATIONS", "300")),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
"""How many are drawn; 20,000 were once."""
_TEXTS = (
    "",
    "a/b",
    "..",
    "\0",
    "\ud800",
    'a"]\n[b]',
    "<script>",
    "=1+1",
    "ADD",
    "CONV_2D",
    "host",
    "日本",
    "x" * 300,
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from((10**30, -(10**400), 2**63, -1))
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(_TEXTS),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4) | st.sampled_from(_TEXTS), inner, max_size=4),
    max_leaves=6,
)
_GONE = object()


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _places(item, (*path, key))


@st.composite
def mutated(draw: st.DrawFn, intact: Any) -> Any:
    """A copy with one or two values replaced or left out."""
    whole: Any = copy.deepcopy(intact)
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from(list(_places(whole))))
        value = draw(VALUES | st.just(_GONE))
        if not path:
            return None if value is _GONE else value
        holder = whole
        for key in path[:-1]:
            holder = holder[key]
        if value is _GONE:
            del holder[path[-1]]
        else:
            holder[path[-1]] = value
    return whole
