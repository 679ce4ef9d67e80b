"""Write docs/onnx-operators.md: where each ONNX operator runs, as ONNX's own backend tests show.

python scripts/make_onnx_docs.py           write the file
python scripts/make_onnx_docs.py --check   exit with 1 if it is not up to date

Every node test of the installed onnx package that holds one node is converted; what became of the node is counted for its
operator and opset. The table depends on the version of that package, which it names; it can only be checked with the same one.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter, defaultdict
from pathlib import Path

import onnx
from onnx.backend.test import loader

from nnbridge.errors import NnbridgeError
from nnbridge_onnx.passes.conversion import convert_proto

TARGET = Path(__file__).resolve().parents[1] / "docs" / "onnx-operators.md"
PLACES = {"wide": "NNAPI", "host": "host", "folded": "folded", "dead": "unused"}
COLUMNS = ("NNAPI", "host", "folded", "refused")
HEAD = """# ONNX operators

Where the node of each single-node test of onnx {version}'s backend suite runs: as NNAPI operations, on the host extension
`ai.onnx`, nowhere, as its result is known at conversion (folded), or refused (values of types that nnbridge cannot hold are
refused when run, so that a plan can be drawn). What is NNAPI's for one form of an operator and the host's for another depends
on element types, ranks and attributes; `nnbridge inspect FILE` tells the reason for each node. Made by
`scripts/make_onnx_docs.py`.

| operator | opset | tests | NNAPI | host | folded | refused |
|---|---|---|---|---|---|---|
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
        sys.exit(f"{TARGET.name} is not up to date: run python scripts/make_onnx_docs.py")


def document() -> str:
    """The whole page."""
    counts: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in loader.load_model_tests(kind="node"):
            if case.model is not None and len(case.model.graph.node) == 1:
                node = case.model.graph.node[0]
                opset = next((e.version for e in case.model.opset_import if e.domain == node.domain), 1)
                name = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
                counts[name, opset][_place(case.model)] += 1
    return HEAD.format(version=onnx.__version__) + "".join(_row(name, opset, c) for (name, opset), c in sorted(counts.items()))


def _row(name: str, opset: int, counts: Counter[str]) -> str:
    unknown = set(counts).difference(COLUMNS)
    if unknown:
        raise ValueError(f"{name}: no column for {', '.join(unknown)}")
    cells = (name, opset, sum(counts.values()), *(counts[column] for column in COLUMNS))
    return f"| {' | '.join(map(str, cells))} |\n"


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
