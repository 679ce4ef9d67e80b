"""The whole way from a path to a :class:`~nnbridge.model.Model`."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

from nnbridge.converters import ConversionOptions
from nnbridge.converters.assembly import in_file
from nnbridge.converters.delegation import first_failure
from nnbridge.converters.draft import Draft
from nnbridge.converters.inspection import Mapped
from nnbridge.converters.mapping import MappingKind
from nnbridge.errors import ConversionError, NnapiError, OptionError, Reason, Stage, Why, near
from nnbridge.extensions import TYPES
from nnbridge.model import Model
from nnbridge.releases import within
from nnbridge_tflite.host import HOST
from nnbridge_tflite.passes.assembly import model_with_states
from nnbridge_tflite.passes.conversion import Context, Conversion
from nnbridge_tflite.passes.dynamic import first_dynamic
from nnbridge_tflite.passes.loading import not_loaded
from nnbridge_tflite.passes.nodes import alone, budget_for
from nnbridge_tflite.passes.states import Variables
from nnbridge_tflite.read.graph import Graph, SubgraphSignature
from nnbridge_tflite.read.reader import TfliteFile

OF_A_BODY = "an operator of the main graph (nnbridge runs bodies as a whole; a phone hands over each graph by itself)"
"""The rule for operators of bodies that a phone's delegate takes."""
LOG = logging.getLogger(__name__)
CALLS, CALLS_PER_OPERATOR = 1000, 16
"""How many operators of called subgraphs a file may ask for, at first and for each operator that it has."""


def convert(file: TfliteFile, options: ConversionOptions) -> tuple[Model, tuple[Mapped, ...]]:
    """Convert a file, and report the outcome of each operator, those of called subgraphs last.

    ConversionError names the file and what is wrong in it.
    """
    path = file.path
    try:
        return _converted(file, options)
    except ConversionError as error:
        raise type(error)(in_file(_as_loaded(file, options, error.reason), path)) from error
    except NnapiError as error:
        raise ConversionError(in_file(error.reason, path)) from error


def _as_loaded(file: TfliteFile, options: ConversionOptions, reason: Reason) -> Reason:
    """The reason why TFLite does not load a file that cannot be converted, if it does not: on a phone that comes first."""
    found = not_loaded(file, options.tflite) if options.mapping == MappingKind.DELEGATE else None
    return reason if found is None else replace(found, rule=f"a file that TFLite loads, with {found.rule}")


def requested_signature(graph: Graph, key: str) -> SubgraphSignature | None:
    """The file's signature of this key; None without a key. OptionError for one that the file has not."""
    if not key:
        return None
    found = next((s for s in graph.signatures if s.key == key), None)
    if found is None:
        keys = ", ".join(s.key for s in graph.signatures) or "no signatures"
        raise OptionError(
            Reason(f"a signature of the file ({keys}){near(key, (s.key for s in graph.signatures))}", key, operand="signature")
        )
    return found


def distinct_signatures(graph: Graph) -> list[str]:
    """The keys of signatures that call different subgraphs, the first one for each."""
    return list({s.subgraph: s.key for s in reversed(graph.signatures)}.values())[::-1]


def _converted(file: TfliteFile, options: ConversionOptions) -> tuple[Model, tuple[Mapped, ...]]:
    """Convert subgraph 0, or the subgraph that a signature calls.

    Where a phone fails to build the delegate's model, NNAPI gets nothing: what the delegate takes stays with TFLite.
    """
    model, mapped = _placed(file, options, None)
    if options.mapping != MappingKind.DELEGATE:
        return model, mapped
    refused = next((reason for one in mapped for reason in one.reasons if reason.stage in (Stage.LOADING, Stage.GRAPH)), None)
    if refused is None:
        mapped = tuple(_of_bodies(file, options, mapped))
        refused = first_failure(mapped, options.mapping)
        if refused is None:
            return model, mapped
        model, mapped = _placed(file, options, refused)
    main = mapped[0].subgraph
    bodies = (one.subgraph != main and one.mapping == MappingKind.HOST for one in mapped)
    return model, tuple(replace(m, reasons=(refused,)) if body else m for m, body in zip(mapped, bodies, strict=True))


