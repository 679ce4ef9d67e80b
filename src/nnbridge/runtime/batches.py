"""Several samples at a time: inputs that hold more along their first axis than the model takes.

A model whose first dimensions are open computes any batch itself, bound once for each size (see :mod:`nnbridge.cpu.executor`).
One that states its batch computes it again and again, with the same weights and buffers: answers are those of single runs bit for
bit, cost grows linearly with the samples, and memory does not grow.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from nnbridge.errors import InputError, Reason
from nnbridge.extensions import value_size
from nnbridge.model import Array, input_name, known, output_name
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.control_flow import shaped
from nnbridge.runtime.execution import Execution
from nnbridge.runtime.plan_runner import RunReport, allocated


class Batches:
    """Runs of a finished compilation on batches of any size, one after another."""

    def __init__(self, compilation: Compilation) -> None:
        self._compilation = compilation
        model = compilation.model
        if model.states:
            raise InputError(
                Reason("a model without states, whose samples do not depend on each other", f"{len(model.states)} states")
            )
        main = model.main
        self._inputs = {input_name(main.operands[i], k): main.operands[i] for k, i in enumerate(main.inputs)}
        self._outputs = {output_name(main.operands[i], k): main.operands[i] for k, i in enumerate(main.outputs)}
        self._open = any(operand.is_tensor and not known(operand.dims) for operand in self._inputs.values())
        self.report = RunReport()
        """What the last run did."""
        self._bound: tuple[Execution, dict[str, Array], dict[str, Array]] | None = None

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by name, of all samples one after another along the first axis.

        InputError for inputs whose first axes are not the same multiple of the model's, and for outputs without a batch axis.
        """
        if self._open:
            execution = Execution(self._compilation)
            answers = execution.run(inputs)
            self.report = execution.report
            return answers
        count = self._count(inputs)
        stacks: dict[str, list[Array]] = {name: [] for name in self._outputs}
        for k in range(count):
            part = {name: self._part(name, np.asarray(value), k) for name, value in inputs.items()}
            for name, value in self._one(part).items():
                stacks[name].append(value.copy())
        return {name: values[0] if count == 1 else np.concatenate(values) for name, values in stacks.items()}

    def _part(self, name: str, value: Array, k: int) -> Array:
        """The k-th of the model's batches; what all samples share as it is."""
        operand = self._inputs[name]
        if value.shape == operand.dims:
            return value
        size = operand.dims[0]
        return value[k * size : (k + 1) * size]

    def _count(self, inputs: Mapping[str, Array]) -> int:
        """The number of the model's batches."""
        counts = {}
        for name, operand in self._inputs.items():
            if name not in inputs:
                raise InputError(Reason("a value for every input", f"none for {name}"))
            shape, dims = np.shape(inputs[name]), operand.dims
            if shape == dims:
                continue
            fits = len(shape) == len(dims) > 0 and shape[1:] == dims[1:] and shape[0] and shape[0] % dims[0] == 0
            if not fits:
                rule = f"shape {list(dims)}, or a multiple along the first axis"
                raise InputError(Reason(rule, str(list(shape)), operand=name))
            counts[name] = shape[0] // dims[0]
        if unknown := inputs.keys() - self._inputs.keys():
            raise InputError(Reason(f"an input of the model ({', '.join(self._inputs)})", ", ".join(sorted(unknown))))
        if len(set(counts.values())) > 1:
            raise InputError(Reason("as many samples in every input", ", ".join(f"{n} in {name}" for name, n in counts.items())))
        count = next(iter(counts.values()), 1)
        for name, operand in self._outputs.items():
            if count > 1 and not operand.dims:
                raise InputError(Reason("outputs with a batch axis for several samples", "a scalar", operand=name))
        return count

    def _one(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """The outputs of one of the model's batches, valid until the next."""
        if self._bound is None and all(not o.is_tensor or known(o.dims) for o in self._outputs.values()):
            self._bound = self._bind(inputs)
        if self._bound is None or any(inputs[name].dtype != place.dtype for name, place in self._bound[1].items()):
            execution = Execution(self._compilation)
            answers: Mapping[str, Array] = execution.run(inputs)
        else:
            execution, places, answers = self._bound
            for name, place in places.items():
                place[...] = inputs[name]
            execution.compute()
        self.report = execution.report
        return answers

    def _bind(self, inputs: Mapping[str, Array]) -> tuple[Execution, dict[str, Array], dict[str, Array]]:
        """A reusable execution on arrays of its own."""
        execution, places, answers = Execution(self._compilation), {}, {}
        execution.set_reusable(True)
        for k, name in enumerate(self._inputs):
            places[name] = np.array(inputs[name], order="C")
            execution.set_input(k, places[name])
        for k, (name, operand) in enumerate(self._outputs.items()):
            buffer = allocated(value_size(operand))
            execution.set_output(k, buffer)
            answers[name] = shaped(buffer, operand, operand.dims)
        return execution, places, answers
