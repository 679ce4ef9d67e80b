"""Outputs beside a reference's: samples, tolerances, verdicts."""

# What is imported here is the package's interface.
# mypy: implicit-reexport
# ruff: noqa: F401

from nnbridge.compare.arrays import Array, load_array, load_arrays, save_arrays
from nnbridge.compare.comparison import (
    Comparison,
    OutputComparison,
    add_sample,
    compare,
    fallbacks_of,
    new_comparisons,
)
from nnbridge.compare.metrics import Metrics
from nnbridge.compare.samples import (
    Reference,
    Sample,
    as_samples,
    in_model,
    input_samples,
    named_inputs,
    named_outputs,
    open_dimensions,
    random_array,
    seeded_inputs,
    seeded_samples,
    sign_flipped,
    stating_open_dimensions,
    stored_samples,
    unpacked,
)
from nnbridge.compare.tolerance import (
    DEFAULT_TOLERANCE,
    RELATIVE_TOLERANCE,
    SINGLE_OPERATION,
    Tolerance,
    Tolerances,
    read_tolerances,
)
