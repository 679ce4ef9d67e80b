"""Sentences on custom operators: what a program besides TFLite has to have for a file that contains them, and what to do.

TFLite itself registers those of :data:`REGISTERED` (``register.cc`` of LiteRT 2.3.0).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nnbridge.records import dataclass
from nnbridge_tflite.read.graph import DISPATCH, Graph
from nnbridge_tflite.read.reader import TfliteFile

REGISTERED = ("TFLite_Detection_PostProcess", "NumericVerify", "Mfcc", "AudioSpectrogram", "aeq.hadamard_rotation")
_STAMP, _FIELD = "LiteRtStamp", 125
"""The metadata of LiteRT's compiler: manufacturer and model of the chip, strings in fields of so many bytes."""
_SHOWN, _LONGEST = 3, 80


@dataclass(frozen=True)
class CustomKind:
    """Custom operators that one program writes."""

    name: str
    """A regular expression for their names."""
    what: str
    """What they need, after "operator 3 X"."""
    todo: str


KINDS = (
    CustomKind(
        r"Flex\w+",
        "needs TensorFlow's Flex delegate",
        "link the app with tensorflow-lite-select-tf-ops, or convert without SELECT_TF_OPS: the converter then names what has no "
        "form in TFLite",
    ),
    CustomKind(
        r"ethos-u\d*",
        "was compiled by Vela for an Ethos-U: TFLite Micro with Arm's driver runs it",
        "plan the file that was passed to Vela",
    ),
    CustomKind(
        r"edgetpu-custom-op\d*",
        "was compiled by the Edge TPU Compiler: libedgetpu's delegate runs it",
        "plan the file that was passed to the compiler",
    ),
    CustomKind(
        re.escape(DISPATCH),
        "was compiled by LiteRT's compiler{chip}: LiteRT runs it with the dispatch library of that chip's maker",
        "plan the file that was passed to the compiler",
    ),
    CustomKind(r"MTKEXT_\w+", "is MediaTek's: the Neuron delegate runs it", "plan the file that was passed to MediaTek's tools"),
    CustomKind(
        "Convolution2DTransposeBias|MaxPoolingWithArgmax2D|MaxUnpooling2D|TransformTensorBilinear|TransformLandmarks|"
        "Landmarks(2|To)TransformMatrix",
        "is MediaPipe's, which registers it",
        "add its kernel to the app's op resolver",
    ),
    CustomKind(r".*", "is custom: the app must register it", "add its kernel to the app's op resolver"),
)


def remarks(file: TfliteFile) -> tuple[str, ...]:
    """A sentence for each kind of custom operators that TFLite by itself does not load; empty where it has them all."""
    graph, found = file.graph, dict[CustomKind, list[str]]()
    for label, name in _custom(graph):
        if name not in REGISTERED:
            found.setdefault(kind_of(name), []).append(label)
    operators = sum(len(subgraph.operators) for subgraph in graph.subgraphs)
    rest = operators - sum(map(len, found.values()))
    others = f" The other {rest:,} operators are TFLite's." if rest > 1 else " The other operator is TFLite's." if rest else ""
    sentences = (f"{_sentence(file, kind, labels)}.{others}" for kind, labels in found.items())
    return (*sentences, *_in_blocks(graph), *_ignored(graph))


def _in_blocks(graph: Graph) -> Iterator[str]:
    """A sentence on constants whose integers have a scale for each block."""
    tensors = [tensor for subgraph in graph.subgraphs for tensor in subgraph.tensors if tensor.blocks is not None]
    sizes = sorted({tensor.blocks.size for tensor in tensors if tensor.blocks is not None})
    if tensors:
        first, more = tensors[0].label[:_LONGEST], f" and {len(tensors) - 1} more" if len(tensors) > 1 else ""
        blocks = f"integers with a scale for each block of {' or '.join(map(str, sizes))}"
        yield (
            f"{first}{more}: {blocks}, which LiteRT 2.3 reads and NNAPI has no type for: for a device, quantise with a scale for "
            "each channel."
        )


def _ignored(graph: Graph) -> Iterator[str]:
    """A sentence on operators with the options of other operators."""
    found = [operator for subgraph in graph.subgraphs for operator in subgraph.operators if operator.ignored]
    if found:
        first, more = found[0], f" ({len(found) - 1} more operators likewise)" if len(found) > 1 else ""
        yield f"{first.label} has {first.ignored}, which are not its own: TFLite ignores them, and all its options are 0{more}."


def foreign(graph: Graph) -> frozenset[tuple[int, int]]:
    """Subgraph and index of each custom operator that TFLite does not register."""
    subgraphs = enumerate(graph.subgraphs)
    return frozenset((k, o.index) for k, each in subgraphs for o in each.operators if o.custom and o.name not in REGISTERED)


def required_of(name: str) -> str:
    """The requirement of a run on a custom operator that no kernel computes here."""
    if name in REGISTERED:
        return f"an operator that nnbridge computes (TFLite has a kernel of {name}: --host litert)"
    kind = kind_of(name)
    return f"an operator that nnbridge computes ({name} {kind.what.replace('{chip}', '')}; {kind.todo})"


def kind_of(name: str) -> CustomKind:
    """The kind of a custom operator."""
    return next(kind for kind in KINDS if re.fullmatch(kind.name, name, re.DOTALL))


def _sentence(file: TfliteFile, kind: CustomKind, labels: list[str]) -> str:
    more = len(labels) - _SHOWN
    listed = ", ".join(labels[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
    what = kind.what.replace("{chip}", _chip(file))
    plural = len(labels) > 1
    what = re.sub(r"^(is|needs)\b", {"is": "are", "needs": "need"}[what.split()[0]], what) if plural else what
    return f"TFLite by itself does not load this file: {listed} {what}; {kind.todo}"


def _custom(graph: Graph) -> Iterator[tuple[str, str]]:
    for number, subgraph in enumerate(graph.subgraphs):
        place = f" of subgraph {number}" if number else ""
        for operator in subgraph.operators:
            if operator.custom:
                yield f"{operator.label[:_LONGEST]}{place}", operator.name


def _chip(file: TfliteFile) -> str:
    """The chip that LiteRT's compiler compiled for, where the file says so."""
    span = file.graph.metadata.get(_STAMP)
    if span is None or span.length != 2 * _FIELD:
        return ""
    data = bytes(file.bytes_at(span))
    names = [data[at : at + _FIELD].split(b"\0")[0].decode("ascii", "replace") for at in (0, _FIELD)]
    return f" for {' '.join(name for name in names if name)}"
