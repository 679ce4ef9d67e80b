"""Which model a log speaks of: files of a folder whose operations are those of the log, in its order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from nnbridge.converters import ConversionOptions
from nnbridge.errors import NnbridgeError
from nnbridge.file import ModelFile, load
from nnbridge.learning.logs import CPU, Delegated, Log, Logged
from nnbridge.learning.observations import AnsweredOperation, of_model
from nnbridge.model import Model
from nnbridge.source import SourceGraph
from nnbridge.types import is_extension

_MAPPINGS = ("phone", "wide")
_SUFFIXES = (".tflite", ".onnx", ".nnapi")


@dataclass(frozen=True, eq=False)
class KnownFile:
    """A model file, read when it is first asked for."""

    path: Path

    @cached_property
    def models(self) -> tuple[Model, ...]:
        """The model under each mapping that a client may have used; none if the file does not load."""
        found = []
        for mapping in _MAPPINGS if self.path.suffix != ".nnapi" else _MAPPINGS[1:]:
            try:
                found.append(load(self.path, ConversionOptions(mapping=mapping)))
            except NnbridgeError:
                continue
        return tuple(found)

    @cached_property
    def graph(self) -> SourceGraph | None:
        """The file's own operators."""
        try:
            return ModelFile(self.path).source_graph if self.path.suffix == ".tflite" else None
        except NnbridgeError:
            return None


def files_of(folder: Path | None) -> list[KnownFile]:
    """The model files below a folder."""
    return [] if folder is None else [KnownFile(p) for p in sorted(folder.rglob("*")) if p.suffix in _SUFFIXES]


def devices_of(logs: Sequence[Log]) -> list[str]:
    """The drivers that logs name, in order."""
    found = (device for log in logs for logged in log.models for answer in logged.answers for device in answer)
    return [device for device in dict.fromkeys(found) if device not in (CPU, "host", "NNAPI")]


def observed(logs: Sequence[Log], device: str, files: Sequence[KnownFile]) -> tuple[list[AnsweredOperation], list[str]]:
    """A driver's answers, and why operands of some are not known."""
    found: list[AnsweredOperation] = []
    unknown = []
    for logged in (each for log in logs for each in log.models):
        answers = [answer.get(device) for answer in logged.answers]
        if all(answer is None for answer in answers):
            continue
        matched = _match(logged, files)
        if isinstance(matched, str):
            unknown.append(matched)
            pairs = zip(logged.operations, answers, strict=True)
            found += [AnsweredOperation(name, yes, where=logged.where) for name, yes in pairs if yes is not None]
            continue
        model, places = matched
        by_place: list[bool | None] = [None] * len(model.main.operations)
        for place, answer in zip(places, answers, strict=True):
            by_place[place] = answer
        found += of_model(model, by_place, model.name or logged.where)
    return found, unknown


def _match(logged: Logged, files: Sequence[KnownFile]) -> tuple[Model, Sequence[int]] | str:
    """The model, and which of its operations the log has: all of them, all of NNAPI's, or a part that stands nowhere else.

    A text says why there is none: a network and its quantised form have the same operations.
    """
    if logged.model is not None:
        return logged.model, range(len(logged.operations))
    named = Path(logged.file)
    mine = [f for f in files if logged.file and f.path.name == named.name] or ([KnownFile(named)] if named.is_file() else [])
    candidates = mine or files
    whole = [(file, model, places) for file in candidates for model, places in _wholes(file, logged.operations)]
    parts = whole or [(f, m, places) for f in candidates for m in f.models for places in _parts(m, logged.operations)]
    if not parts:
        return f"no model of --models has the operations of {logged.where}"
    if len({file.path for file, _, _ in parts}) > 1 or (not whole and len({places for _, _, places in parts}) > 1):
        names = " and ".join(dict.fromkeys(file.path.name for file, _, _ in parts))
        return f"several places have the operations of {logged.where}: in {names}"
    return parts[0][1:]


