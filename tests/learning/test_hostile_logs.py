"""Logs of other people: read in bounded time and memory, any mistake of theirs is one InputError, their names stay names."""

from __future__ import annotations

import json
import time
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from nnbridge import Compilation, load
from nnbridge.devices import device
from nnbridge.devices.profile_levels import load_any
from nnbridge.errors import InputError
from nnbridge.learning.command import learn_from
from nnbridge.learning.logs import MAX_REPEATED, read_log
from nnbridge.plan_data import plan_as_dict
from nnbridge.toml import read_toml
from tests.conftest import MODELS
from tests.foreign import MUTATIONS, mutated

OPERATION = "01-01 00:00:00.0 1 1 I ExecutionPlan: findBestDeviceForEachOperation(CONV_2D:0) = 0 (npu)\n"
CHATTY = "01-01 00:00:00.0 1 1 I chatty  : uid=1 identical {} lines\n"
REFUSED = "01-01 00:00:00.0 1 1 I ExecutionPlan: Device {} can't do operation ADD\n"


def log(folder: Path, text: str, name: str = "l.log") -> Path:
    """A file with a log."""
    (folder / name).write_text(text)
    return folder / name


def learned(folder: Path, text: str) -> Path:
    """The profile of a log."""
    learn_from([log(folder, text)], None, folder / "o.toml", "", None)
    return folder / "o.toml"


def repeat(text: str, size: int) -> str:
    """A text again and again."""
    return text * (size // len(text))


SIZE = 1 << 19
LINES = {
    "chatty again and again": "chatty:",
    "chatty with spaces": "chatty" + " " * 50,
    "identical again and again": "chatty : identical 5 identical ",
    "digits": "9",
    "digits before operations": "999999 operations will run on the GPU, ",
    "first": "First 1",
    "names of operators": "Operator A_A",
    "letters": "A",
    "letters and colons": "A: ",
    "devices": "Device x",
    "places": "findBestDeviceForEachOperation(A",
    "open brackets": "findBestDeviceForEachOperation(A) = 1 (",
    "spaces": " ",
    "times": "01-01 1 1 ",
    "replaced": "Replacing 1",
    "compilers": "LiteRT Op #1 'a",
    "selected": "PartitionSubgraph: 1, selected num ops: 1, from tot",
    "nobody": "No driver can do operation A",
    "supported": "Following operations are not supported by GPU",
}


@pytest.mark.parametrize("what", LINES)
def test_a_long_line_of_anything_is_read_in_linear_time(what: str, tmp_path: Path) -> None:
    path = log(tmp_path, OPERATION + repeat(LINES[what], SIZE) + "\n")
    started = time.process_time()
    with suppress(InputError):
        read_log(path)
    assert time.process_time() - started < 2


MANY = {
    "operations that chatty left out": OPERATION + repeat(CHATTY.format(10_000), SIZE),
    "devices that refuse one operation each": "".join(REFUSED.format(f"d{i}") + OPERATION for i in range(3_000)),
    "devices that refuse one operation": "".join(REFUSED.format(f"d{i}") for i in range(14_000)) + OPERATION * 3_000,
    "models": "".join(f"findBestDeviceForEachOperation(A{i}) = 0 (npu)\nNo driver can do the op\n" for i in range(7_000)),
    "delegates": "".join(f"Replacing 1 out of 2 node(s) with delegate (D{i})\n" for i in range(9_000)),
}


@pytest.mark.parametrize("what", MANY)
def test_a_log_that_expands_to_more_than_any_phone_writes_is_refused_early(what: str, tmp_path: Path) -> None:
    path = log(tmp_path, MANY[what])
    started = time.process_time()
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="at most"):
            learn_from([path], None, tmp_path / "o.toml", "", None)
        assert tracemalloc.get_traced_memory()[1] < 200 * 2**20
    finally:
        tracemalloc.stop()
    assert time.process_time() - started < 4  # memory is traced, which takes its time
    assert not (tmp_path / "o.toml").exists()


def test_what_chatty_left_out_of_other_programs_lines_counts_nothing(tmp_path: Path) -> None:
    other = "01-01 00:00:00.0 1 1 I other: a line\n" + CHATTY.format(10 * MAX_REPEATED) + CHATTY.format("9" * 5_000)
    assert read_log(log(tmp_path, OPERATION + other)).models[0].operations == ("CONV_2D",)


