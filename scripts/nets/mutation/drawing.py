"""Mutants of a kernel, and the code of each."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

ROOT = Path(__file__).resolve().parents[3]
OPERATIONS = ROOT / "src" / "nnbridge" / "operations"
MACHINERY = ("__init__.py", "call.py", "declaration.py", "evaluate.py", "kernels.py", "validation.py")
"""Modules that compute no values."""
COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
ARITHMETIC = {"+": "-", "-": "+", "*": "+", "//": "*", "/": "*", "<<": ">>", ">>": "<<", "&": "|", "|": "&", "%": "//"}
ROUNDINGS = {"floor": "ceil", "ceil": "floor", "rint": "floor", "round": "floor", "trunc": "floor", "around": "floor"}
ROUNDINGS |= {"maximum": "minimum", "minimum": "maximum", "max": "min", "min": "max", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """One change of one line of a module."""

    module: str
    line: int
    column: int
    kind: str
    before: str
    after: str

    def source(self) -> str:
        """The module's text with the change."""
        lines = (OPERATIONS / self.module).read_text(encoding="utf-8").split("\n")
        # Positions of ast count bytes; kernels are ASCII where they compute.
        text = lines[self.line - 1]
        lines[self.line - 1] = text[: self.column] + self.after + text[self.column + len(self.before) :]
        return "\n".join(lines)

    def code(self) -> CodeType:
        """The module's code with the change."""
        return compile(self.source(), str(OPERATIONS / self.module), "exec", dont_inherit=True)

    def __str__(self) -> str:
        return f"{self.module}:{self.line} {self.kind}: {self.before} -> {self.after}"


def mutants(path: Path) -> Iterator[Mutant]:
    """Every mutant of the functions of a module."""
    text = path.read_text(encoding="utf-8")
    lines = text.split("\n")
    for node in _computing(ast.parse(text)):
        line = getattr(node, "lineno", 0)
        if not line or not lines[line - 1].isascii():
            continue

        def made(kind: str, line: int, column: int, before: str, after: str) -> Iterator[Mutant]:
            if lines[line - 1][column : column + len(before)] == before:
                yield Mutant(path.name, line, column, kind, before, after)

        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            before = lines[line - 1][node.col_offset : node.end_col_offset]
            yield from made("constant", line, node.col_offset, before, f"({before} + 1)")
        elif isinstance(node, ast.Attribute) and node.attr in ROUNDINGS and node.end_lineno is not None:
            column = (node.end_col_offset or 0) - len(node.attr)
            yield from made("rounding", node.end_lineno, column, node.attr, ROUNDINGS[node.attr])
        elif isinstance(node, ast.BinOp | ast.Compare):
            left, right = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.left, node.comparators[0])
            if left.end_lineno == right.lineno:
                between = lines[right.lineno - 1][left.end_col_offset : right.col_offset]
                table = ARITHMETIC if isinstance(node, ast.BinOp) else COMPARISONS
                sign = re.sub(r"[()\s]", "", between)
                if sign in table:
                    column = (left.end_col_offset or 0) + between.index(sign)
                    yield from made(
                        "arithmetic" if table is ARITHMETIC else "comparison", right.lineno, column, sign, table[sign]
                    )


def _computing(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes of functions' bodies: no decorators, annotations, defaults or texts of messages."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            for statement in node.body:
                if not isinstance(statement, ast.FunctionDef):
                    yield from _below(statement)


def _below(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.JoinedStr | ast.Raise | ast.FunctionDef):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        if child is not getattr(node, "annotation", None):
            yield from _below(child)


def statement_of(mutant: Mutant) -> int:
    """The line where the mutant's statement begins."""
    tree = ast.parse((OPERATIONS / mutant.module).read_text(encoding="utf-8"))
    statements = (node for node in ast.walk(tree) if isinstance(node, ast.stmt))
    return max(node.lineno for node in statements if node.lineno <= mutant.line <= (node.end_lineno or 0))


def codes_of(code: CodeType) -> Iterator[CodeType]:
    """A code object and all that are inside of it, in the order of the source."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_of(constant)
