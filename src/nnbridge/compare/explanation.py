"""The causes of a comparison's differences: the layers of its first sample, each with what explains its own error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from nnbridge.apart import EndedError
from nnbridge.compare.causes import Cause
from nnbridge.compare.comparison import Comparison, OutputComparison
from nnbridge.compare.layers import Layer, compare_layers
from nnbridge.compare.references import FORMATS, reference
from nnbridge.compare.samples import Sample, named_inputs, sign_flipped
from nnbridge.compare.tensors import tensors_of
from nnbridge.runtime.compilation import Compilation


def with_causes(
    comparison: Comparison, compilation: Compilation, path: Path, samples: Sequence[Sample], signature: str = ""
) -> Comparison:
    """A comparison with the causes of its first sample's differences, where the reference shows its tensors.

    Differences of floats within tolerance are not looked into: order of sums explains what is left of them.
    """
    if not samples or comparison.reference not in FORMATS or not any(map(_differs, comparison.outputs)):
        return comparison
    runtime = reference(comparison.reference, path, signature, preserve=True)
    operands = named_inputs(compilation.model)
    try:
        runtime.run({name: sign_flipped(operands[name], value) for name, value in samples[0].inputs.items()})
    except EndedError:
        return comparison  # The runtime does not live to show its tensors.
    found = compare_layers(compilation, comparison.reference, samples[:1], tensors_of(runtime))
    causes = dict.fromkeys(cause for layer in found.layers if (cause := _cause(layer)) is not None)
    return replace(comparison, causes=tuple(causes))


def _differs(output: OutputComparison) -> bool:
    return not output.within or bool(output.max_quant_diff)


def _cause(layer: Layer) -> Cause | None:
    return layer.cause if layer.own is not None and _differs(layer.own) else None
