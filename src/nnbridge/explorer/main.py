"""Model Explorer's adapter for ``.nnapi`` and ONNX files. Importing this module needs the package ai-edge-model-explorer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from model_explorer import Adapter, AdapterMetadata, ModelExplorerGraphs, graph_builder

from nnbridge.explorer.graphs import ExplorerNode, planned_graphs, tint


class NnbridgeAdapter(Adapter):  # type: ignore[misc]
    """Graphs with partitions as groups, coloured by the place of each operator."""

    metadata = AdapterMetadata(
        id="nnbridge",
        name="nnbridge: NNAPI partitions",
        description="Saved NNAPI models and ONNX files, with the partitions that devices get as groups.",
        fileExts=["nnapi", "onnx"],
    )

    def convert(self, model_path: str, settings: dict[str, Any]) -> ModelExplorerGraphs:
        """The graphs of a file, planned with the options of NNBRIDGE_EXPLORER."""
        found = planned_graphs(Path(model_path))
        single = graph_builder.LayoutConfigs(keepLayersWithASingleChild=True)
        return {"graphs": [graph_builder.Graph(g.name, [_node(node) for node in g.nodes], layoutConfigs=single) for g in found]}


def _node(node: ExplorerNode) -> graph_builder.GraphNode:
    pair = graph_builder.KeyValue
    named = enumerate(node.outputs)
    return graph_builder.GraphNode(
        node.id,
        node.label,
        node.group,
        attrs=[pair(name, value) for name, value in node.attributes.items()],
        incomingEdges=[graph_builder.IncomingEdge(e.source, str(e.output), str(e.input)) for e in node.edges],
        outputsMetadata=[graph_builder.MetadataItem(str(k), [pair("tensor_name", name)]) for k, name in named if name],
        style=graph_builder.GraphNodeStyle(backgroundColor=tint(node.colour), borderColor=node.colour) if node.colour else None,
    )
