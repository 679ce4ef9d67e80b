"""Files that every reader of the package reads, or refuses with a message: what one checks, others may rely on."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from nnbridge.compare.comparison import OutputComparison
from nnbridge.errors import ShortageError, pass_shortage
from tests.commands import call
from tests.tflite.files import TfliteBuilder

MODEL = str(Path(__file__).parents[1] / "models" / "digits_int8.tflite")


@pytest.fixture
def without_buffers(tmp_path: Path) -> Path:
    """A TFLite file without a vector of buffers, as the schema allows and LiteRT does not load: no tensor has a value."""
    from nnbridge_tflite.read.reader import read
    from nnbridge_tflite.tables import decoded
    from nnbridge_tflite.write import encode

    graph = TfliteBuilder()
    x, y, z = (graph.tensor((1, 4), name=name) for name in "xyz")
    graph.operator("FLOOR", [x], [y], {})
    graph.operator("RELU", [y], [z], {})
    path = graph.write(tmp_path / "m.tflite", [x], [z])
    table = decoded(read(path))
    for tensor in table["subgraphs"][0]["tensors"]:
        tensor["buffer"] = 0
    path.write_bytes(encode({**table, "buffers": None}))
    return path


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "--seed", "0", "--mapping", "wide"), ("run", "--seed", "0", "--mapping", "wide", "--host", "nnbridge"),
        ("extract", "--operations", "0", "-o", "{}/e.tflite"),
        ("plan", "--advice", "--device", "nnapi-sample_float_fast"), ("inspect",), ("convert", "-o", "{}/m.nnapi"),
        ("export-overlay", "-o", "{}/o.json"), ("report", "-o", "{}/r.html"),
    ],
    ids=lambda found: " ".join(found),
)  # fmt: skip
def test_a_file_without_buffers_is_read_by_every_command(
    without_buffers: Path, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    verb, *more = (argument.format(tmp_path) for argument in arguments)
    result = call(verb, without_buffers, *more)
    assert result.exit_code == 0, result.output
    assert "internal error" not in result.output


SMALL = [
    "float8_e5m2",
    "float8_e4m3fn",
    "float8_e5m2fnuz",
    "float8_e4m3fnuz",
    "bfloat16",
    "int4",
    "uint4",
    "float4_e2m1fn",
    "float16",
]


@pytest.mark.parametrize("name", SMALL)
def test_outputs_of_small_types_are_compared_with_a_tolerance_and_a_verdict(name: str) -> None:
    small = np.dtype(getattr(pytest.importorskip("ml_dtypes"), name, name))
    found = OutputComparison("y", name)
    found.add(np.array([0, 1, 1], small), np.array([0, 1, 1], small))
    assert found.passed
    found.add(np.array([0, 1], small), np.array([1, 1], small))
    assert (found.passed, found.beyond, found.as_dict()["pass"]) == (False, 1, False)


@pytest.mark.parametrize("code", [2**31 - 1, 99, 0])
def test_a_type_that_onnx_does_not_define_is_named_by_its_number(tmp_path: Path, code: int) -> None:
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    x, y = (helper.make_tensor_value_info(name, 1, [1, 4]) for name in "xy")
    middle = helper.make_tensor_value_info("m", 1, [1, 4])
    middle.type.tensor_type.elem_type = code
    nodes = [helper.make_node("Relu", ["x"], ["m"]), helper.make_node("Sigmoid", ["m"], ["y"])]
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(helper.make_graph(nodes, "g", [x], [y], value_info=[middle])).SerializeToString())
    for arguments in (("plan", "--advice", "--device", "nnapi-sample_float_fast"), ("inspect",), ("run", "--seed", "0")):
        assert "internal error" not in call(arguments[0], path, *arguments[1:]).output


@pytest.mark.parametrize(
    "text", ["error return without exception set", "<method> returned NULL without setting an exception set"]
)
def test_native_code_that_fails_without_a_reason_is_a_shortage(text: str) -> None:
    with pytest.raises(ShortageError, match="not enough memory"):
        pass_shortage(SystemError(text))


NAMES = ["a" * 5000, "b/" * 3000, "a\0b", "x" * 300 + ".npz", "~" * 300, "c/" * 1500 + "*"]
"""Names that no file can have."""
NAMED = [
    ("plan", "{}"), ("run", MODEL, "--input", "{}"), ("run", MODEL, "--input", "serving_default_image:0={}"),
    ("plan", MODEL, "--device", "{}"), ("vts", "{}"), ("devices", "check", "{}"), ("devices", "learn", "{}", "-o", "o.toml"),
    ("matrix", "--diff", "{}", "{}"), ("matrix", "{}", "--devices", "nnapi-sample_all", "--store", "s.db"),
    ("compare", MODEL, "--seeds", "0", "--reference", "{}"), ("--config", "{}", "plan", MODEL),
    ("convert", MODEL, "-o", "{}.nnapi"),
    ("reduce", MODEL, "--predicate", "{}", "-o", "r.tflite"),
]  # fmt: skip


@pytest.mark.parametrize("command", NAMED, ids=" ".join)
def test_a_name_that_no_file_can_have_is_refused(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in NAMES:
        result = call(*(argument.replace("{}", name) for argument in command))
        assert isinstance(result.exception, SystemExit), (name[:20], result.exception)
        assert result.exit_code == 2
        assert result.stderr


LONG = ["a" * 100_000, "nnapi-sample_all" * 6_000, "a=" * 50_000, "a:" * 50_000, "a." * 50_000, "a+" * 50_000, "9" * 100_000]


@pytest.mark.parametrize("text", LONG, ids=lambda text: text[:4])
@pytest.mark.parametrize("command", [("plan", MODEL, "--device"), ("run", MODEL, "--seed", "0", "-o", "o.npz", "--input")])
def test_a_long_text_is_refused_in_time(
    text: str, command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long text compared with names, or tried as a path, takes no time that grows with the square of its length."""
    monkeypatch.chdir(tmp_path)
    start = time.process_time()
    assert call(*command, text).exit_code == 2
    assert time.process_time() - start < 1.5
