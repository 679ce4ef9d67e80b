"""Search for the operations that cause a symptom, and for the smallest model that still shows it."""

# What is imported here is the package's interface.
# mypy: implicit-reexport
# ruff: noqa: F401

from nnbridge.reduction.bisection import Bisection, Culprit, bisect
from nnbridge.reduction.parts import ReductionCandidate, Whole, part
from nnbridge.reduction.reducing import Reduction, reduce
from nnbridge.reduction.symptoms import SYMPTOMS, Search, Symptom
