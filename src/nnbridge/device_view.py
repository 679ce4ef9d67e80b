"""The model as devices see it: only what is used, renumbered (facts M49 to M52)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from nnbridge.model import Location, Model, Operand, Operation, Subgraph
from nnbridge.types import Lifetime, is_extension, split_extension_code


def small_alignment(length: int) -> int:
    """Alignment of small values inside the value blob (``alignBytesNeeded``, fact M19)."""
    return 1 if length < 2 else 2 if length < 4 else 4


def pad(blob: bytearray, alignment: int) -> None:
    """Lengthen to the next multiple."""
    if missing := -len(blob) % alignment:
        blob.extend(bytes(missing))


def device_view(model: Model) -> Model:
    """Without the main subgraph's unused operands, then without unused subgraphs, pools and extension names.

    Small values are packed again, in order of operands, the main subgraph's first.
    """
    if _is_device_view(model):
        return model
    main = _without_unused_operands(model.main)
    bodies = sorted(_used_bodies(main, model))
    subgraphs = (main, *(model.referenced[i] for i in bodies))
    operands = [o for s in subgraphs for o in s.operands]
    pools = sorted({o.location.pool for o in operands if o.lifetime is Lifetime.CONSTANT_REFERENCE})
    numbers = {pool: number for number, pool in enumerate(pools)}
    codes = {split_extension_code(c)[0] for s in subgraphs for c in _codes(s.operands, s.operations) if is_extension(c)}
    values = bytearray()

    def moved(operand: Operand) -> Operand:
        at = operand.location
        if operand.lifetime is Lifetime.CONSTANT_COPY:
            pad(values, small_alignment(at.length))
            start = len(values)
            values.extend(model.operand_values[at.offset : at.offset + at.length])
            return operand if start == at.offset else replace(operand, location=Location(0, start, at.length))
        if operand.lifetime is Lifetime.CONSTANT_REFERENCE:
            place = numbers[at.pool]
            return operand if place == at.pool else replace(operand, location=replace(at, pool=place))
        if operand.lifetime is Lifetime.SUBGRAPH:
            return replace(operand, location=Location(offset=bodies.index(at.offset)))
        return operand

    main, *referenced = (replace(s, operands=tuple(moved(o) for o in s.operands)) for s in subgraphs)
    return replace(
        model,
        main=main,
        referenced=tuple(referenced),
        operand_values=bytes(values),
        pools=tuple(model.pools[i] for i in pools),
        extensions={name: prefix for name, prefix in model.extensions.items() if prefix in codes},
    )


def _is_device_view(model: Model) -> bool:
    """True if nothing would change in a model of one subgraph."""
    main, end, pools = model.main, 0, set()
    if model.referenced or model.extensions or _without_unused_operands(main) is not main:
        return False
    for operand in main.operands:
        at = operand.location
        if operand.lifetime is Lifetime.CONSTANT_COPY:
            if at.offset != end + -end % small_alignment(at.length):
                return False
            end = at.offset + at.length
        elif operand.lifetime is Lifetime.CONSTANT_REFERENCE:
            pools.add(at.pool)
    return end == len(model.operand_values) and pools == set(range(len(model.pools)))


def _codes(operands: Sequence[Operand], operations: Sequence[Operation]) -> Iterator[int]:
    yield from (o.type for o in operands)
    yield from (o.type for o in operations)


def _used_bodies(main: Subgraph, model: Model) -> set[int]:
    """The referenced subgraphs that MODEL operands reach."""
    found: set[int] = set()
    waiting = [main]
    while waiting:
        for operand in waiting.pop().operands:
            if operand.lifetime is Lifetime.SUBGRAPH and operand.location.offset not in found:
                found.add(operand.location.offset)
                waiting.append(model.referenced[operand.location.offset])
    return found


def _without_unused_operands(main: Subgraph) -> Subgraph:
    used = {i for o in main.operations for i in (*o.inputs, *o.outputs)} | {*main.inputs, *main.outputs}
    if len(used) == len(main.operands):
        return main
    index = {old: new for new, old in enumerate(sorted(used))}

    def renumbered(indexes: Sequence[int]) -> tuple[int, ...]:
        return tuple(index[i] for i in indexes)

    operations = tuple(replace(o, inputs=renumbered(o.inputs), outputs=renumbered(o.outputs)) for o in main.operations)
    return Subgraph(tuple(main.operands[i] for i in sorted(used)), operations, renumbered(main.inputs), renumbered(main.outputs))
