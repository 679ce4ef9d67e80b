"""Operations that choose among equal numbers, computed so that of equal ones the first comes first.

NNAPI leaves that order open. Its CPU has Android's: DETECTION_POSTPROCESSING takes boxes from a list whose gaps are filled from
the end, TOPK_V2 lists equal numbers from the last to the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from nnbridge.compare.arithmetics import operand_value
from nnbridge.compare.arrays import Array
from nnbridge.model import Model, Operation
from nnbridge.types import OperationCode

_REGULAR, _THRESHOLD = 7, 11
"""Inputs of DETECTION_POSTPROCESSING: whether boxes are suppressed by class, and the score that they must exceed."""
_MOST_RANKS = 1 << 24
"""As many integers float32 has without gaps."""


def first_of_equals(model: Model, inputs: Sequence[Array]) -> Array | None:
    """A model's only output in that order; None if no operation of it has the choice, or where the order cannot be stated."""
    main = model.main
    ordering = next((operation for operation in main.operations if operation.type in _ORDERED), None)
    if ordering is None:
        return None
    values = dict(zip(main.inputs, inputs, strict=True))
    numbers = operand_value(model, values, ordering.inputs[0])
    return None if numbers is None else _ORDERED[OperationCode(ordering.type)](model, ordering, numbers, values)


def _detections(model: Model, operation: Operation, scores: Array, values: Mapping[int, Array]) -> Array | None:
    """Detections by the ranks of scores, of which no two are equal."""
    main = model.main
    floor, regular = (model.value(main.operands[operation.inputs[i]]) for i in (_THRESHOLD, _REGULAR))
    if floor is None or regular is None or scores.dtype != np.float32 or scores.size >= _MOST_RANKS:
        return None
    rising = _rising(scores, by_class=bool(regular))
    ordered, ranks = scores.ravel()[rising], np.empty(scores.size, np.float32)
    ranks[rising] = np.arange(1, scores.size + 1)
    limit = np.array(np.searchsorted(ordered, floor, side="right") + 0.5, np.float32)
    by_rank = model.with_main(main.operands, {operation.inputs[_THRESHOLD]: limit})
    result = operand_value(by_rank, {**values, operation.inputs[0]: ranks.reshape(scores.shape)}, main.outputs[0])
    if result is None or main.outputs[0] != operation.outputs[0]:
        return result
    return np.where(result > 0, ordered[np.maximum(result.astype(np.int64) - 1, 0)], np.float32(0))


def _rising(scores: Array, *, by_class: bool) -> Array:
    """Positions of scores [batch, boxes, classes] by rising score; of equal ones the first box, or class, comes last."""
    _, boxes, classes = (-axis.ravel() for axis in np.indices(scores.shape))
    return np.lexsort((boxes, classes, scores.ravel()) if by_class else (classes, boxes, scores.ravel()))


def _largest(model: Model, operation: Operation, numbers: Array, values: Mapping[int, Array]) -> Array | None:
    """Check of the indexes of TOPK_V2's numbers."""
    count = model.value(model.main.operands[operation.inputs[1]])
    if count is None:
        return None
    # A stable sort has the last of equal numbers last: it is reversed before and after.
    last = numbers.shape[-1] - 1
    falling = last - np.argsort(numbers[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    indexes = falling[..., : int(count)].astype(np.int32)
    return operand_value(model, {**values, operation.outputs[1]: indexes}, model.main.outputs[0])


_ORDERED: Mapping[OperationCode, Callable[[Model, Operation, Array, Mapping[int, Array]], Array | None]] = {
    OperationCode.DETECTION_POSTPROCESSING: _detections,
    OperationCode.TOPK_V2: _largest,
}
"""Operation → a model's output with the first of equal numbers first."""
ORDERED = tuple(_ORDERED)
"""The operations that choose among equal numbers."""
