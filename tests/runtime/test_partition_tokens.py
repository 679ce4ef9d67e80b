"""Counterparts of TestPartitioning.cpp's CacheTest: which token each step's device gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from nnbridge.devices.cpu import CpuPreparedModel
from nnbridge.devices.device import PreparedModel, PrepareModelConfig
from nnbridge.model import Model
from nnbridge.runtime.compilation import Compilation
from tests.runtime.planning import BOOL8, Graph, Picky, binary

TOKEN = bytes(32)
NO_TOKEN = bytes(32)


@dataclass
class Cached(Picky):
    """A caching driver that remembers its tokens."""

    tokens: list[bytes] = field(default_factory=list)

    def number_of_cache_files_needed(self) -> tuple[int, int]:
        return 1, 1

    def prepare_model_with_config(self, model: Model, config: PrepareModelConfig) -> PreparedModel:
        self.tokens.append(config.token)
        return CpuPreparedModel(model)


Maker = Callable[[], list[Cached]]


def cached(name: str, figure: float, *kinds: str, version: str = "1") -> Cached:
    driver = Cached(name, None, figure, figure, kinds=frozenset(kinds) if kinds else None)
    driver.version = version
    return driver


def model() -> Model:
    """``ADD1(ADD0(a, b), c)``."""
    graph = Graph()
    a, b, c = graph.operand(), graph.operand(), graph.operand()
    return graph.finish([a, b, c], [graph.add("ADD1", [graph.add("ADD0", [a, b]), c])])


@pytest.fixture
def tokens(tmp_path: Path) -> Callable[..., list[bytes]]:
    """The tokens that a driver gets in one compilation, the same each time that it is repeated."""

    def found(make: Maker, name: str, token: bytes | None = TOKEN, of: Model | None = None, **settings: int) -> list[bytes]:
        seen = []
        for _ in range(3):
            drivers = make()
            compilation = Compilation.create(of or model(), drivers)
            if token is not None:
                compilation.set_caching(tmp_path, token)
            for setting, value in settings.items():
                getattr(compilation, f"set_{setting}")(value)
            compilation.finish()
            seen.append(next(driver.tokens for driver in drivers if driver.name == name))
        assert seen[0] == seen[1] == seen[2]
        return seen[0]

    return found


def simple(name: str = "A", version: str = "1") -> Maker:
    """One driver runs the whole model."""
    return lambda: [cached(name, 0.5, version=version)]


def compound(name: str = "A", version: str = "1") -> Maker:
    """The driver runs the first operation only."""
    return lambda: [cached(name, 0.8, version=version), cached("other", 0.5, "ADD1")]


BODIES = pytest.mark.parametrize("body", [simple, compound], ids=["simple_body", "compound_body"])


def distinct(found: Sequence[list[bytes]]) -> bool:
    return all(len(tokens) == 1 for tokens in found) and len({tokens[0] for tokens in found}) == len(found)


@BODIES
def test_cache_token_none(body: Callable[..., Maker], tokens: Callable[..., list[bytes]]) -> None:
    assert tokens(body(), "A", None) == [NO_TOKEN]


@BODIES
def test_cache_token_different_device_names(body: Callable[..., Maker], tokens: Callable[..., list[bytes]]) -> None:
    assert distinct([tokens(body(name), name) for name in ("A", "B")])


@BODIES
def test_cache_token_different_device_version_strings(body: Callable[..., Maker], tokens: Callable[..., list[bytes]]) -> None:
    assert distinct([tokens(body(version=version), "A") for version in ("1.0", "1.1")])


@BODIES
def test_cache_token_different_preferences(body: Callable[..., Maker], tokens: Callable[..., list[bytes]]) -> None:
    assert distinct([tokens(body(), "A", preference=preference) for preference in range(3)])


@BODIES
def test_cache_token_different_priorities(body: Callable[..., Maker], tokens: Callable[..., list[bytes]]) -> None:
    assert distinct([tokens(body(), "A", priority=priority) for priority in (90, 100, 110)])


@BODIES
def test_cache_token_different_tokens(body: Callable[..., Maker], tokens: Callable[..., list[bytes]]) -> None:
    assert distinct([tokens(body(), "A", token) for token in (bytes(32), bytes([1] * 32))])


def test_cache_token_different_partitions_compound_body(tokens: Callable[..., list[bytes]]) -> None:
    makers = [
        lambda: [cached("A", 0.8)],
        lambda: [cached("A", 0.8), cached("B", 0.5, "ADD1")],
        lambda: [cached("A", 0.8), cached("B", 0.5, "ADD0")],
    ]
    assert distinct([tokens(make, "A") for make in makers])


def test_cache_token_different_reference_model_partitions(tokens: Callable[..., list[bytes]]) -> None:
    # Two branches that are equal but for their place in the plan, both on the driver.
    graph = Graph()
    condition, a, b, y = graph.operand("", (1,), BOOL8), graph.operand(), graph.operand(), graph.operand()
    graph.branch(condition, binary("ADD0"), binary("ADD0"), [a, b], [y])
    found = tokens(lambda: [cached("A", 0.8, "ADD0")], "A", of=graph.finish([condition, a, b], [y]))
    assert len(found) == len(set(found)) == 2
