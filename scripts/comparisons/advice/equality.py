"""Bitwise comparison of a rewritten file's outputs with its original's, in every engine that runs the original."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from script_support import Array, finished

from nnbridge import Execution, Model, NnbridgeError, load
from nnbridge.advice import different_outputs
from nnbridge.compare import seeded_inputs
from nnbridge.compare.litert import LiteRT
from nnbridge.compare.onnx_runtime import OnnxRuntime
from nnbridge.converters import ConversionOptions
from nnbridge.converters.edits import Edit
from nnbridge.file import ModelFile

Shapes: TypeAlias = "Mapping[str, tuple[int, ...]]"
Values: TypeAlias = "Mapping[str, Array]"
Run: TypeAlias = "Callable[[Values], Values]"

_SIZES = tuple(2**k for k in range(1, 11))
"""Open dimensions that are tried where a file does not run with 1; windows of sound, such as 512, are among them."""
_STATED_SHAPE = {"TRANSPOSE_CONV": 0, "RESHAPE": 1}
"""Operators whose output dimensions are an input → which one. Random dimensions do not fit the other inputs."""


@dataclass(frozen=True)
class Judgement:
    """The engines' verdicts on a file and the rewritten one."""

    engines: tuple[str, ...] = ()
    """Those that ran both."""
    wrong: str = ""
    """The first output that differs, or why the rewritten file does not run."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Engines that do not run the original, and why."""

    @property
    def outcome(self) -> str:
        """``equal``, ``failed``, or ``not run`` where no engine runs the original."""
        return "failed" if self.wrong else "equal" if self.engines else "not run"

    def __str__(self) -> str:
        return " and ".join(self.engines) or "no engine"


@dataclass(frozen=True)
class Proof:
    """An exact rewrite: the operator alone on all inputs, and the whole file on one; on all where nothing runs alone."""

    whole: Judgement
    alone: Judgement

    @property
    def outcome(self) -> str:
        """``equal`` only if the whole file ran."""
        return "failed" if self.alone.wrong else self.whole.outcome

    @property
    def wrong(self) -> str:
        """The differences."""
        return f"alone: {self.alone.wrong}" if self.alone.wrong else self.whole.wrong

    @property
    def judges(self) -> str:
        """The engines with the outputs that each judged."""
        if self.alone.engines:
            return f"the operator alone on all inputs by {self.alone}, the whole file on one by {self.whole}"
        return f"the whole file on all inputs by {self.whole}"

    @property
    def refused(self) -> str:
        """Engines that do not run the original, and why."""
        sides = {"alone": self.alone, "whole file": self.whole}
        return "; ".join(f"{side}, {name}: {why}" for side, one in sides.items() for name, why in one.refused.items())


def prove(path: Path, edit: Edit, inputs: int) -> Proof:
    """Run an exact rewrite beside the original."""
    with tempfile.TemporaryDirectory() as scratch:
        files = [Path(scratch) / name / path.name for name in ("whole", "one", "other")]
        for file in files:
            file.parent.mkdir()
        edited, one, other = files
        edit.content().write(edited)
        operator, alone = ModelFile(path).adjustable(edit.subgraph, edit.index), Judgement()
        if operator is not None and edit.alone is not None:
            operator.content({}, True).write(one)
            edit.alone().write(other)
            alone = judge(one, other, inputs)
        return Proof(judge(path, edited, 1 if alone.engines else inputs, wide=not edit.keys), alone)


def judge(path: Path, edited: Path, inputs: int, *, wide: bool = False) -> Judgement:
    """Both files on the same random inputs, in each engine that runs the original on the first of them.

    ``wide``: nnbridge hands over all that NNAPI has, of a file that TFLite refuses the delegate for, too.
    """
    shapes, refused = _fitting(path, path.stat().st_mtime_ns)
    engines = tuple(name for name in _ENGINES[path.suffix] if name not in refused)
    if not engines:
        return Judgement(refused=refused)
    trial = _Trial(path, shapes, wide)

    def answers(file: Path, seed: int) -> Values:
        return {f"{e}: {name}": value for e in engines for name, value in trial.run(e, file, seed).items()}

    try:
        return Judgement(engines, different_outputs(answers, path, edited, range(inputs)), refused)
    except NnbridgeError as error:
        failure = f"does not run: {error}"
    # Nothing is said of a rewrite on inputs that the original does not run on.
    original = _Trial(path, shapes, wide)
    later = {e: why for e in engines if (why := next(filter(None, (original.refusal(e, seed) for seed in range(inputs))), ""))}
    return Judgement(refused={**refused, **later}) if later else Judgement(engines, failure, refused)


