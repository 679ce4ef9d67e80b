"""States that go from one execution of a model to the next: of RNNs and LSTMs, and variables."""

from __future__ import annotations

import numpy as np

from nnbridge.extensions import operand_dtype
from nnbridge.model import Array, Model, Operand


class States:
    """The present values of a model's states. Executions that share one continue where the last one ended."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._values: list[Array] = []
        self.reset()

    def reset(self) -> None:
        """Back to the first values."""
        main = self._model.main
        self._values = [_first(main.operands[main.inputs[s.input]], s.initial) for s in self._model.states]

    @property
    def values(self) -> dict[str, Array]:
        """The present values by the names of the inputs that they go to."""
        main = self._model.main
        names = [main.operands[main.inputs[s.input]].name or f"input{s.input}" for s in self._model.states]
        return dict(zip(names, self._values, strict=True))

    def inputs(self) -> dict[int, Array]:
        """The present values by model input."""
        return {s.input: value for s, value in zip(self._model.states, self._values, strict=True)}

    def update(self, outputs: list[Array]) -> None:
        """Set the values to the model's outputs of an execution."""
        self._values = [outputs[s.output] for s in self._model.states]


def _first(operand: Operand, initial: bytes) -> Array:
    dtype = operand_dtype(operand)
    if not initial:
        return np.zeros(operand.dims, dtype)
    return np.frombuffer(initial, dtype).reshape(operand.dims)
