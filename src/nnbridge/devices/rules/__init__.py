"""The language of rules in device profiles: conditions over an operation's operands, scalars and the device's hardware.

:func:`~nnbridge.devices.rules.conditions.condition` parses a text against a
:class:`~nnbridge.devices.rules.facts.Vocabulary` and evaluates it for any :class:`~nnbridge.devices.rules.facts.Subject`, whether
an NNAPI operation or an operator of a file. docs/profiles.md describes the language.
"""

from nnbridge.devices.rules.compiling import RuleErrors
from nnbridge.devices.rules.conditions import RuleCondition, condition, contradictions
from nnbridge.devices.rules.facts import Fact, Subject, Vocabulary
from nnbridge.devices.rules.sifting import Suspects, suspects
from nnbridge.devices.rules.syntax import RuleError

__all__ = [
    "Fact", "RuleCondition", "RuleError", "RuleErrors", "Subject", "Suspects", "Vocabulary", "condition", "contradictions",
    "suspects",
]  # fmt: skip