@lru_cache(maxsize=2)
def _fitting(path: Path, changed: int) -> tuple[Shapes, Mapping[str, str]]:
    """The first dimensions of a file's inputs with which most engines run it, and which do not, and why.

    ``changed``: when the file was written. What runs here is not used again: files may have states, which both sides begin with.
    """
    best: tuple[Shapes, dict[str, str]] | None = None
    for shapes in _choices(path):
        trial = _Trial(path, shapes)
        refused = {engine: why for engine in _ENGINES[path.suffix] if (why := trial.refusal(engine, 0))}
        if best is None or len(refused) < len(best[1]):
            best = shapes, refused
        if not refused:
            break
    assert best is not None, "one choice at least"
    return best


def _choices(path: Path) -> Iterator[Shapes]:
    """Nothing stated, then dimensions of the inputs that leave some open, each of these with one size."""
    yield {}
    try:
        dims = {
            tensor.name: [max(d or 0, 0) for d in tensor.shape or ()]
            for tensor in ModelFile(path, ConversionOptions()).inspection.inputs
        }
    except NnbridgeError:
        return
    still_open = {name: shape for name, shape in dims.items() if 0 in shape}
    for size in _SIZES if still_open else ():
        yield {name: tuple(d or size for d in shape) for name, shape in still_open.items()}


@dataclass(frozen=True)
class _Trial:
    """A file, and rewritten ones, on the file's random inputs."""

    path: Path
    shapes: Shapes
    """Of inputs that leave dimensions open, which are 1 where nothing is stated."""
    wide: bool = False
    _runs: dict[tuple[str, Path], Run] = field(default_factory=dict)

    def run(self, engine: str, file: Path, seed: int) -> Values:
        """An engine's answers for a file; states continue from run to run."""
        if (engine, file) not in self._runs:
            made = _wide if self.wide and engine == "nnbridge" else _ENGINES[file.suffix][engine]
            self._runs[engine, file] = made(file, self.shapes)
        return self._runs[engine, file](self._inputs(seed))

    def refusal(self, engine: str, seed: int) -> str:
        """The reason why an engine does not run the original; empty if it does."""
        try:
            self.run(engine, self.path, seed)
        except NnbridgeError as error:
            return str(error).splitlines()[0]
        return ""

    @cached_property
    def _inputs(self) -> Callable[[int], Values]:
        model, dims = _model(self.path, self.shapes), _stated_dimensions(self.path)
        return lru_cache(maxsize=1)(lambda seed: {name: dims.get(name, v) for name, v in seeded_inputs(model, seed).items()})


def _stated_dimensions(path: Path) -> dict[str, Array]:
    """Inputs of a TFLite file that are dimensions of an operator's output: as the file states them."""
    if path.suffix != ".tflite":
        return {}
    graph = ModelFile(path).source_graph
    named = {tensor.index: tensor.name for tensor in graph.inputs}
    found = {}
    for operator in graph.operators:
        tensor = operator.input(_STATED_SHAPE[operator.name]) if operator.name in _STATED_SHAPE else None
        if tensor is not None and tensor.index in named and not operator.outputs[0].open_dims:
            found[named[tensor.index]] = np.asarray(operator.outputs[0].shape, np.int32)
    return found


def _model(file: Path, shapes: Shapes) -> Model:
    return load(file, ConversionOptions(mapping="phone", shapes=shapes))


def _nnbridge(file: Path, shapes: Shapes) -> Run:
    compilation = finished(_model(file, shapes))
    return lambda inputs: Execution(compilation).run(inputs)


def _wide(file: Path, shapes: Shapes) -> Run:
    compilation = finished(load(file, ConversionOptions(shapes=shapes)))
    return lambda inputs: Execution(compilation).run(inputs)


def _litert(file: Path, shapes: Shapes) -> Run:
    return _numbered(LiteRT(file, kernels="optimised"))


def _onnx_runtime(file: Path, shapes: Shapes) -> Run:
    return _numbered(OnnxRuntime(file))


def _numbered(runtime: Any) -> Run:
    """A runtime's outputs, which are in the file's order, by their number; it takes the inputs' dimensions as they are."""
    return lambda inputs: {f"output {k}": np.ascontiguousarray(value) for k, value in enumerate(runtime.run(inputs))}


_ENGINES: dict[str, dict[str, Callable[[Path, Shapes], Run]]] = {
    ".tflite": {"nnbridge": _nnbridge, "LiteRT": _litert},
    ".onnx": {"nnbridge": _nnbridge, "ONNX Runtime": _onnx_runtime},
}
"""File name ending → the engines that run such files."""
