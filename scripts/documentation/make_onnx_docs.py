"""Write docs/onnx-operators.md: what is declared of each ONNX operator, and where it runs in ONNX's own backend tests.

python scripts/documentation/make_onnx_docs.py           write the file
python scripts/documentation/make_onnx_docs.py --check   exit with 1 if it is not up to date

The first table is the operators' declarations. For its last column every node test of the installed onnx package that holds one
node is converted, and the node's outcome is counted. It depends on the version of that package, which the page names; it can only
be checked with the same one.
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
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
from onnx.backend.test import loader

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from documentation.site.conditions import requirements

from nnbridge.converters.declaration import OperatorInput, OperatorOutput
from nnbridge.converters.mapping import MappingKind
from nnbridge.converters.rules import LAST_LEVEL
from nnbridge.errors import NnbridgeError, Stage, Why
from nnbridge_onnx.builder_files import BUILDER_FILES
from nnbridge_onnx.declaration import KNOWN_DOMAIN, REGISTRY, OnnxOperator
from nnbridge_onnx.passes.conversion import convert_proto
from nnbridge_onnx.rules import Provider

TARGET = Path(__file__).resolve().parents[2] / "docs" / "onnx-operators.md"
PLACES = {"wide": "NNAPI", "host": "host", "folded": "folded", "dead": "unused"}
COLUMNS = ("NNAPI", "host", "folded", "refused")
HEAD = """# ONNX operators

The declarations of `converters/nnbridge_onnx/operators`. Made by `scripts/documentation/make_onnx_docs.py`.

NNAPI: the number of lowerings that are tried, or the group on 8-bit values that it can be. Provider: the first feature level
from which ONNX Runtime's NNAPI execution provider accepts it (`--mapping provider`), and the first opset if that is above 7.
Kernel: nnbridge's host kernel computes it; else the `onnx` package's evaluator does. Operators of `com.microsoft` are written
out in ONNX's operators first. Folded: computed at conversion where all inputs are known. Tests: where the node of each
single-node test of onnx {version}'s backend suite runs: N NNAPI, h the host extension `ai.onnx`, f folded, r refused when run
(values of types that nnbridge cannot hold). Where an operator has both, element types, ranks and attributes decide;
`nnbridge inspect FILE` shows the reason for each node.

| operator | | inputs and outputs | NNAPI | provider | kernel | folded | tests |
|---|---|---|---|---|---|---|---|
"""
CONDITIONS = """
## Conditions of the provider

What a node has to meet to be handed over, and what becomes of it otherwise. The provider checks every node first, and builds
models of what it has accepted later:

| kind | who refuses | what the program sees |
|---|---|---|
| `loading` | ONNX Runtime, which has no kernel for the node, nor the provider a builder | no session at all |
| `provider` | the provider's check, `IsOpSupported` | the node stays with ONNX Runtime |
| `provider-building` | the node's builder, `AddToModelBuilder` | no session |
| `building` | NNAPI, whose validation of each operation is in [operations.md](operations.md) | no session |
| `running` | NNAPI's CPU, by the shape rules of [operations.md](operations.md) | runs fail, unless a driver computes it |
| `nnbridge` | no part of a phone: nnbridge does not convert it | the node stays with ONNX Runtime here |

*Where*: NAME is NAME_op_builder.cc of onnxruntime/core/providers/nnapi/nnapi_builtin/builders/impl, whose commits are in
`converters/nnbridge_onnx/builder_files.py`. *Below*: checked below this feature level only.

| operator | condition | below | kind | where |
|---|---|---|---|---|
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
    rows = "".join(_declaration(one, counts.pop(one.name, Counter())) for one in REGISTRY)
    others = ", ".join(f"{name} {_tests(found)}" for name, found in sorted(counts.items()))
    missing = f"\nTested by ONNX, without a declaration: {others}.\n" if counts else ""
    conditions = "".join(dict.fromkeys((*_shared(), *_stated(), *_built())))
    return HEAD.format(version=onnx.__version__) + rows + missing + CONDITIONS + conditions


