"""Requirements of an importer's lowerings, read from their source: rules and the part of a phone that has each."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from nnbridge.errors import Stage

_AT = {"to.require": 1, "to.refuse": 0, "to.require_known": 1}
"""Function → the position of the rule."""


def requirements(function: ast.AST) -> Iterator[tuple[str, str]]:
    """Each rule of a lowering as it is written, what is filled in between braces, and its stage."""
    for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
        name = ast.unparse(call.func)
        if name in _AT:
            text = ast.unparse(call.args[_AT[name]])
            rule = re.sub(r"^f?['\"]|['\"]$", "", text).replace("|", "&#124;")
            given = next((ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg == "stage"), "Stage.OWN")
            member = given.removeprefix("Stage.")
            yield rule, str(Stage[member] if member in Stage.__members__ else Stage.BUILDER)
