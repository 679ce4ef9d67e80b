"""mkdocstrings loads this: roles of docstrings, such as ``:class:`~nnbridge.model.Model` ``, become code with the name."""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|func|meth|attr|mod|data|exc):`(~?)([\w.]+)`")


class Roles(griffe.Extension):
    """Rewrites the docstring of each object."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for each object when it was read."""
        if obj.docstring:
            obj.docstring.value = ROLE.sub(_name, obj.docstring.value)


def _name(role: re.Match[str]) -> str:
    short = role[2].rpartition(".")[2] if role[1] else role[2]
    return f"`{short}`"
