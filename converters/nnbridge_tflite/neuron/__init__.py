"""TFLite's part in LiteRT's MediaTek route: graphs that the compiler passed, and files as the compiler passes them."""

from __future__ import annotations

from pathlib import Path

from nnbridge.converters.recorded import Passed, Recording
from nnbridge.model import Pool
from nnbridge_tflite.neuron.expressed import NeuronGraph
from nnbridge_tflite.neuron.passed import passed
from nnbridge_tflite.neuron.recorded import RecordedGraph
from nnbridge_tflite.read.reader import read


class NeuronRoute:
    """TFLite's part in LiteRT's MediaTek route (:class:`nnbridge.converters.recorded.Route`)."""

    def express(self, recording: Recording) -> NeuronGraph:
        """The graph that calls passed."""
        graph = RecordedGraph(recording)
        return NeuronGraph(graph.subgraph, Pool.of(bytes(graph.pool)), graph.unreadable)

    def passed(self, path: Path) -> tuple[Passed, ...]:
        """The operators of each subgraph of a file that the compiler passes on."""
        file = read(path)
        return tuple(passed(file, number) for number in range(len(file.graph.subgraphs)))