@pytest.mark.parametrize(
    "line",
    [
        CHATTY.format("9" * 5_000),
        f"Replacing {'9' * 5_000} out of 5 node(s) with delegate (X)\n",
        f"Replacing 5 out of {'9' * 50} node(s) with delegate (X)\n",
        f"{'9' * 5_000} operations will run on the GPU, and the remaining 1\n",
        f"PartitionSubgraph: 0, selected num ops: {'9' * 5_000}, from total ops: 1\n",
        f"LiteRT Op #{'9' * 5_000} 'Add' (code=1) is not supported in Qualcomm Compiler\n",
    ],
)
def test_a_number_of_thousands_of_digits_is_refused_with_its_line(line: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"line 2: expected a number of at most 9 digits, found one of"):
        read_log(log(tmp_path, OPERATION + line))


@pytest.mark.parametrize("name", ["a/b", "/etc/passwd", "..", ".", "a\0b", "../m.nnapi", "x" * 5_000, "a\nb"])
def test_a_trace_names_files_beside_it_only(name: str, tmp_path: Path) -> None:
    call = {"answers": [{"type": "ADD", "devices": {"npu": True}}], "saved": name}
    for text in (json.dumps(call), f"{json.dumps(call)}\n{{}}\n"):
        with pytest.raises(InputError, match=r"the name of a file beside the trace|printable characters"):
            read_log(log(tmp_path, text))


@pytest.mark.parametrize("name", ["x" * 5_000, "/" + "x/" * 5_000, "a\0b", "\ud800", "/dev/zero", "/dev/stdin"])
def test_a_plan_of_a_file_that_cannot_be_read_is_learned_without_it_or_refused(name: str, tmp_path: Path) -> None:
    operation = {"source": 0, "type": "ADD", "place": "device", "device": "npu", "reasons": []}
    try:
        path = learned(tmp_path, json.dumps({"model": name, "operations": [operation]}))
    except InputError:
        return
    assert [profile.name for profile in load_any(path)] == ["npu"]


@pytest.mark.parametrize(
    "name", ['npu"]\n[evil]\n', "a]", "# a", "'''", '"""', "\\u0022", "a.b", "\x7f", "日本", "{a = 1}", "\ud800", "", "n" * 300]
)
def test_names_of_a_log_stay_names_in_the_profile_or_are_refused(name: str, tmp_path: Path) -> None:
    call = {"answers": [{"type": name, "devices": {name: True}}, {"type": "ADD", "devices": {name: False}}]}
    try:
        path = learned(tmp_path, json.dumps(call))
    except InputError:
        return
    (table,) = read_toml(path, "a profile")["device"]
    assert (table["name"], set(table["operations"])) == (name, {"others", "ADD"})
    assert [profile.name for profile in load_any(path)] == [name]


@pytest.mark.parametrize("operator", ["日本", "Größe", "_", "a__B", "A1", "0"])
def test_names_of_operators_stay_names_in_the_profile(operator: str, tmp_path: Path) -> None:
    path = learned(tmp_path, f"LiteRT Op #1 '{operator}' (code=1) is not supported in Qualcomm Compiler\n")
    (table,) = read_toml(path, "a profile")["device"]
    assert table["name"] == "qualcomm"
    assert len(table["operations"]) == 1


def test_words_of_a_delegate_stay_words(tmp_path: Path) -> None:
    words = 'no"]\n[evil] \\ \x7f \x1b[31m'.replace("\n", " ")
    path = learned(tmp_path, f"Operator ADD (v1) refused by NNAPI delegate: {words}\n")
    (table,) = read_toml(path, "a profile")["device"]
    assert words in table["operations"]["ADD"][0]["uncertain"]


def _plan() -> Any:
    compilation = Compilation.create(load(MODELS / "digits_uint8.tflite"), [device("aosp-minimal")])
    compilation.finish()
    plan = plan_as_dict(compilation)
    return json.loads(json.dumps({"model": "digits_uint8.tflite", "operations": plan["operations"][:4]}))


PLAN = _plan()
CALL = {
    "call": "ANeuralNetworksCompilation_finish",
    "saved": "t.model1.nnapi",
    "answers": [
        {"type": kind, "devices": {"npu": yes, "nnapi-reference": True}} for kind, yes in (("ADD", True), ("MUL", False))
    ],
}


def _learns(folder: Path, text: str) -> None:
    path = log(folder, text)
    with suppress(InputError):
        learn_from([path], None, folder / "o.toml", "", None)
        load_any(folder / "o.toml")


@MUTATIONS
@given(mutated(PLAN))
def test_any_value_in_a_plan_is_learned_from_or_bad_input(tmp_path: Path, plan: Any) -> None:
    _learns(tmp_path, json.dumps(plan))


@MUTATIONS
@given(mutated(CALL))
def test_any_value_in_a_trace_is_learned_from_or_bad_input(tmp_path: Path, call: Any) -> None:
    _learns(tmp_path, f"{json.dumps(call)}\n{{}}\n")
