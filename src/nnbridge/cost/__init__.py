"""What a plan costs: multiply-adds, parameters and bytes of each operation, step and border, from declared dimensions alone."""

from nnbridge.cost.formulas import FORMULAS, Formula, multiply_adds
from nnbridge.cost.plan import Border, OperationCost, PlanCost, StepCost, cost_of

__all__ = ["FORMULAS", "Border", "Formula", "OperationCost", "PlanCost", "StepCost", "cost_of", "multiply_adds"]