def _of_bodies(file: TfliteFile, options: ConversionOptions, mapped: Sequence[Mapped]) -> Iterator[Mapped]:
    """Outcomes with each operator's own reasons: a delegate is offered every subgraph, though a host runs bodies here."""
    main = mapped[0].subgraph if mapped else 0
    called = {one.subgraph for one in mapped} - {main}
    graphs = file.graph.subgraphs
    budget = budget_for(file.pool)
    own = {k: alone(file, k, graphs[k], options, budget).placements for k in sorted(called)}
    for one in mapped:
        found = own[one.subgraph][one.index] if one.subgraph in own else None
        if found is None or one.mapping != MappingKind.HOST or found.mapping not in (MappingKind.HOST, MappingKind.DELEGATE):
            yield one
            continue
        label, place = f"operator {one.index} {one.operator}", f"one of subgraph {one.subgraph}"
        reason = Reason(OF_A_BODY, place, label, kind=Why.OPERATOR, stage=Stage.OWN)
        yield replace(one, reasons=(reason,) if found.mapping == MappingKind.DELEGATE else found.reasons)


def _placed(file: TfliteFile, options: ConversionOptions, failure: Reason | None) -> tuple[Model, tuple[Mapped, ...]]:
    """Convert; ``failure``: why the delegate's model cannot be built."""
    main = drafted(file, options, failure)
    graph, context = main.graph, main.context
    passed, signature = set(graph.inputs), requested_signature(file.graph, options.signature)
    for name, i in signature.outputs.items() if signature else ():
        if i not in passed and not main.values.value(i).constant:
            main.values.value(i).name = name
    inputs, outputs = ([main.values.value(i) for i in side] for side in (graph.inputs, graph.outputs))
    hosted = options.left is not None
    model = model_with_states(file.path.stem, inputs, outputs, main.draft, main.variables, hosted=hosted)
    model = replace(model, relaxed=True) if context.relaxed else model
    placed = [replace(mapped, subgraph=main.number) if main.number else mapped for mapped in main.placements]
    return model, (*placed, *context.inner.values())


def drafted(file: TfliteFile, options: ConversionOptions, failure: Reason | None = None) -> Conversion:
    """The operators of subgraph 0, or of the subgraph that a signature calls, as drafted operations."""
    TYPES.register(HOST)
    signature = requested_signature(file.graph, options.signature)
    if signature is None and len(keys := distinct_signatures(file.graph)) > 1:
        LOG.warning("%s: the signatures %s differ; without --signature, its main graph is converted", file.path, ", ".join(keys))
    graph = file.graph.main
    if signature is not None:
        called = file.graph.subgraphs[signature.subgraph]
        graph = replace(called, inputs=tuple(signature.inputs.values()), outputs=tuple(signature.outputs.values()))
    operators = sum(len(subgraph.operators) for subgraph in file.graph.subgraphs)
    context = Context(file, options, CALLS + CALLS_PER_OPERATOR * operators, refused=_refused(file, options), failure=failure)
    draft = Draft(options.feature_level, budget_for(file.pool))
    main = Conversion(context, signature.subgraph if signature else 0, graph, draft, Variables())
    main.check_interface()
    for name, i in signature.inputs.items() if signature else ():
        main.values.value(i).name = name
    _resize_inputs(main, options)
    main.convert()
    return main


def _refused(file: TfliteFile, options: ConversionOptions) -> Reason | None:
    """The reason why TFLite does not load the file, or refuses the delegate for all of its graphs, if it does."""
    if options.allow_dynamic_dimensions and not within(options.tflite, "2.4", ""):
        raise OptionError(Reason("TFLite 2.4 or newer", options.tflite, operand="allow_dynamic_dimensions"))
    if options.mapping != MappingKind.DELEGATE:
        if file.graph.refused is not None:
            LOG.warning("TFLite does not load %s", in_file(file.graph.refused, file.path))
        return None
    reason = not_loaded(file, options.tflite)
    if reason is not None or options.allow_dynamic_dimensions:
        return reason
    found = first_dynamic(file.graph)
    return None if found is None else found.reason()


def _resize_inputs(main: Conversion, options: ConversionOptions) -> None:
    """Set the dimensions that the user requests for inputs."""
    by_name = {main.graph.tensors[i].name: i for i in main.graph.inputs}
    for name, dims in options.shapes.items():
        if name not in by_name:
            raise OptionError(Reason(f"an input ({', '.join(by_name)}){near(name, by_name)}", name, operand="shape"))
        if any(d <= 0 for d in dims):
            raise OptionError(Reason("dimensions above 0", str(list(dims)), operand=f"shape {name}"))
        main.values.value(by_name[name]).dims = tuple(dims) or (1,)
