"""LiteRT, which is imported when it is used, as a reference that answers are compared with.

The process that it runs in imports little beside it.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nnbridge.errors import InputError, PackageError, Reason, first_line
from nnbridge.records import dataclass

if TYPE_CHECKING:
    from nnbridge.compare.arrays import Array

RESOURCES = ("CALL_ONCE", "MULTINOMIAL", "RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM", "VAR_HANDLE")
"""Operators with state that outlives LiteRT's reset: variables, positions in streams of random numbers."""


@dataclass
class NamedTensors:
    """Every tensor of one run of a reference."""

    named: dict[tuple[int, str], Array | None] = field(default_factory=dict)
    """Subgraph and name → value; None for a name that several tensors have."""
    produced: dict[tuple[int, int, str], Array] = field(default_factory=dict)
    """Subgraph, operator and name → value."""

    def add(self, subgraph: int, name: str, value: Array) -> None:
        """Add a tensor by its name."""
        self.named[subgraph, name] = None if (subgraph, name) in self.named else value


_log = logging.getLogger(__name__)
_INSTEAD = ("reference", "optimised", "xnnpack")
"""Sets of kernels; each is used where those before it do not load a file: a few operators have no reference kernel of their own,
and MediaPipe's are XNNPACK's only."""


class LiteRT:
    """LiteRT (TFLite) with its reference kernels, on one thread."""

    name = "litert"

    def __init__(
        self, path: Path, signature: str = "", kernels: str = "reference", *, preserve: bool = False, strict: bool = False
    ) -> None:
        """``kernels``: ``reference``, ``optimised`` (plain ones for the processor) or ``xnnpack``.

        ``preserve``: retain every tensor for :meth:`tensors`; ``strict``: no other kernels where these do not load a file.
        """
        try:
            from ai_edge_litert.interpreter import Interpreter, OpResolverType
        except ImportError as error:
            raise PackageError.needed("LiteRT", "ai-edge-litert", error, "reference") from error
        resolver = {
            "reference": OpResolverType.BUILTIN_REF,
            "optimised": OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
            "xnnpack": OpResolverType.BUILTIN,
        }
        self._path, self._signature = path, signature
        settings = {"num_threads": 1, "experimental_preserve_all_tensors": preserve}
        refused: Exception | None = None
        for name in (kernels, *(() if strict else _INSTEAD[_INSTEAD.index(kernels) + 1 :])):
            self._make = partial(Interpreter, str(path), experimental_op_resolver_type=resolver[name], **settings)
            try:
                self._open()
            except (ValueError, RuntimeError) as error:
                refused = refused or error
                continue
            if refused is not None and name == _INSTEAD[-1]:
                rule = "LiteRT's %s kernels do not load %s (%s): compared with its default ones, XNNPACK's"
                _log.warning(rule, kernels, path.name, first_line(refused))
            return
        assert refused is not None
        runs = f"LiteRT's {kernels} kernels run" if strict else "LiteRT runs"
        raise InputError(Reason(f"a model that {runs}", first_line(refused), file=str(path))) from refused

    def _open(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of tensors that are preserved beside XNNPACK's
            self._interpreter = self._make()
        self._interpreter.allocate_tensors()
        self._runner = self._interpreter.get_signature_runner(self._signature) if self._signature else None

    def load(self) -> None:
        """Load the file as an app's interpreter does; RuntimeError with LiteRT's words where it does not."""
        from nnbridge.engines.loading import load

        load(self._path)

    def reset(self) -> None:
        """Reset variable tensors; resource variables need a new interpreter, as LiteRT cannot reset them."""
        if any(operator["op_name"] in RESOURCES for operator in self._interpreter._get_ops_details()):
            self._open()
        self._interpreter.reset_all_variables()

    def run(self, inputs: Mapping[str, Array]) -> Sequence[Array] | Mapping[str, Array]:
        """Outputs in the file's order, those of a signature by name; inputs in the file's order or by name."""
        try:
            return self._outputs(inputs)
        except (ValueError, RuntimeError, TypeError, KeyError) as error:
            raise InputError(Reason("inputs that LiteRT runs", first_line(error), operand="reference litert")) from error

    def _outputs(self, inputs: Mapping[str, Array]) -> Sequence[Array] | Mapping[str, Array]:
        if self._runner is not None:
            outputs: Mapping[str, Array] = self._runner(**inputs)
            return {name: np.array(value) for name, value in outputs.items()}
        interpreter = self._interpreter
        details = interpreter.get_input_details()
        resized = False
        for detail, value in zip(details, inputs.values(), strict=True):
            if tuple(detail["shape"]) != value.shape:
                interpreter.resize_tensor_input(detail["index"], value.shape)
                resized = True
        if resized:
            interpreter.allocate_tensors()
        for detail, value in zip(details, inputs.values(), strict=True):
            interpreter.set_tensor(detail["index"], value)
        interpreter.invoke()
        return [np.array(interpreter.get_tensor(d["index"])) for d in interpreter.get_output_details()]

    def _handed_out(self) -> set[int] | None:
        """The tensors that are known to be written where XNNPACK computes; None where no delegate does."""
        delegates = [o for o in self._interpreter._get_ops_details() if o["op_name"] == "DELEGATE"]
        if not delegates:
            return None
        ends = (*self._interpreter.get_input_details(), *self._interpreter.get_output_details())
        return {int(i) for o in delegates for i in o["outputs"]} | {int(detail["index"]) for detail in ends}

    def tensors(self) -> NamedTensors:
        """Every tensor of the last run, of bodies their last iteration's; where a delegate computes, what it hands out."""
        interpreter, values = self._interpreter, NamedTensors()
        handed = self._handed_out()
        by_index: dict[int, tuple[str, Array]] = {}
        for subgraph in range(interpreter.num_subgraphs()):
            for detail in interpreter.get_tensor_details(subgraph_index=subgraph):
                if np.dtype(detail["dtype"]).kind == "O":
                    continue  # handles of resources: LiteRT would return pointers as Python's objects
                if handed is not None and not (subgraph == 0 and detail["index"] in handed):
                    continue
                try:
                    value = np.array(interpreter.get_tensor(detail["index"], subgraph))
                except (ValueError, RuntimeError):
                    continue  # of a subgraph that did not run, or a temporary of LiteRT's own
                if subgraph == 0:
                    by_index[detail["index"]] = (detail["name"], value)
                values.add(subgraph, detail["name"], value)
        for operator in interpreter._get_ops_details():
            for index in operator["outputs"]:
                if index in by_index:
                    values.produced[0, operator["index"], by_index[index][0]] = by_index[index][1]
        return values


def opened(path: Path, signature: str, preserve: bool, kernels: str = "reference", strict: bool = False) -> LiteRT:
    """The reference, with every argument by its place."""
    create = partial(LiteRT, path, signature, kernels, preserve=preserve, strict=strict)
    if kernels != "xnnpack":
        return create()
    from nnbridge.engines.native import logged

    found, _ = logged(create)  # XNNPACK prints that it is there.
    if isinstance(found, Exception):
        raise found
    return found
