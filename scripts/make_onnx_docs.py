"""Write docs/onnx-operators.md: where each ONNX operator runs, as ONNX's own backend tests show.

    python scripts/make_onnx_docs.py

Every node test of the installed onnx package that holds one node is converted; what became of the node is counted for its
operator and opset. The table depends on the version of that package, which it names.
"""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from pathlib import Path

import onnx
from onnx.backend.test import loader

from nnbridge.errors import NnbridgeError
from nnbridge_onnx.convert import convert_proto

TARGET = Path(__file__).resolve().parents[1] / "docs" / "onnx-operators.md"
PLACES = {"wide": "NNAPI", "folded": "NNAPI", "dead": "NNAPI", "host": "host"}
HEAD = """# ONNX operators

Where the node of each single-node test of onnx {version}'s backend suite runs: as NNAPI operations, on the host extension
`ai.onnx`, or refused (values of types that nnbridge cannot hold are refused when run, so that a plan can be drawn). What is
NNAPI's for one form of an operator and the host's for another depends on element types, ranks and attributes;
`nnbridge inspect FILE` tells the reason for each node. Made by `scripts/make_onnx_docs.py`.

| operator | opset | tests | NNAPI | host | refused |
|---|---|---|---|---|---|
"""


def main() -> None:
    """Convert every test and write the table."""
    counts: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in loader.load_model_tests(kind="node"):
            if case.model is not None and len(case.model.graph.node) == 1:
                node = case.model.graph.node[0]
                opset = next((e.version for e in case.model.opset_import if e.domain == node.domain), 1)
                name = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
                counts[name, opset][_place(case.model)] += 1
    rows = [
        f"| {name} | {opset} | {sum(c.values())} | {c['NNAPI']} | {c['host']} | {c['refused']} |"
        for (name, opset), c in sorted(counts.items())
    ]
    TARGET.write_text(HEAD.format(version=onnx.__version__) + "\n".join(rows) + "\n")
    print(f"{TARGET}: {len(rows)} rows")


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
