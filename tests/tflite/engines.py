"""LiteRT's own engines asked about a file: what its default interpreter hands to XNNPACK; stored verdicts beside a profile."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnbridge.devices.source_profiles import Claim
from nnbridge.source import SourceGraph

XNNPACK_FAILS = "TfLiteXNNPackDelegate"
"""In LiteRT's message where the delegate takes operators and can not prepare them: there is no interpreter."""
_NOT_LOADED = re.compile("Registration failed|failed to prepare|model_load|Failed to build TFL interpreter")
"""LiteRT's words for a file that it does not load, whoever is to compute it."""


@dataclass(frozen=True)
class EngineCase:
    """A file, and what an engine says about it."""

    name: str
    content: bytes
    engines: Mapping[str, Any]
    """Engine → its verdict."""


def stored_cases(folder: Path, models: Path) -> Iterator[EngineCase]:
    """The cases of a folder: ``cases.zip`` with ``verdicts.jsonl``, and ``models.jsonl`` for published files."""
    with zipfile.ZipFile(folder / "cases.zip") as files:
        for line in (folder / "verdicts.jsonl").read_text(encoding="utf-8").splitlines():
            found = json.loads(line)
            yield EngineCase(found["file"], files.read(found["file"]), found)
    for line in (folder / "models.jsonl").read_text(encoding="utf-8").splitlines():
        found = json.loads(line)
        if (path := models / found["file"]).exists():
            yield EngineCase(found["file"], path.read_bytes(), found)


def delegated(content: bytes) -> list[int]:
    """The operators that the default interpreter hands to XNNPACK, by index; RuntimeError where there is no interpreter.

    They are found from a delegate's outputs back to its inputs: an operator on which nothing depends is not among them.
    """
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=content, num_threads=1)
    interpreter.allocate_tensors()
    nodes = interpreter._get_ops_details()
    plain = [node for node in nodes if node["op_name"] != "DELEGATE"]
    makers = {int(tensor): place for place, node in enumerate(plain) for tensor in node["outputs"]}
    found: set[int] = set()
    for node in nodes:
        if node["op_name"] != "DELEGATE":
            continue
        passed, left = {int(t) for t in node["inputs"]}, [int(t) for t in node["outputs"]]
        while left:
            place = makers.get(left.pop())
            if place is not None and place not in found:
                found.add(place)
                left += [int(t) for t in plain[place]["inputs"] if int(t) not in passed]
    return sorted(found)


def observable(graph: SourceGraph) -> set[int]:
    """The operators on which an output of the file depends, by index; of equal writers of a tensor the last one."""
    found: set[int] = set()
    left = [tensor.index for tensor in graph.outputs]
    while left:
        operator = graph.producers.get(left.pop())
        if operator is not None and operator.index not in found:
            found.add(operator.index)
            left += [tensor.index for tensor in operator.inputs if tensor is not None]
    return found


def taken_by(device: str, engines: Mapping[str, Any]) -> Taken | None:
    """The part of a file that an engine takes by its stored verdict; None where LiteRT does not load the file."""
    if device == "xnnpack":
        found = engines["xnnpack"]
        if found["delegated"] is None and XNNPACK_FAILS not in found["why"]:
            return None
        return Taken(frozenset(found["delegated"] or ()))
    found = engines["gpu"]
    if found["ok"] is False and any(_NOT_LOADED.search(line) for line in found["why"]):
        return None
    return Taken(None, whole=found["ok"] is True)


@dataclass(frozen=True)
class Taken:
    """The operators that an engine takes; None where only ``whole`` is known: whether these are all."""

    operators: Collection[int] | None
    whole: bool = False


def differing(graph: SourceGraph, claims: Sequence[Claim], taken: Taken) -> list[Claim]:
    """The certain answers of a profile that are not the engine's; one of them where only the whole file's verdict is known."""
    if any(claim.uncertain for claim in claims) and taken.operators is None:
        return []
    if taken.operators is None:
        refused = [claim for claim in claims if not claim.accepted]
        return list(refused[:1] if taken.whole else claims[:1] if not refused else ())
    seen, known = observable(graph), taken.operators
    return [c for c in claims if c.operator.index in seen and not c.uncertain and c.accepted != (c.operator.index in known)]
