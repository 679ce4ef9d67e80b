"""Peak memory of a group of operators on a device: the values that are alive at its worst operator."""

from __future__ import annotations

from collections.abc import Mapping

from nnbridge.estimate.partitions import Group
from nnbridge.estimate.work import CLAMPS, JOINS, TABLES, VIEWS, sides
from nnbridge.source import SourceGraph, SourceTensor

ALIGNMENT = 16


def peak_bytes(graph: SourceGraph, group: Group, channel_multiple: int) -> int:
    """Bytes of the largest sum of values that are alive together.

    Values between the group's operators have channels in multiples; what crosses its boundary is stored as it is. A view, an
    activation in place and the parts of a concatenation share the storage of what they come from or become. An ARG_MAX needs
    two more copies of its input.
    """
    storage = _storage(graph, group)
    plain = {tensor.index for tensor in (*group.inputs, *group.outputs)} | _in_rows(graph, group)
    sizes: dict[int, int] = {}
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    end = len(group.operators)

    def use(tensor: SourceTensor, place: int) -> None:
        root = storage.get(tensor.index, tensor.index)
        bytes_ = _stored(tensor, 1 if tensor.index in plain else channel_multiple)
        sizes[root] = max(sizes.get(root, 0), bytes_)
        first[root] = min(first.get(root, place), place)
        last[root] = max(last.get(root, place), place)

    extra = [0] * end
    for tensor in group.inputs:
        use(tensor, 0)
    for place, index in enumerate(group.operators):
        operator = graph.operators[index]
        for tensor in (*operator.computed, *operator.outputs):
            use(tensor, place)
        if operator.name == "ARG_MAX":
            extra[place] = 2 * sum(_stored(tensor, channel_multiple) for tensor in operator.computed)
    for tensor in group.outputs:
        use(tensor, end - 1)
    alive = [
        extra[place] + sum(size for root, size in sizes.items() if first[root] <= place <= last[root]) for place in range(end)
    ]
    return max(alive, default=0)


def _stored(tensor: SourceTensor, multiple: int) -> int:
    batch, height, width, channels = sides(tensor.shape)
    elements = batch * height * width * -(-channels // multiple) * multiple
    return -(-elements * tensor.bits // 8 // ALIGNMENT) * ALIGNMENT


def _in_rows(graph: SourceGraph, group: Group) -> set[int]:
    """Values whose shape changes without a copy, or that are multiplied as rows: stored as they are."""
    operators = [graph.operators[index] for index in group.operators]
    viewed = {t.index for o in operators if o.name in VIEWS for t in (*o.computed, *o.outputs)}
    return viewed | {t.index for o in operators if o.name == "FULLY_CONNECTED" for t in o.computed}


def _storage(graph: SourceGraph, group: Group) -> Mapping[int, int]:
    """Value → the value whose storage it shares."""
    found: dict[int, int] = {}
    outer = {tensor.index for tensor in group.inputs}

    def root(index: int) -> int:
        while index in found:
            index = found[index]
        return index

    for index in group.operators:
        operator = graph.operators[index]
        readers = [graph.readers.get(tensor.index, ()) for tensor in operator.computed]
        for tensor, others in zip(operator.computed, readers, strict=True):
            alone = len(others) == 1 and tensor.index not in outer
            if operator.name in VIEWS or (operator.name in TABLES | CLAMPS and alone):
                found[operator.outputs[0].index] = root(tensor.index)
            elif operator.name in JOINS and alone and root(tensor.index) != operator.outputs[0].index:
                found[root(tensor.index)] = operator.outputs[0].index
    return {index: root(index) for index in found}
