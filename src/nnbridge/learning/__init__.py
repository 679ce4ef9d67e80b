"""From logs to profiles: which operations of which models a device supported → the simplest rules that explain it.

:mod:`~nnbridge.learning.logs` reads logs, :mod:`~nnbridge.learning.observations` finds the operands of what they name,
:mod:`~nnbridge.learning.space` finds rules, :mod:`~nnbridge.learning.writing` writes them as a profile, and
:mod:`~nnbridge.learning.questions` has the smallest models that answer what stays open.
"""
