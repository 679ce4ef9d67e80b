"""The first releases and Android versions that hand operators over, as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from nnbridge.report.terminal import Table
from nnbridge.since import Since

_NOTE = "Each operator by itself, as it is in the file; releases: on Android 13 and newer."


def since_table(found: Sequence[Since], *, full: bool) -> Table:
    """A row for each operator (``full``), or for all of one name and answer."""
    answers = [(one.operator, one.first or "none", one.android, one.releases or "none") for one in found]
    if full:
        places = (f"{one.subgraph}.{one.index}" if one.subgraph else str(one.index) for one in found)
        rows = [(place, *answer) for place, answer in zip(places, answers, strict=True)]
    else:
        rows = [(str(count), *answer) for answer, count in Counter(answers).items()]
    head = ("operator" if full else "count", "name", "first release", "first Android with it", "handed over by")
    return Table("Handed to NNAPI since", head, rows, _NOTE)
