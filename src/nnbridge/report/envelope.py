"""An envelope as tables: what each arithmetic changes, and where other sides' answers lie."""

from __future__ import annotations

from nnbridge.compare.envelope import Deviation, Envelope
from nnbridge.report.outputs import ended_lines
from nnbridge.report.terminal import Table, counted


def envelope_tables(found: Envelope) -> list[Table | str]:
    """The sentence, a row for each output and arithmetic, and a row for each output of another side.

    The name of a single output is in the title.
    """
    several = len(found.outputs) > 1
    first = 0 if several else 1  # A deviation of all outputs comes first, and the output's name in each row.
    columns = ("output", "arithmetic", "max diff", "RMSE", "unequal", "top-1 changes", "what it does")[first:]
    rows = [(d.output, d.arithmetic, *_figures(d), d.text)[first:] for d in found.deviations[first:]]
    single = "".join(f", output {d.output}" for d in found.deviations[first:][:first])
    title = f"{found.model}{single} under other arithmetics than NNAPI's CPU, {counted(found.samples, 'sample')}"
    blocks: list[Table | str] = [found.sentence, Table(title, columns, rows)]
    if found.others:
        other = (*("output",)[first:], "outputs of", *columns[2 - first : -1], "verdict", "reached by", "nearest")
        lines = [
            (
                *(d.output, d.arithmetic, *_figures(d), _verdict(found, d), d.reached_by or "-"),
                f"{d.nearest}, {counted(d.nearest_unequal or 0, 'element')} unequal",
            )[first:]
            for d in found.others
        ]
        blocks.append(Table("Other outputs, compared with the envelope", other, lines))
    blocks += ended_lines(found.ended)
    return [*blocks, *(["Interrupted: only the samples above were finished."] if found.interrupted else [])]


def _verdict(found: Envelope, d: Deviation) -> str:
    reserved = found.reserved(d.arithmetic).partition(" (")[0]
    return ("within" if d.within else "OUTSIDE") if not reserved else reserved if d.within else f"{reserved}, OUTSIDE as computed"


def _figures(d: Deviation) -> tuple[str, ...]:
    changes = f"{d.top1_changes} of {d.classified}" if d.classified else "-"
    return f"{d.largest:.3g}", f"{d.rmse:.2g}", f"{d.unequal / max(d.elements, 1):.2%}", changes
