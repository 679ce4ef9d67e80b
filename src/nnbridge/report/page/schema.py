"""The data that a report page holds, ``nnbridge-report/1``. Keys that are there thousands of times are short.

Operations and operands are numbered through: the main subgraph's, then those of each body that the plan interprets.
docs/report.md describes every key.
"""

from __future__ import annotations

from typing import Any, TypedDict

SCHEMA = "nnbridge-report/1"

Json = dict[str, Any]


class OperandData(TypedDict, total=False):
    """One operand; ``s`` and further ones only where there is something to state."""

    n: str
    """Name."""
    t: int
    """Type: index into ``types``."""
    d: list[int]
    """Dimensions, 0 for those that are open."""
    l: str  # noqa: E741  # a key, of which there are thousands
    """Lifetime: temporary, input, output, constant, none, subgraph, by their first letters."""
    b: int | None
    """Bytes of a tensor, null where its size is open."""
    s: float
    z: int
    """Scale and zero point."""
    q: int
    """How many scales there are, of tensors with one for each channel."""
    f: str
    """Element type in the file, if another."""
    v: Any
    """Value of a small constant."""


class OperationData(TypedDict):
    """One operation."""

    t: int
    n: str
    """Name."""
    m: str
    """Mapping."""
    f: str
    """The file's operator with its index."""
    g: int
    """Source: the subgraph that contains it."""
    i: list[int]
    o: list[int]
    a: list[str]
    """Names of the declared inputs, in the order of ``i``."""
    mac: int | None
    pb: int
    """Bytes of parameters."""
    ob: int | None
    """Bytes of outputs."""
    e: list[tuple[str, list[tuple[str, int]]]]
    """Bodies that a device runs as a whole: role, and how many operations of each type."""


class SourceData(TypedDict):
    """A subgraph that was partitioned."""

    role: str
    parent: int | None
    """The IF or WHILE."""
    within: str
    inputs: list[int]
    outputs: list[int]


class RunnerData(TypedDict):
    """Something that runs operations."""

    name: str
    place: str
    key: str
    """1, 2 … in order of --device; C, H, R."""
    version: str
    level: int
    type: str
    declared: dict[str, float]
    """The driver's relative execution times by type of tensor; NNAPI's CPU has 1."""


class StepData(TypedDict):
    """One partition; ``in`` and ``out`` are the tensors that other partitions make or read."""

    r: int
    ops: list[int]
    ins: list[int]
    outs: list[int]
    bi: int | None
    bo: int | None


class PlanData(TypedDict):
    """A plan of the model; lists by operation are in the order of ``ops``."""

    asked: list[str]
    runners: list[RunnerData]
    r: list[int]
    """Runner of each operation, -1 for the runtime."""
    k: list[int]
    """Step of each operation, -1 for control flow that the runtime interprets."""
    why: list[list[int]]
    """Reasons of each operation."""
    reasons: list[Json]
    steps: list[StepData]
    order: list[int]
    crossing: int | None
    live: list[int]
    fallback: str | None
    judgement: str
    """The first line of ``plan``; empty where no device was asked."""
    sentence: str
    counts: Json
    """Of the file's operators, as in the sentence: ``unit``, ``total``, ``device``, ``elsewhere``; ``host``: its name."""


class PageData(TypedDict):
    """Everything."""

    schema: str
    model: Json
    mapping: str
    types: list[str]
    operands: list[OperandData]
    ops: list[OperationData]
    sources: list[SourceData]
    plan: PlanData
    against: Json | None
    """Another plan of the same model: what of :class:`PlanData` the comparison of both needs."""
    evidence: list[Json]
    """Of each driver that was asked: where its rules come from, what was verified, whether its numbers are emulated."""
    compare: Json | None
    layers: Json | None
    times: Json | None
    estimates: list[Json]
    """Of each device with a cost model: partitions, choices, sentences, as ``plan --estimate`` has them."""
    made: Json
