"""The causes of a comparison's differences: the layers of its first sample, each with what explains its own error, and what
only the network as a whole shows.

A network can make differences beyond tolerance of rounding that no operator has by itself; and a reference may differ from
itself, where it fuses operators. Both are measured: the same inputs are run again, changed in their last place or with sums in
other orders, and on the reference as the file is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from nnbridge.apart import EndedError
from nnbridge.compare.arithmetics import Runner
from nnbridge.compare.arrays import Array
from nnbridge.compare.causes import ROUNDING, SUMS, Cause
from nnbridge.compare.comparison import Comparison, OutputComparison
from nnbridge.compare.layers import Layer, compare_layers
from nnbridge.compare.references import REFERENCE_RUNTIMES, reference
from nnbridge.compare.samples import Sample, named_inputs, named_outputs, sign_flipped
from nnbridge.compare.tensors import tensors_of
from nnbridge.errors import NnapiError
from nnbridge.operations.numerics import DISTURBED, EXACT, NUMERICS
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from nnbridge.runtime.states import States

FUSIONS, AMPLIFIED = "reference_fusions", "amplified_rounding"
"""Kinds of causes that are a network's, not one operator's."""
_MARGIN = 4.0
"""How many times what one change of rounding makes of an output a difference may be: each is one sample."""
_TENTH = 0.1


def with_causes(
    comparison: Comparison, compilation: Compilation, path: Path, samples: Sequence[Sample], signature: str = ""
) -> Comparison:
    """A comparison with the causes of its first sample's differences, where the reference shows its tensors.

    Differences of floats within tolerance are not looked into: order of sums explains what is left of them.
    """
    known = REFERENCE_RUNTIMES.get(comparison.reference)
    if not samples or known is None or not known.shows_tensors or not any(map(_differs, comparison.outputs)):
        return comparison
    runtime = reference(comparison.reference, path, signature, preserve=True)
    operands = named_inputs(compilation.model)
    try:
        written = runtime.run({name: sign_flipped(operands[name], value) for name, value in samples[0].inputs.items()})
    except EndedError:
        return comparison  # The runtime does not live to show its tensors.
    found = compare_layers(compilation, comparison.reference, samples[:1], tensors_of(runtime))
    causes = dict.fromkeys(cause for layer in found.layers if (cause := _cause(layer)) is not None)
    whole = _of_network(comparison, compilation, samples[0], written, found.layers)
    return replace(comparison, causes=(*causes, *whole))


def _differs(output: OutputComparison) -> bool:
    return not output.within or bool(output.max_quant_diff)


def _cause(layer: Layer) -> Cause | None:
    return layer.cause if layer.own is not None and _differs(layer.own) else None


# -- what only the whole network shows ---------------------------------------------------------------------------------------


def _of_network(
    comparison: Comparison,
    compilation: Compilation,
    sample: Sample,
    written: Sequence[Array] | Mapping[str, Array],
    layers: Sequence[Layer],
) -> Iterator[Cause]:
    """Causes of what is beyond tolerance."""
    beyond = {output.name: output for output in comparison.outputs if not output.within and not output.problem}
    if not beyond:
        return
    try:
        ours = Execution(compilation, States(compilation.model)).run(sample.inputs)
        apart = _by_fusions(comparison.reference, beyond, ours, sample.outputs, written, compilation)
        if apart:
            yield Cause(FUSIONS, "", "", apart)
            return
        others = [layer for layer in layers if layer.own is not None and _differs(layer.own)]
        if all(map(_rounds, others)):
            spread = _amplified(compilation, sample, beyond, ours)
            if spread is not None:
                yield Cause(AMPLIFIED, "", "", _AMPLIFIED.format(spread))
    except NnapiError:  # A run that fails under another arithmetic is no evidence.
        return


def _rounds(layer: Layer) -> bool:
    """True for an own error that is rounding: its cause says so, or real numbers between two steps were quantised to either."""
    if layer.cause is not None:
        return layer.cause.kind in ROUNDING
    return layer.operation == "QUANTIZE" and layer.own is not None and layer.own.within


_AMPLIFIED = (
    "the network amplifies rounding: no operator by itself differs by more than rounding, and inputs or results that change in "
    "their last place, or other orders of sums, change these outputs as much ({:.2g})"
)


def _by_fusions(
    name: str,
    beyond: Mapping[str, OutputComparison],
    ours: Mapping[str, Array],
    fused: Sequence[Array] | Mapping[str, Array],
    written: Sequence[Array] | Mapping[str, Array],
    compilation: Compilation,
) -> str:
    """A sentence if outputs are the reference's, as it computes the file's own operators; empty if not."""
    if isinstance(fused, Mapping) or isinstance(written, Mapping):
        return ""
    largest = 0.0
    for output, with_fusions, without in zip(named_outputs(compilation.model), fused, written, strict=False):
        if output not in beyond:
            continue
        own = ours[output]
        if own.shape != np.shape(without) or own.dtype != np.asarray(without).dtype or own.dtype.kind not in "fiu":
            return ""
        found, itself = _largest(own, without), _largest(np.asarray(with_fusions), without)
        if found > max(_TENTH * itself, beyond[output].atol):
            return ""
        largest = max(largest, itself)
    fuses = f"{name} differs from itself by {largest:.2g} where it fuses operators"
    return f"{fuses}; as the file is written, its results are these" if largest else ""


def _amplified(
    compilation: Compilation, sample: Sample, beyond: Mapping[str, OutputComparison], ours: Mapping[str, Array]
) -> float | None:
    """The least that a change of rounding changes of an output beyond tolerance; None if one of them changes too little."""
    spread = dict.fromkeys(beyond, 0.0)
    for changed, own in _changed(compilation, sample, ours):
        for name in beyond:
            if changed[name].shape == own[name].shape and own[name].dtype.kind == "f":
                spread[name] = max(spread[name], _largest(changed[name], own[name]))
        if all((beyond[name].max_abs_diff or 0.0) <= _MARGIN * size for name, size in spread.items()):
            return min(spread.values())
    return None


def _changed(
    compilation: Compilation, sample: Sample, ours: Mapping[str, Array]
) -> Iterator[tuple[Mapping[str, Array], Mapping[str, Array]]]:
    """Outputs after changes that no one would call one, each beside those without."""
    rng = np.random.default_rng(0)
    model = compilation.model
    for _ in range(2 if any(array.dtype == np.float32 for array in sample.inputs.values()) else 0):
        inputs = {name: _in_the_last_place(array, rng) for name, array in sample.inputs.items()}
        yield Execution(compilation, States(model)).run(inputs), ours
    exact = Runner(model, EXACT, host=True).run(sample.inputs)
    for numerics in (*(NUMERICS[name] for name in SUMS), DISTURBED):
        yield Runner(model, numerics, host=True).run(sample.inputs), exact


def _in_the_last_place(array: Array, rng: np.random.Generator) -> Array:
    if array.dtype != np.float32:
        return array
    sides = np.where(rng.integers(0, 2, array.shape) == 1, np.float32(np.inf), np.float32(-np.inf))
    found: Array = np.nextafter(array, sides)
    return found


def _largest(a: Array, b: Array) -> float:
    with np.errstate(all="ignore"):
        apart = np.abs(a.astype(np.float64) - np.asarray(b).astype(np.float64))
    return float(np.max(apart, initial=0.0, where=np.isfinite(apart)))
