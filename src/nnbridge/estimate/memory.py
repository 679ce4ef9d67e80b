"""Peak memory of a group of operators on a device: the values that are alive at its worst operator."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from nnbridge.estimate.buffering import Buffer
from nnbridge.estimate.partitions import OperatorGroup
from nnbridge.estimate.work import JOINS, OVERWRITES, PARTS, RESIZES, VIEWS, sides
from nnbridge.source import SourceGraph, SourceOperator, SourceTensor

ALIGNMENT = 16
SOFTMAX_BYTES = 6
"""For each element, beside input and output: sums and exponents of 32 bits before there is an output."""
LSTM_BYTES, LSTM_STATE = 9, 18
"""For each element of the state, which is input 18: five values of gates of 16 bits before there is an output."""


def peak_bytes(
    graph: SourceGraph,
    group: OperatorGroup,
    channel_multiple: int,
    buffers: Mapping[int, Buffer],
    fused: Collection[int],
    elsewhere: Collection[int] = (),
) -> int:
    """Bytes of the largest sum of values and buffered weights that are alive together.

    Values between the group's operators have channels in multiples; what crosses its boundary is stored as it is. A view, an
    activation in place and the parts of a concatenation share the storage of what they come from or become. An ARG_MAX needs
    two more copies of its input, an image that grows by more than 2 one with half the output's sides. ``buffers``: of each
    operator that runs by itself; ``fused``: operators that others compute, whose inputs are not stored; ``elsewhere``: operators
    that run on the CPU, whose values are stored as they are.
    """
    outer = {
        tensor.index for index in elsewhere for tensor in (*graph.operators[index].computed, *graph.operators[index].outputs)
    }
    plain = outer | {tensor.index for tensor in (*group.inputs, *group.outputs)} | _in_rows(graph, group)
    storage = _storage(graph, group, elsewhere, fused, plain)
    passed = {tensor.index for index in fused for tensor in graph.operators[index].computed}
    sizes: dict[int, int] = {}
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    end = len(group.operators)

    def use(tensor: SourceTensor, place: int) -> None:
        root = storage.get(tensor.index, tensor.index)
        bytes_ = 0 if tensor.index in passed else _stored(tensor, 1 if tensor.index in plain else channel_multiple)
        sizes[root] = max(sizes.get(root, 0), bytes_)
        first[root] = min(first.get(root, place), place)
        last[root] = max(last.get(root, place), place)

    extra = [0] * end
    for tensor in group.inputs:
        use(tensor, 0)
        if tensor.variable:
            use(tensor, end - 1)
    for place, index in enumerate(group.operators):
        operator = graph.operators[index]
        for tensor in (*operator.computed, *operator.outputs):
            use(tensor, place)
        extra[place] = 0 if index in elsewhere else _copies(operator, channel_multiple)
    for tensor in group.outputs:
        use(tensor, end - 1)
    for place, held in _held(group, buffers).items():
        extra[place] += held
    alive = [
        extra[place] + sum(size for root, size in sizes.items() if first[root] <= place <= last[root]) for place in range(end)
    ]
    return max(alive, default=0)


def _copies(operator: SourceOperator, multiple: int) -> int:
    """Bytes beside an operator's inputs and outputs."""
    values = sum(_stored(tensor, multiple) for tensor in operator.computed)
    if operator.name == "ARG_MAX":
        return 2 * values
    if operator.name in RESIZES:
        return max(0, _stored(operator.outputs[0], multiple) // 4 - values)
    if operator.name == "SOFTMAX":
        return SOFTMAX_BYTES * operator.outputs[0].elements
    state = operator.input(LSTM_STATE) if operator.name == "UNIDIRECTIONAL_SEQUENCE_LSTM" else None
    return LSTM_BYTES * state.elements if state is not None else 0


def _held(group: OperatorGroup, buffers: Mapping[int, Buffer]) -> Mapping[int, int]:
    """Place → bytes of weights: all that the operator uses in turns, or its last part and the first of the next operator."""
    running = [(place, buffers[index]) for place, index in enumerate(group.operators) if index in buffers]
    following = [buffer.parts[0] if buffer.early else 0 for _, buffer in running[1:]] + [0]
    pairs = zip(running, following, strict=False)
    return {place: max(sum(buffer.parts), buffer.last + early) for (place, buffer), early in pairs}


def _stored(tensor: SourceTensor, multiple: int) -> int:
    batch, height, width, channels = sides(tensor.shape)
    elements = batch * height * width * -(-channels // multiple) * multiple
    return -(-elements * tensor.bits // 8 // ALIGNMENT) * ALIGNMENT


def _in_rows(graph: SourceGraph, group: OperatorGroup) -> set[int]:
    """Values whose shape changes without a copy, or that are multiplied as rows: stored as they are."""
    operators = [graph.operators[index] for index in group.operators]
    viewed = {t.index for o in operators if o.name in VIEWS for t in (*o.computed, *o.outputs)}
    joins = [(o.computed, o.outputs) for o in operators if o.name in JOINS] + [
        (o.outputs, o.computed) for o in operators if o.name in PARTS
    ]
    uneven = {t.index for parts, wholes in joins if any(_uneven(parts, whole) for whole in wholes) for t in (*parts, *wholes)}
    return viewed | uneven | {t.index for o in operators if o.name == "FULLY_CONNECTED" for t in o.computed}


def _uneven(parts: Sequence[SourceTensor], whole: SourceTensor) -> bool:
    """True if a part may begin within a multiple of the channels of its whole."""
    return any(sides(part.shape)[3] != sides(whole.shape)[3] and sides(part.shape)[3] % ALIGNMENT for part in parts)


def _storage(
    graph: SourceGraph, group: OperatorGroup, elsewhere: Collection[int], fused: Collection[int], plain: Collection[int]
) -> Mapping[int, int]:
    """Value → the value whose storage it shares."""
    found: dict[int, int] = {}
    retained = {tensor.index for tensor in (*group.inputs, *group.outputs)}

    def root(index: int) -> int:
        while index in found:
            index = found[index]
        return index

    for operator in (graph.operators[index] for index in group.operators if index not in elsewhere):
        out = operator.outputs[0]
        for tensor in operator.computed:
            alone = len(graph.readers.get(tensor.index, ())) == 1 and tensor.index not in retained
            alike = (tensor.shape, tensor.bits, tensor.index in plain) == (out.shape, out.bits, out.index in plain)
            overwrites = operator.name in OVERWRITES and alone and alike and out.index not in found
            if operator.name in VIEWS or operator.index in fused or overwrites:
                found[out.index] = root(tensor.index)
            elif operator.name in JOINS and alone and root(tensor.index) != out.index:
                found[root(tensor.index)] = out.index
    return {index: root(index) for index in found}
