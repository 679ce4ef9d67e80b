"""Search for the model of a log: files of a folder whose operations are those of the log, in its order."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from nnbridge.converters import ConversionOptions
from nnbridge.errors import RefusalError, counted
from nnbridge.file import ModelFile, load
from nnbridge.learning.logs import CPU, Delegated, Log, Logged
from nnbridge.learning.observations import AnsweredOperation, of_model
from nnbridge.model import Model
from nnbridge.records import dataclass
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
            except RefusalError:
                continue
        return tuple(found)

    @cached_property
    def named(self) -> list[tuple[Model, tuple[str, ...], tuple[int, ...]]]:
        """Each model with the names of its operations, and the indexes of those that are NNAPI's."""
        return [
            (
                model,
                tuple(model.operation_name(o) for o in model.main.operations),
                tuple(i for i, o in enumerate(model.main.operations) if not is_extension(o.type)),
            )
            for model in self.models
        ]

    @cached_property
    def graph(self) -> SourceGraph | None:
        """The file's own operators."""
        try:
            return ModelFile(self.path).source_graph if self.path.suffix == ".tflite" else None
        except RefusalError:
            return None


@dataclass(frozen=True, eq=False)
class ModelPlace:
    """The place in a model of the operations that a log names."""

    file: KnownFile
    model: Model
    operations: Sequence[int]


class KnownFiles(tuple[KnownFile, ...]):
    """All files that may have run. A log names the same operations again and again, which are looked up once."""

    @cached_property
    def _known(self) -> dict[tuple[tuple[str, ...], str], list[ModelPlace]]:
        return {}

    def places(self, operations: tuple[str, ...], named: str) -> list[ModelPlace]:
        """Every file that has these operations as a whole, otherwise every part of one; of the named file where it is there."""
        key = operations, named
        if key not in self._known:
            path = Path(named)
            mine = [f for f in self if named and f.path.name == path.name]
            candidates = mine or ([KnownFile(path)] if os.path.isfile(path) else self)
            whole = [place for file in candidates if (place := _whole(file, operations))]
            self._known[key] = whole or list(_different(p for file in candidates for p in _parts(file, operations)))
        return self._known[key]


def _different(places: Iterator[ModelPlace]) -> Iterator[ModelPlace]:
    """The same operations of a file's models under several mappings are one place."""
    return iter({(place.file, place.operations): place for place in reversed(list(places))}.values())


def files_of(folder: Path | None) -> KnownFiles:
    """The model files below a folder."""
    return KnownFiles(() if folder is None else (KnownFile(p) for p in sorted(folder.rglob("*")) if p.suffix in _SUFFIXES))


def devices_of(logs: Sequence[Log]) -> list[str]:
    """The drivers that logs name, in order."""
    found = (device for log in logs for logged in log.models for answer in logged.answers for device in answer)
    return [device for device in dict.fromkeys(found) if device not in (CPU, "host", "NNAPI")]


def observed(logs: Sequence[Log], device: str, files: KnownFiles) -> tuple[list[AnsweredOperation], list[str]]:
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


def _match(logged: Logged, files: KnownFiles) -> tuple[Model, Sequence[int]] | str:
    """The model, and which of its operations the log has: all of them, all of NNAPI's, or a part that stands nowhere else.

    A text says why there is none: a network and its quantised form have the same operations.
    """
    if logged.model is not None:
        return logged.model, range(len(logged.operations))
    places = files.places(logged.operations, logged.file)
    hosted = sum("." in name for name in logged.operations)
    if not places and hosted:
        went = f"{counted(hosted, 'operator')} went back to the app's runtime"
        return f"{logged.where}: {went}, and the plan has no NNAPI operations of them; make it with --fallback cpu"
    if not places:
        return f"no model of --models has the operations of {logged.where}"
    if len(places) > 1:
        names = " and ".join(dict.fromkeys(place.file.path.name for place in places))
        return f"several places have the operations of {logged.where}: in {names}"
    return places[0].model, places[0].operations


def _whole(file: KnownFile, operations: tuple[str, ...]) -> ModelPlace | None:
    """The file's first model that has these operations, all of them or all of NNAPI's."""
    for model, names, nnapi in file.named:
        if operations == names:
            return ModelPlace(file, model, range(len(names)))
        if len(operations) == len(nnapi) and operations == tuple(names[i] for i in nnapi):
            return ModelPlace(file, model, nnapi)
    return None


def _parts(file: KnownFile, operations: tuple[str, ...]) -> Iterator[ModelPlace]:
    """The places of consecutive operations of NNAPI with these types, a partition of TFLite's delegate; of each model two at
    most."""
    for model, names, nnapi in file.named:
        # One character for each type: Python finds a part of a text in linear time.
        letters: dict[str, str] = {}
        whole, part = (
            "".join(letters.setdefault(name, chr(len(letters))) for name in listed)
            for listed in ((names[i] for i in nnapi), operations)
        )
        low = whole.find(part)
        for _ in range(2):
            if low >= 0:
                yield ModelPlace(file, model, nnapi[low : low + len(part)])
                low = whole.find(part, low + 1)


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
    if each.total >= 0 and each.total != len(graph.operators):
        return False
    names = [operator.name for operator in graph.operators]
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
