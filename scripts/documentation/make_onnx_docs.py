"""Write docs/onnx-operators.md: what is declared of each ONNX operator, and where it runs in ONNX's own backend tests.

python scripts/documentation/make_onnx_docs.py           write the file
python scripts/documentation/make_onnx_docs.py --check   exit with 1 if it is not up to date

The table is the operators' declarations. For its last column every node test of the installed onnx package that holds one node
is converted, and the node's outcome is counted. It depends on the version of that package, which the page names; it can only be
checked with the same one.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter, defaultdict
from pathlib import Path

import onnx
from onnx.backend.test import loader

from nnbridge.converters.declaration import OperatorInput, OperatorOutput
from nnbridge.errors import NnbridgeError
from nnbridge_onnx.declaration import REGISTRY, OnnxOperator
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
    return HEAD.format(version=onnx.__version__) + rows + missing


def _declaration(definition: OnnxOperator, counts: Counter[str]) -> str:
    rule = definition.provider
    since = "" if not isinstance(rule, Provider) else f"{rule.level}{f', opset {rule.opset}' if rule.opset > 7 else ''}"
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
