"""Costs of a plan: multiply-adds, parameters and bytes of each operation, step and border, from declared dimensions only."""

from nnbridge.cost.formulas import multiply_adds
from nnbridge.cost.plan import (
    Border,
    OperationCost,
    PlanCost,
    StepCost,
    bytes_alive,
    cost_of,
    driver_multiply_adds,
    run_order,
    tensor_bytes,
)

__all__ = [
    "Border",
    "OperationCost",
    "PlanCost",
    "StepCost",
    "bytes_alive",
    "cost_of",
    "driver_multiply_adds",
    "multiply_adds",
    "run_order",
    "tensor_bytes",
]
