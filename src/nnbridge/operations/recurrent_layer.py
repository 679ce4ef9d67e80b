"""A recurrent layer of real numbers as ONNX has it: the compiled kernels see what it is, its caller provides the reference."""

from __future__ import annotations

from collections.abc import Sequence

from nnbridge.extensions import Arg, PreparedHostKernel, StatedKernel
from nnbridge.model import Array
from nnbridge.records import dataclass

ACTIVATIONS = {"relu": 1, "tanh": 4, "sigmoid": 6}
"""Activation → the number that NNAPI's recurrent operations have for it."""
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
"""Layer → its gates, in ONNX's order."""


@dataclass(frozen=True, eq=False)
class RecurrentLayer(StatedKernel):
    """RNN, GRU or LSTM over whole sequences, in one or both directions."""

    inputs: Sequence[Arg]
    outputs: Sequence[Arg]
    """The sequence, the last states and the last cell states, as far as ``present`` says so."""
    places: tuple[int, ...]
    """The sequence, then the first states, where there are any."""
    kind: str
    backwards: tuple[bool, ...]
    """For each direction whether it goes from the last step to the first."""
    activations: tuple[str, ...]
    """Of the gates, then of the candidate and of the output, for both directions."""
    weights: Array
    """[directions, gates * units, inputs]"""
    recurrent: Array
    """[directions, gates * units, units]"""
    bias: Array
    """[directions, of inputs or of the state, gates, units]"""
    present: tuple[bool, bool, bool]
    """Which of the outputs there are."""
    batch_first: bool
    after: bool
    """The reset gate of a GRU acts on what its state is multiplied to."""
    run: PreparedHostKernel

    def __call__(self, arrays: Sequence[Array | None]) -> Sequence[Array]:
        return self.run(arrays)
