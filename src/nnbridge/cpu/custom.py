"""Operations that a device computes by functions of its own, as steps of the executor: host operations, drivers with kernels.

Such a function sees its operands as :class:`~nnbridge.extensions.Arg` and refuses them with an
:class:`~nnbridge.errors.NnapiError` or by whatever else it raises. A result that does not fit its declaration is refused for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from nnbridge.errors import NnapiError, OpFailedError, Reason, pass_shortage
from nnbridge.extensions import Arg, ModelKernel, PreparedHostKernel, operand_dtype
from nnbridge.model import Array, Model, Operand, Operation, Subgraph, known
from nnbridge.records import dataclass
from nnbridge.types import Lifetime, OperandCode

Args: TypeAlias = Sequence[Arg]
Function: TypeAlias = "Callable[[Args, Args], Sequence[Array]]"
"""``function(inputs, outputs)`` returns the output arrays; ``outputs`` carry the declared types, dimensions and parameters."""

_Shapes: TypeAlias = "tuple[tuple[int, ...] | None, ...]"
"""Of the inputs that are no constants; None for omitted ones."""
_MOST_PREPARED = 16
"""Combinations of input shapes that one operation stays prepared for."""


@dataclass(frozen=True)
class CustomKernel:
    """The kernel of one operation that a device computes itself."""

    label: str
    """The operation in errors."""
    inputs: tuple[int, ...]
    """The operands that the function gets."""
    function: Function
    prepare: Callable[[Args, Args], PreparedHostKernel | None] | None = None
    """From inputs of known dimensions, constants with data, to a function of all inputs' arrays; None where values are needed."""
    control: str = ""
    """``if`` or ``while``: the executor runs the bodies among the inputs, and no function."""
    as_model: Callable[[], ModelKernel | None] | None = None
    """NNAPI's operations on the operands as declared that compute the same; None where there are none."""


def labelled(name: str, operation: Operation) -> str:
    """An operation in errors: what it is, and its place in the file."""
    return f"{name} ({operation.name})" if operation.name else name


def declared_argument(model: Model, operand: Operand) -> Arg:
    """An operand as declared, with its value if it is a constant."""
    arg = Arg.of(operand, present=operand.lifetime is not Lifetime.NO_VALUE)
    if not operand.is_constant:
        return arg
    value = np.frombuffer(model.bytes_of(operand), operand_dtype(operand))
    # An OEM scalar has as many bytes as its maker likes.
    value = value if operand.type == OperandCode.OEM_SCALAR else value.reshape(operand.dims)
    return arg.with_value(value, value.shape)


class CustomStep:
    """A custom kernel on its operands, prepared once for each combination of their dimensions. Threads share it."""

    def __init__(self, model: Model, subgraph: Subgraph, operation: Operation, kernel: CustomKernel) -> None:
        self.kernel, self.outputs = kernel, operation.outputs
        self._inputs = [declared_argument(model, subgraph.operands[i]) for i in kernel.inputs]
        self._outputs = [declared_argument(model, subgraph.operands[i]) for i in operation.outputs]
        self._dtypes = [operand_dtype(subgraph.operands[i]) for i in operation.outputs]
        self._constants = [arg.value for arg in self._inputs]
        self._varying = [(k, i) for k, i in enumerate(kernel.inputs) if self._constants[k] is None]
        self._prepared: dict[_Shapes, PreparedHostKernel | None] = {}
        """None where values are needed."""
        self._last: tuple[_Shapes, PreparedHostKernel | None] | None = None
        """What was asked for last, which most runs ask for again: read without the lock."""
        self._lock = threading.Lock()

    def prepare_declared(self) -> None:
        """Prepare for the declared dimensions if all are known; what goes wrong is raised when the operation runs."""
        if self.kernel.prepare is None or not all(a.value is not None or not a.present or known(a.dims) for a in self._inputs):
            return
        key = tuple([arg.dims if (arg := self._inputs[k]).present else None for k, _ in self._varying])
        try:
            if key not in self._prepared:
                self._prepare(key)
        except Exception as error:
            pass_shortage(error)

    def compute(self, values: Sequence[Array | None]) -> list[Array]:
        """The results in their operands' types and of the declared dimensions; OP_FAILED for whatever goes wrong."""
        arrays = self._constants.copy()
        for k, i in self._varying:
            arrays[k] = values[i]
        try:
            results = (self._function(arrays) or self._plain)(arrays)
            return [self._checked(*pair) for pair in zip(results, self._outputs, self._dtypes, strict=True)]
        except NnapiError:
            raise
        except Exception as error:
            pass_shortage(error)
            rule = "a function that computes the operation"
            raise OpFailedError(Reason.of_kernel(error, rule, self.kernel.label, named=True)) from error

    def _function(self, arrays: Sequence[Array | None]) -> PreparedHostKernel | None:
        if self.kernel.prepare is None:
            return None
        key = tuple([None if (array := arrays[k]) is None else array.shape for k, _ in self._varying])
        last = self._last
        if last is not None and last[0] == key:
            return last[1]
        with self._lock:
            if key in self._prepared:
                # Taken out and put back: the combination that was not used for longest comes first.
                found = self._prepared[key] = self._prepared.pop(key)
                self._last = key, found
                return found
        return self._prepare(key)

    def _prepare(self, key: _Shapes) -> PreparedHostKernel | None:
        assert self.kernel.prepare is not None
        seen = self._inputs.copy()
        for (k, _), dims in zip(self._varying, key, strict=True):
            seen[k] = replace(seen[k], dims=seen[k].dims if dims is None else dims, present=dims is not None)
        found = self.kernel.prepare(seen, self._outputs)
        with self._lock:
            self._prepared[key] = found
            self._last = key, found
            if len(self._prepared) > _MOST_PREPARED:
                del self._prepared[next(iter(self._prepared))]
        return found

    def _plain(self, arrays: Sequence[Array | None]) -> Sequence[Array]:
        """The function of tensors, which looks at values and dimensions at each run."""
        seen = [
            replace(arg, present=False) if array is None else arg.with_value(array, array.shape)
            for arg, array in zip(self._inputs, arrays, strict=True)
        ]
        return self.kernel.function(seen, self._outputs)

    def _checked(self, result: Array, declared: Arg, dtype: np.dtype[np.generic]) -> Array:
        if result.__class__ is np.ndarray and result.dtype is dtype and result.shape == declared.dims:
            return result
        array = typed(np.asarray(result), dtype, self.kernel.label)
        if array.shape != declared.dims and not _fits(array, declared):
            rule = f"an output of {list(declared.dims)} as declared"
            raise OpFailedError(Reason(rule, str(list(array.shape)), self.kernel.label))
        return array


def typed(array: Array, dtype: np.dtype[np.generic], label: str) -> Array:
    """A result in its operand's type; an imaginary part is never dropped."""
    if array.dtype.kind == "c" and dtype.kind != "c":
        raise OpFailedError(Reason(f"a result of {dtype}", str(array.dtype), label))
    return array.astype(dtype, copy=False)


def _fits(array: Array, declared: Arg) -> bool:
    """True for dimensions that only fill in what is not declared."""
    rank_fits = len(declared.dims) in (0, array.ndim)
    return rank_fits and all(stated in (0, found) for stated, found in zip(declared.dims, array.shape, strict=False))
