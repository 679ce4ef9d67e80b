"""An inspection as tables for a terminal."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nnbridge.converters.delegation import refusal_of
from nnbridge.converters.inspection import ON_NNAPI, Inspection, Mapped, TensorInfo
from nnbridge.report.terminal import Table, counted

_MAX_VALUES = 16


def inspection_tables(found: Inspection) -> Iterator[Table | str]:
    """Tables of a file: where a phone refuses it, interface, operators with what maps to NNAPI, reasons, metadata, notes."""
    yield from found.remarks
    refusals = (refusal_of(mapped, mapping) for mapping, mapped in found.mappings.items())
    yield from (f"{refusal.sentence}." for refusal in refusals if refusal is not None)
    size = f"{found.file_bytes:,} bytes, {found.weight_bytes:,} of them constants"
    yield f"{found.path}: {found.format}, {size}, {counted(sum(found.operators.values()), 'operator')}"
    yield _interface("Inputs", found.inputs)
    yield _interface("Outputs", found.outputs)
    for signature in found.signatures:
        inputs, outputs = (", ".join(t.name for t in side) for side in (signature.inputs, signature.outputs))
        yield f"signature {signature.key!r}: {inputs} -> {outputs}"
    yield _operators(found)
    types = ", ".join(f"{name} {count}" for name, count in found.tensor_types.items())
    yield f"tensors: {types}; {found.quantised_tensors} quantised"
    for mapping, counts in found.transposes.items():
        if any(counts):
            yield f"transposes under the {mapping} mapping: {counts[0]} between operations, {counts[1]} at inputs and outputs"
    for mapping, mapped in found.mappings.items():
        yield from host_reasons(mapping, mapped)
    for name, value in found.metadata.items():
        text = value if isinstance(value, str) else json.dumps(_shortened(value), ensure_ascii=False)
        yield from f"{name}: {text}".splitlines()
    for note in found.notes:
        yield f"note: {note}"


def _shortened(value: Any) -> Any:
    """Metadata with a count in place of each long list, such as the labels of a thousand classes."""
    if isinstance(value, Mapping):
        return {key: _shortened(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_shortened(item) for item in value] if len(value) <= _MAX_VALUES else f"{len(value):,} values: see --json"
    return value


def _interface(title: str, tensors: Sequence[TensorInfo]) -> Table:
    rows = []
    for tensor in tensors:
        shape = "unknown rank" if tensor.shape is None else str(list(tensor.shape))
        quantised = (f"{tensor.scale:.6g}", str(tensor.zero_point)) if tensor.scale else ("", "")
        rows.append((tensor.name, tensor.type, shape, *quantised))
    return Table(title, ("name", "type", "shape", "scale", "zero point"), rows)


def _operators(found: Inspection) -> Table:
    """One row for each operator: how many of them go to NNAPI under each mapping."""
    rows = [(name, str(count), *(_outcomes(name, m) for m in found.mappings.values())) for name, count in found.operators.items()]
    return Table("Operators: outcome under each mapping", ("operator", "count", *found.mappings), rows)


def _outcomes(operator: str, mapped: Sequence[Mapped]) -> str:
    counts = Counter("NNAPI" if m.mapping in ON_NNAPI else m.mapping for m in mapped if m.operator == operator)
    return ", ".join(f"{count} {where}" for where, count in counts.most_common()) or "-"


def host_reasons(mapping: str, mapped: Sequence[Mapped]) -> Iterator[Table]:
    """A table of why operators run on the host, the most frequent reasons first, if any do."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for m in mapped:
        if m.mapping == "host":
            reason = m.reasons[0] if m.reasons else None
            counts[m.operator, reason.rule if reason else "", reason.found if reason else ""] += 1
    if not counts:
        return
    rows = [(operator, str(count), rule, value) for (operator, rule, value), count in counts.most_common()]
    yield Table(f"Not given to NNAPI ({mapping} mapping)", ("operator", "count", "requires", "found"), rows)
