"""Write docs/onnx-operators.md: what is declared of each ONNX operator, and where it runs in ONNX's own backend tests.

python scripts/documentation/make_onnx_docs.py           write the file
python scripts/documentation/make_onnx_docs.py --check   exit with 1 if it is not up to date

The first table is the operators' declarations. For the counts in brackets every node test of the installed onnx package that
holds one node is converted, and the node's outcome is counted. It depends on the version of that package, which the page names;
it can only be checked with the same one.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import sys
import textwrap
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import onnx
from onnx.backend.test import loader

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from documentation.site.conditions import requirements

from nnbridge.converters.mapping import MappingKind
from nnbridge.converters.rules import LAST_LEVEL
from nnbridge.errors import NnbridgeError, Stage, Why
from nnbridge_onnx.builder_files import BUILDER_FILES
from nnbridge_onnx.declaration import KNOWN_DOMAIN, REGISTRY, OnnxOperator
from nnbridge_onnx.passes.conversion import convert_proto
from nnbridge_onnx.rules import Provider

Row = tuple[str, str, str, str]
"""Operators, condition, kind, where."""
TARGET = Path(__file__).resolve().parents[2] / "docs" / "onnx-operators.md"
PLACES = {"wide": "NNAPI", "host": "host", "folded": "folded", "dead": "unused"}
COLUMNS = ("NNAPI", "host", "folded", "refused")
QUANTISED = "UINT8 values with one constant scale and zero point each"
"""The condition that most operators share: a letter in the table."""
HEAD = """# ONNX operators