def _shared() -> Iterator[str]:
    """The conditions of every operator."""
    for condition in Provider().every:
        if condition.kind not in (Why.FEATURE_LEVEL, Why.OPERATOR_VERSION, Why.INPUT_TYPE):
            yield f"| *every* | {condition.rule} | | {Stage.PROVIDER} | base |\n"
    for condition in KNOWN_DOMAIN, *(c for definition in REGISTRY for c in definition.loads):
        names = ", ".join(d.name for d in REGISTRY if condition in d.loads) or "*every*"
        yield f"| {names} | {condition.rule} | | {Stage.LOADING} | ONNX Runtime 1.32 |\n"
    role = "no input or second output of its partition as its output"
    yield f"| Identity | {role} | | {Stage.BUILDING} | {BUILDER_FILES['Identity']} |\n"
    parameters = "scale and zero point that the operand has of its writer or first reader"
    yield f"| *groups* | {parameters} | | {Stage.BUILDER} | op_builder_helpers.cc |\n"


def _stated() -> Iterator[str]:
    """The conditions of declarations: the check's, then those of building. Operators that share one share a row."""
    sharing: dict[tuple[str, str, str, str], list[str]] = {}
    for definition in REGISTRY:
        rule = definition.provider
        if isinstance(rule, Provider):
            for conditions, stage in ((rule.conditions, Stage.PROVIDER), (rule.builds, Stage.BUILDER)):
                for one in (one for one in conditions if not one.until):
                    below = str(one.below) if one.below < LAST_LEVEL else ""
                    key = one.rule, below, str(one.stage or stage), BUILDER_FILES[definition.type]
                    sharing.setdefault(key, []).append(definition.name)
    for (rule_text, below, kind, at), names in sharing.items():
        short = re.sub(r" \(.*?\)", "", rule_text)
        yield f"| {', '.join(names)} | {short} | {below} | {kind} | {at} |\n"


def _built() -> Iterator[str]:
    """The conditions of the functions that lower operators as the provider's builders do."""
    sharing: dict[Callable[..., None], list[str]] = {}
    for definition in REGISTRY:
        if isinstance(definition.provider, Provider):
            for lower in (*definition.lowerings_for(MappingKind.PROVIDER), definition.lower_quantised):
                if lower is not None:
                    sharing.setdefault(lower, []).append(definition.name)
    for lower, names in sharing.items():
        module = Path(inspect.getfile(lower)).name
        for rule, stage in requirements(ast.parse(textwrap.dedent(inspect.getsource(lower)))):
            yield f"| {', '.join(names)} | {rule} | | {stage} | `{lower.__name__}`, {module} |\n"


def _declaration(definition: OnnxOperator, counts: Counter[str]) -> str:
    rule = definition.provider
    since = _since(rule) if isinstance(rule, Provider) else ""
    inputs, outputs = (", ".join(_parameter(one) for one in side) for side in (definition.inputs, definition.outputs))
    nnapi = ", ".join(
        [*([str(len(definition.lowerings))] if definition.lowerings else []), *(["8-bit"] if definition.quantised else [])]
    )
    host = "×" if definition.kernel and not definition.domain else ""
    folded = "×" if definition.folding or definition.fold else ""
    cells = (
        definition.name,
        definition.summary.replace("|", "\\|"),
        f"{inputs} → {outputs}",
        nnapi,
        since,
        host,
        folded,
        _tests(counts),
    )
    return f"| {' | '.join(cells)} |\n"


def _since(rule: Provider) -> str:
    """First feature level, first opset and element types."""
    opset = f", opset {rule.opset}" if rule.opset > 7 else ""
    return f"{rule.level}{opset}" + ("" if rule.types is None else f": {', '.join(rule.types)}")


def _tests(counts: Counter[str]) -> str:
    return " ".join(f"{counts[column]}{column[0]}" for column in COLUMNS if counts[column])


def _parameter(one: OperatorInput | OperatorOutput) -> str:
    return one.name + ("…" if one.repeat else "?" if one.optional else "")


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