def _wholes(file: KnownFile, operations: Sequence[str]) -> Iterator[tuple[Model, Sequence[int]]]:
    """The file's models that have these operations, all of them or all of NNAPI's."""
    for model in file.models:
        names = [model.operation_name(o) for o in model.main.operations]
        nnapi = [i for i, o in enumerate(model.main.operations) if not is_extension(o.type)]
        for places in (range(len(names)), nnapi):
            if [names[i] for i in places] == list(operations):
                yield model, places
                break


def _parts(model: Model, operations: Sequence[str]) -> Iterator[tuple[int, ...]]:
    """Where consecutive operations of NNAPI have these types: a partition of TFLite's delegate."""
    places = [i for i, o in enumerate(model.main.operations) if not is_extension(o.type)]
    names = [model.operation_name(model.main.operations[i]) for i in places]
    for low in range(len(names) - len(operations) + 1):
        if names[low : low + len(operations)] == list(operations):
            yield tuple(places[low : low + len(operations)])


# -- delegates -----------------------------------------------------------------------------------------------------------


@dataclass
class Operators:
    """Answers for one operator of a file format: how many are accepted, refused, not known; the delegate's words."""

    accepted: int = 0
    refused: int = 0
    open: int = 0
    says: str = ""


def delegated(logs: Sequence[Log], files: Sequence[KnownFile]) -> dict[str, dict[str, Operators]]:
    """Delegate or compiler → operator → its answers."""
    found: dict[str, dict[str, Operators]] = {}
    for each in (part for log in logs for part in log.delegated):
        table = found.setdefault(each.device, {})
        for name, words in each.refused.items():
            table.setdefault(name, Operators()).says = words
        graph = _graph(each, files)
        if graph is None:
            for name in (*each.refused, *(n for n in dict.fromkeys(each.indexes.values()) if n)):
                table.setdefault(_upper(name), Operators()).open += 1
            continue
        for name, answer in _operators(each, graph):
            counted = table.setdefault(name, Operators())
            counted.accepted += answer is True
            counted.refused += answer is False
            counted.open += answer is None
    return found


def _upper(name: str) -> str:
    """An operator as TFLite writes it: SplitV is SPLIT_V."""
    if name.isupper():
        return name
    return "".join(f"_{c}" if c.isupper() and i and not name[i - 1].isupper() else c for i, c in enumerate(name)).upper()


def _graph(each: Delegated, files: Sequence[KnownFile]) -> SourceGraph | None:
    """The only file with as many operators, and with the refused ones where the log has them."""
    graphs = [graph for file in files if (graph := file.graph) is not None and _fits(each, graph)]
    return graphs[0] if len(graphs) == 1 else None


def _fits(each: Delegated, graph: SourceGraph) -> bool:
    names = [operator.name for operator in graph.operators]
    if each.total >= 0 and each.total != len(names):
        return False
    placed = all(i < len(names) and _plain(names[i]) == _plain(name) for i, name in each.indexes.items())
    return placed and set(each.refused) <= set(names)


def _plain(name: str) -> str:
    return name.replace("_", "").upper()


def _operators(each: Delegated, graph: SourceGraph) -> Iterator[tuple[str, bool | None]]:
    """Each operator's answer. Kinds that are named are refused whole if that makes the number that is refused."""
    names = [operator.name for operator in graph.operators]
    rest = len(names) - each.accepted if each.accepted >= 0 else -1
    listed = sum(name in each.refused for name in names)
    for i, name in enumerate(names):
        if each.indexes:
            yield name, i not in each.indexes
        elif rest in (0, len(names)):
            yield name, rest == 0
        elif each.refused and name not in each.refused:
            yield name, True
        else:
            yield name, False if each.refused and listed == rest else None


def by_device(found: Mapping[str, Mapping[str, Operators]]) -> list[tuple[str, Mapping[str, Operators]]]:
    """Delegates whose log said something of an operator."""
    return [(device, table) for device, table in found.items() if table]