[ONNX](https://onnx.ai/onnx/operators/) and
[ONNX Runtime](https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md) (`com.microsoft`, here `ms`) define
the operators. Made by `scripts/documentation/make_onnx_docs.py` from `converters/nnbridge_onnx/operators`.

- *NNAPI*: the number of lowerings that are tried; `8-bit`: also as a group on 8-bit values.
- *Provider*: the first feature level at which ONNX Runtime's NNAPI execution provider accepts the operator
  (`--mapping provider`), its first opset if that is above 7, its types.
- *Host*: `k` nnbridge's own kernel, else the `onnx` package's evaluator; `f` folded at conversion where all inputs are known.
  Operators of `ms` are first written out in ONNX's operators.
- In brackets, where the single-node tests of onnx {version}'s backend suite run: N NNAPI, h host extension `ai.onnx`, f folded,
  r refused (values of types that nnbridge cannot hold). Element types, ranks and attributes decide; `nnbridge inspect FILE`
  shows the reason for each node.

| operators | NNAPI | provider | host |
|---|---|---|---|
"""
CONDITIONS = f"""
## Conditions of the provider

The provider checks every node first, and builds models of the accepted ones later. A node that breaks a condition:

| kind | who refuses | what the program sees |
|---|---|---|
| `loading` | ONNX Runtime: neither it nor the provider can run the node | no session |
| `provider` | the provider's check, `IsOpSupported` | the node stays with ONNX Runtime |
| `provider-building` | the node's builder, `AddToModelBuilder` | no session |
| `building` | NNAPI's validation ([operations.md](operations.md)) | no session |
| `running` | the shape rules of NNAPI's CPU | runs fail, unless a driver computes it |
| `nnbridge` | no part of a phone: nnbridge does not convert it | the node stays with ONNX Runtime here |

*Where*: NAME is NAME_op_builder.cc of onnxruntime/core/providers/nnapi/nnapi_builtin/builders/impl, whose commits are in
`converters/nnbridge_onnx/builder_files.py`. In square brackets: checked below this feature level only. In braces: depends on the
file. **Q**: {QUANTISED}.

| operators | kind | conditions | where |
|---|---|---|---|
"""


def main() -> None:
    """Write or check the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare only; exit with 1 if the file is not up to date")
    checking = parser.parse_args().check
    if checking and f"onnx {onnx.__version__}'s" not in TARGET.read_text(encoding="utf-8"):
        print(f"{TARGET.name} is of another version than onnx {onnx.__version__}: not compared")
        return
    text = document()
    if not checking:
        TARGET.write_text(text, encoding="utf-8")
    elif TARGET.read_text(encoding="utf-8") != text:
        sys.exit(f"{TARGET.name} is not up to date: run python scripts/documentation/make_onnx_docs.py")


def document() -> str:
    """The whole page."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in loader.load_model_tests(kind="node"):
            if case.model is not None and len(case.model.graph.node) == 1:
                node = case.model.graph.node[0]
                name = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
                counts[name][_place(case.model)] += 1
    rows = "".join(_declarations(counts))
    others = ", ".join(f"{name} {_tests(found)}" for name, found in sorted(counts.items()))
    missing = f"\nTested by ONNX, without a declaration: {others}.\n" if counts else ""
    return HEAD.format(version=onnx.__version__) + rows + missing + CONDITIONS + "".join(_conditions())


def _conditions() -> Iterator[str]:
    """A row for all conditions of the same operators, of one kind, in one place."""
    sharing: dict[tuple[str, str, str], list[str]] = {}
    for names, rule, kind, where in dict.fromkeys((*_shared(), *_stated(), *_built())):
        sharing.setdefault((names, kind, where), []).append("**Q**" if rule == QUANTISED else rule)
    for (names, kind, where), rules in sharing.items():
        yield f"| {names} | {kind} | {'; '.join(rules)} | {where} |\n"


def _shared() -> Iterator[Row]:
    """The conditions of every operator."""
    for condition in Provider().every:
        if condition.kind not in (Why.FEATURE_LEVEL, Why.OPERATOR_VERSION, Why.INPUT_TYPE):
            yield "*every*", condition.rule, str(Stage.PROVIDER), "base"
    for condition in KNOWN_DOMAIN, *(c for definition in REGISTRY for c in definition.loads):
        names = _names([d.name for d in REGISTRY if condition in d.loads]) or "*every*"
        yield names, condition.rule, str(Stage.LOADING), "ONNX Runtime 1.32"
    role = "no input or second output of its partition as its output"
    yield "Identity", role, str(Stage.BUILDING), BUILDER_FILES["Identity"]
    parameters = "scale and zero point that the operand has of its writer or first reader"
    yield "*groups*", parameters, str(Stage.BUILDER), "op_builder_helpers.cc"


def _stated() -> Iterator[Row]:
    """The conditions of declarations: the check's, then those of building."""
    sharing: dict[tuple[str, str, str], list[str]] = {}
    for definition in REGISTRY:
        rule = definition.provider
        if isinstance(rule, Provider):
            for conditions, stage in ((rule.conditions, Stage.PROVIDER), (rule.builds, Stage.BUILDER)):
                for one in (one for one in conditions if not one.until):
                    below = f" [{one.below}]" if one.below < LAST_LEVEL else ""
                    key = re.sub(r" \(.*?\)", "", one.rule) + below, str(one.stage or stage), BUILDER_FILES[definition.type]
                    sharing.setdefault(key, []).append(definition.name)
    for key, names in sharing.items():
        yield _names(names), *key


def _built() -> Iterator[Row]:
    """The conditions of the functions that lower operators as the provider's builders do."""
    sharing: dict[Callable[..., None], list[str]] = {}
    for definition in REGISTRY:
        if isinstance(definition.provider, Provider):
            for lower in (*definition.lowerings_for(MappingKind.PROVIDER), definition.lower_quantised):
                if lower is not None:
                    sharing.setdefault(lower, []).append(definition.name)
    alike: dict[tuple[str, str, str], list[str]] = {}
    for lower, names in sharing.items():
        for rule, stage in requirements(ast.parse(textwrap.dedent(inspect.getsource(lower)))):
            alike.setdefault((rule, stage, ""), []).extend(names)
    for key, names in alike.items():
        yield _names(names), *key


def _names(operators: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(operators)).replace("com.microsoft", "ms")


def _declarations(counts: dict[str, Counter[str]]) -> Iterator[str]:
    """A row for all operators that run alike, those that the provider maps first; what is taken from the counts is the rest's."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for definition in REGISTRY:
        tests = _tests(counts.pop(definition.name, Counter()))
        alike.setdefault(_where(definition), []).append(_names([definition.name]) + (f" ({tests})" if tests else ""))
    for where, names in sorted(alike.items(), key=lambda row: (not row[0][1], not row[0][0])):
        yield f"| {', '.join(names)} | {' | '.join(where)} |\n"


def _where(definition: OnnxOperator) -> tuple[str, str, str]:
    """Lowerings, the provider's level and types, host kernel and folding."""
    rule = definition.provider
    lowerings = [str(len(definition.lowerings))] if definition.lowerings else []
    nnapi = ", ".join([*lowerings, *(["8-bit"] if definition.quantised else [])])
    kernel = "k" if definition.kernel and not definition.domain else ""
    folded = "f" if definition.folding or definition.fold else ""
    return nnapi, _since(rule) if isinstance(rule, Provider) else "", kernel + folded


def _since(rule: Provider) -> str:
    """First feature level, first opset and element types."""
    opset = f", opset {rule.opset}" if rule.opset > 7 else ""
    return f"{rule.level}{opset}" + ("" if rule.types is None else f": {', '.join(rule.types)}")


def _tests(counts: Counter[str]) -> str:
    return " ".join(f"{counts[column]}{column[0]}" for column in COLUMNS if counts[column])


def _place(model: onnx.ModelProto) -> str:
    try:
        _, graph, mapped = convert_proto(model)
    except NnbridgeError:
        return "refused"
    node = graph.nodes[0]
    unknown = any(
        graph.tensors.get(name) is None or graph.tensors[name].type == 0 for name in (*node.inputs, *node.outputs) if name
    )
    return "refused" if unknown else PLACES[mapped[0].mapping]


if __name__ == "__main__":
    main()
