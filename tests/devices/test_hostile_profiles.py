"""Profiles of others: any value in place of any value is a profile that answers, or one message with its line."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnbridge import Compilation, load
from nnbridge.devices.profile_levels import load_any
from nnbridge.devices.source_profiles import SourceProfile
from nnbridge.errors import InputError
from nnbridge.file import ModelFile
from nnbridge.model import Model
from nnbridge.source import SourceGraph
from nnbridge.toml import TomlTable, parse, toml_text
from tests.conftest import MODELS
from tests.foreign import MUTATIONS, mutated

DIGITS = MODELS / "digits_uint8.tflite"
OPERATIONS = """
[[device]]
name = "npu"
version = "1"
aliases = ["n"]
hardware = { side = 8 }
sets = { small = ["QUANT8_ASYMM", "FLOAT16"] }
terms = { square = "filter.h == filter.w" }
conditions = { narrow = "first_input.rank <= 4" }
performance = { other = [0.5, 0.5] }
[device.operations]
CONV_2D = { rules = [{ require = "square and filter.h <= side", when = "first_input.type in small", says = "side" }] }
SOFTMAX = { never = "no" }
RESHAPE = { types = ["QUANT8_ASYMM"], at_most = { input = 4 } }
"""
OPERATORS = """
[[device]]
name = "gpu"
level = "tflite"
hardware = { side = 8 }
sets = { small = ["INT8", "UINT8"] }
conditions = { strides = "stride_w <= side", kernel = [{ require = "filter.type in small" }, "bias.type == INT32"] }
[device.operations]
CONV_2D = ["strides", "kernel", { require = "filter.h <= side", when = "stride_h > 0", says = "side", uncertain = "?" }]
SOFTMAX = [["input.rank == 2"], []]
RESHAPE = []
"""


def _without_null(value: Any) -> Any:
    """TOML lacks null, and has numbers of 64 bits."""
    if isinstance(value, dict):
        return {key: _without_null(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_null(item) for item in value if item is not None]
    return value


def written(path: Path, profile: Any) -> Path:
    """A file with these values, each key in one line."""
    lines = toml_text([TomlTable(("all",), _without_null(profile) if isinstance(profile, dict) else {})]).splitlines()
    path.write_text("\n".join(lines[1:]), encoding="utf-8")
    return path


@cache
def _digits() -> tuple[Model, SourceGraph]:
    return load(DIGITS), ModelFile(DIGITS).source_graph


def answers(path: Path) -> None:
    """The answers of its devices for a model."""
    model, graph = _digits()
    for found in load_any(path):
        if isinstance(found, SourceProfile):
            found.claims(graph)
        else:
            Compilation.create(model, [found]).finish()


@pytest.mark.parametrize("text", [OPERATIONS, OPERATORS])
def test_the_profiles_that_are_changed_are_good(text: str, tmp_path: Path) -> None:
    answers(written(tmp_path / "p.toml", parse(text)))


@MUTATIONS
@given(st.sampled_from([parse(OPERATIONS), parse(OPERATORS)]).flatmap(mutated))
def test_any_value_in_a_profile_answers_or_is_bad_input(tmp_path: Path, profile: Any) -> None:
    with suppress(InputError):
        answers(written(tmp_path / "p.toml", profile))


@pytest.mark.parametrize("value", [[["INT8"]], [{}], [1], "INT8", {"INT8": 1}, [True]])
def test_sets_of_a_profile_are_lists_of_words(value: Any, tmp_path: Path) -> None:
    profile = parse(OPERATORS)
    profile["device"][0]["sets"]["small"] = value
    with pytest.raises(InputError, match="small: expected a"):
        load_any(written(tmp_path / "p.toml", profile))
