"""Files that TFLite does not load: the first line of a plan says so, as LiteRT itself does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnbridge
from nnbridge.compare.arrays import save_arrays
from nnbridge.errors import ConversionError
from nnbridge.runtime.batches import Batches
from nnbridge.runtime.execution import Execution
from nnbridge_tflite.declaration import REGISTRY, TfliteOperator
from nnbridge_tflite.read.schema import builtin_codes
from tests.commands import call
from tests.differential import Fork
from tests.tflite.files import TfliteBuilder
from tests.tflite.loading import candidate, litert_refusal, loading_outcome, refusal

interpreter = pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
NO_DELEGATES = interpreter.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
CONV = {"padding": 0, "stride_w": 1, "stride_h": 1, "dilation_w_factor": 1, "dilation_h_factor": 1}
NONE = {"fused_activation_function": 0}


def quantised(scale: float, point: int = 0) -> dict[str, Any]:
    return {"scale": scale, "zero_point": point}


def elementwise(operator: str, type: str, points: tuple[int, int, int], options: dict[str, Any] | None = None) -> TfliteBuilder:
    """x and y → z with these zero points, all of scale 0.01."""
    file = TfliteBuilder()
    x, y, z = (file.tensor((1, 4), type, **quantised(0.01, point)) for point in points)
    file.operator(operator, [x, y], [z], options or NONE, version=2)
    return file


def joined(operator: str, type: str, first: dict[str, Any], second: dict[str, Any]) -> TfliteBuilder:
    """Two inputs beside each other, and an output of scale 0.1."""
    file = TfliteBuilder()
    x, y = file.tensor((1, 4), type, **first), file.tensor((1, 4), type, **second)
    out = file.tensor((1, 8) if operator == "CONCATENATION" else (2, 1, 4), type, **quantised(0.1))
    options = {"axis": 1} if operator == "CONCATENATION" else {"axis": 0, "values_count": 2}
    file.operator(operator, [x, y], [out], options, version=2)
    return file


def activation(operator: str, type: str, out: dict[str, Any], point: int = 0) -> TfliteBuilder:
    file = TfliteBuilder()
    x, y = file.tensor((1, 4), type, **quantised(0.001, point)), file.tensor((1, 4), type, **out)
    version = 2 if operator in ("LOG_SOFTMAX", "EXP") else 3
    file.operator(operator, [x], [y], {"beta": 1.0} if operator == "SOFTMAX" else {}, version=version)
    return file


def softmax_to_sixteen() -> TfliteBuilder:
    file = TfliteBuilder()
    x, y = file.tensor((1, 4), "int8", **quantised(0.001)), file.tensor((1, 4), "int16", **quantised(1 / 65536, -32768))
    file.operator("SOFTMAX", [x], [y], {"beta": 1.0}, version=2)
    return file


def reversed_sequence(type: str) -> TfliteBuilder:
    file = TfliteBuilder()
    x, y = file.tensor((2, 3), type, **quantised(0.1)), file.tensor((2, 3), type, **quantised(0.1))
    file.operator("REVERSE_SEQUENCE", [x, file.constant(np.array([1, 3], np.int32))], [y], {"seq_dim": 1, "batch_dim": 0})
    return file


def layer(operator: str, *, bias: int = 4, weights_point: int = 0, type: str = "int8", point: int = 0) -> TfliteBuilder:
    """A layer of four outputs, with a bias of so many elements."""
    file, filter = TfliteBuilder(), np.ones((4, 3, 3, 2), np.int8)
    shape, out, options, version = (1, 5, 5, 2), (1, 5, 5, 4), CONV, 3
    if operator == "DEPTHWISE_CONV_2D":
        filter, options = np.ones((1, 3, 3, 4), np.int8), {**CONV, "depth_multiplier": 2}
    if operator == "FULLY_CONNECTED":
        filter, shape, out, options, version = np.ones((4, 2), np.int8), (1, 2), (1, 4), {}, 4
    x, y = file.tensor(shape, type, **quantised(0.05, point)), file.tensor(out, type, **quantised(0.1))
    weights = file.constant(filter, **quantised(0.01, weights_point))
    added = file.constant(np.ones(bias, np.int64 if type == "int16" else np.int32), **quantised(0.0005))
    if operator == "TRANSPOSE_CONV":
        file.operator(operator, [file.constant(np.array(out, np.int32)), weights, x, added], [y], CONV, version)
    else:
        file.operator(operator, [x, weights, added], [y], options, version)
    return file


LAYERS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV")
FILES = {
    "CONCATENATION": joined("CONCATENATION", "int8", quantised(0.1), quantised(0.1)),
    "CONCATENATION, another scale": joined("CONCATENATION", "int8", quantised(0.1), quantised(0.05)),
    "CONCATENATION, another zero point": joined("CONCATENATION", "int8", quantised(0.1, 1), quantised(0.1)),
    "CONCATENATION uint8, another scale": joined("CONCATENATION", "uint8", quantised(0.1), quantised(0.05)),
    "CONCATENATION int16, a zero point": joined("CONCATENATION", "int16", quantised(0.1, 1), quantised(0.1)),
    "PACK": joined("PACK", "int8", quantised(0.1), quantised(0.1)),
    "PACK, another scale": joined("PACK", "int8", quantised(0.1), quantised(0.05)),
    "PACK uint8, another zero point": joined("PACK", "uint8", quantised(0.1), quantised(0.1, 3)),
    **{f"{o} int16": elementwise(o, "int16", (0, 0, 0), {**NONE, "pot_scale_int16": False}) for o in ("ADD", "SUB", "MUL")},
    **{f"{o} int16, {p}": elementwise(o, "int16", p, {**NONE, "pot_scale_int16": False}) for o in ("ADD", "SUB") for p in
       ((5, 0, 0), (0, -5, 0), (0, 0, 1))},
    "ADD int8, zero points": elementwise("ADD", "int8", (5, 1, -3)),
    **{f"{o} {t}": activation(o, t, quantised(s, p)) for o, t, s, p in (
        ("SOFTMAX", "int8", 1 / 256, -128), ("SOFTMAX", "int16", 1 / 32768, 0), ("TANH", "int16", 1 / 32768, 0),
        ("LOGISTIC", "int8", 1 / 256, -128), ("LOG_SOFTMAX", "int8", 16 / 256, 127))},
    **{f"{o} {t}, {s:g} {p}": activation(o, t, quantised(s, p)) for o, t, s, p in (
        ("SOFTMAX", "int8", 1 / 256, 0), ("SOFTMAX", "int8", 0.01, -128), ("SOFTMAX", "int16", 1e-4, 0),
        ("TANH", "int16", 3e-5, 0),
        ("LOGISTIC", "int8", 0.01, -128), ("LOG_SOFTMAX", "int8", 0.1, 127))},
    "TANH int16, a zero point of the input": activation("TANH", "int16", quantised(1 / 32768), 1),
    **{f"{o} int16": activation(o, "int16", quantised(0.001)) for o in ("RELU", "EXP")},
    **{f"{o} int16, a zero point": activation(o, "int16", quantised(0.001), 2) for o in ("RELU", "EXP")},
    "SOFTMAX int8 to int16": softmax_to_sixteen(),
    "REVERSE_SEQUENCE int8": reversed_sequence("int8"),
    "REVERSE_SEQUENCE int16": reversed_sequence("int16"),
    **{f"{o}": layer(o) for o in LAYERS},
    **{f"{o}, a bias of {n}": layer(o, bias=n) for o in LAYERS for n in (1, 5)},
    **{f"{o} int16, a zero point": layer(o, type="int16", point=2) for o in LAYERS},
    "CONV_2D, weights with a zero point": layer("CONV_2D", weights_point=5),
}  # fmt: skip


def loads(path: Path) -> bool:
    try:
        interpreter.Interpreter(str(path), experimental_op_resolver_type=NO_DELEGATES).allocate_tensors()
    except (RuntimeError, ValueError):
        return False
    return True


@pytest.mark.parametrize("name", FILES)
def test_a_plan_says_that_tflite_does_not_load_a_file_where_litert_does_not(name: str, tmp_path: Path) -> None:
    file = FILES[name]
    inputs = [0, 1] if name.startswith(("CONCATENATION", "PACK", "ADD", "SUB", "MUL")) else [0]
    path = file.write(tmp_path / "m.tflite", inputs, file.operators[0]["outputs"])
    refused = "does not load" in nnbridge.plan(path, device="nnapi-sample_all").summary.refusal
    assert refused is not loads(path)


def test_dimensions_that_tflite_infers_do_not_matter_as_the_file_states_them(tmp_path: Path, runtime: Fork) -> None:
    # Converters leave such files behind: the batch between SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND is 4, not 1.
    file = TfliteBuilder()
    x, between, out = file.tensor((1, 4, 4, 2)), file.tensor((1, 2, 2, 2)), file.tensor((1, 4, 4, 2))
    sizes, none = file.constant(np.int32([2, 2])), file.constant(np.zeros((2, 2), np.int32))
    file.operator("SPACE_TO_BATCH_ND", [x, sizes, none], [between], {})
    file.operator("BATCH_TO_SPACE_ND", [between, sizes, none], [out], {})
    model = file.content([x], [out])
    assert runtime.run(model) == [""]
    assert refusal(model) == ("", False)


@pytest.fixture(scope="module")
def runtime() -> Iterator[Fork]:
    fork = Fork(litert_refusal)
    yield fork
    fork.close()


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_drawn_changed_and_damaged_files_load_where_litert_loads_them(first: int, runtime: Fork) -> None:
    """``compare_verdicts.py --loads`` draws thousands more."""
    for number in range(first, first + 50):
        model = candidate(1, number)
        if model is None:
            continue
        try:
            (why,) = runtime.run(model)
        except RuntimeError as error:
            why = str(error)
        found, loaded = refusal(model)
        outcome = loading_outcome(why, found, loaded=loaded)
        assert not outcome.startswith("only"), (number, why, found)


@pytest.mark.parametrize(
    "declared", [one for one in REGISTRY if one.name in builtin_codes() and one.name != "CUSTOM"], ids=lambda one: one.name
)
def test_the_versions_of_an_operator_are_those_that_litert_registers(declared: TfliteOperator, runtime: Fork) -> None:
    first, last = declared.versions or (2, 1)
    for version in (first - 1, first, last, last + 1):
        file = TfliteBuilder()
        x, y = file.tensor((1, 2, 2, 1)), file.tensor((1, 2, 2, 1))
        file.operator(declared.name, [x], [y], {}, version)
        try:
            (why,) = runtime.run(file.content([x], [y]))
        except RuntimeError as error:  # TFLite looks for a kernel before one can end the process.
            why = str(error)
        assert ("Didn't find op" in why) == (not first <= version <= last), (version, why)


def test_the_operator_and_what_it_lacks_come_first(tmp_path: Path) -> None:
    path = layer("CONV_2D", bias=1).write(tmp_path / "m.tflite", [0], [1])
    first = call("plan", str(path), "--device", "nnapi-sample_all").stdout.splitlines()[0]
    lacks = "operator 0 CONV_2D: TFLite requires a bias element for each output channel, found 1 for 4 outputs"
    assert first == f"TFLite does not load this file: {lacks}."
    assert call("inspect", str(path)).stdout.splitlines()[0] == f"TFLite does not load this file: {lacks}."


def test_a_file_that_tflite_does_not_load_is_run_under_the_wide_mapping_only(tmp_path: Path) -> None:
    path = layer("CONV_2D", weights_point=5).write(tmp_path / "m.tflite", [0], [1])
    with pytest.raises(ConversionError, match=r"a file that TFLite loads, with 8-bit weights with zero points of 0.*found 5"):
        nnbridge.run(path, seed=0)
    failed = call("run", str(path), "--seed", "0")
    assert (failed.exit_code, "operator 0 CONV_2D: expected a file that TFLite loads, with" in failed.stderr) == (2, True)
    assert nnbridge.run(path, seed=0, mapping="wide")["t1"].shape == (1, 5, 5, 4)


DOORS = {
    "run": ("--seed", "0"),
    "run --profile": ("--seed", "0"),
    "run --batch": ("2", "--seed", "0"),
    "compare": ("--reference", "{stored}"),
    "compare --layers": ("--reference", "{stored}"),
    "compare --envelope": (),
    "report": ("--reference", "{stored}"),
    "report --repeat": ("1",),
    "bench": ("--rounds", "3", "--seconds", "0.1"),
    "bisect": ("--device", "nnapi-sample_all"),
    "reduce": ("--device", "nnapi-sample_all"),
}
"""Commands that run files, with what they need besides."""


@pytest.mark.parametrize("door", DOORS)
def test_no_command_runs_a_file_that_tflite_does_not_load(door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = layer("CONV_2D", weights_point=5).write(tmp_path / "m.tflite", [0], [1])
    stored = tmp_path / "stored.npz"
    samples = {"input:t0": np.zeros((1, 1, 5, 5, 2), np.int8), "output:t1": np.zeros((1, 1, 5, 5, 4), np.int8)}
    save_arrays(stored, samples)
    command, *options = door.split()
    failed = call(command, str(path), *options, *(text.format(stored=stored) for text in DOORS[door]))
    assert (failed.exit_code, "expected a file that TFLite loads, with" in failed.stderr) == (2, True), failed.stderr
    assert sorted(file.name for file in tmp_path.iterdir()) == ["m.tflite", "stored.npz"]


@pytest.mark.parametrize(
    "run",
    [
        lambda path: nnbridge.run(path, seed=0),
        lambda path: nnbridge.plan(path).run({"t0": np.zeros((1, 5, 5, 2), np.int8)}),
        lambda path: Execution(nnbridge.plan(path).compilation),
        lambda path: Batches(nnbridge.plan(path).compilation).run({"t0": np.zeros((2, 5, 5, 2), np.int8)}),
        lambda path: nnbridge.compare(path, str(path.with_name("stored.npz"))),
        lambda path: nnbridge.report(path, path.with_suffix(".html"), repeat=1),
    ],
)
def test_no_function_runs_a_file_that_tflite_does_not_load(run: Callable[[Path], object], tmp_path: Path) -> None:
    path = layer("CONV_2D", weights_point=5).write(tmp_path / "m.tflite", [0], [1])
    samples = {"input:t0": np.zeros((1, 1, 5, 5, 2), np.int8), "output:t1": np.zeros((1, 1, 5, 5, 4), np.int8)}
    save_arrays(tmp_path / "stored.npz", samples)
    with pytest.raises(ConversionError, match="expected a file that TFLite loads, with"):
        run(path)


def test_the_matrix_states_why_a_file_has_no_time(tmp_path: Path) -> None:
    path = layer("CONV_2D", weights_point=5).write(tmp_path / "m.tflite", [0], [1])
    found = call("matrix", str(path), "--devices", "nnapi-sample_all", "--time", "--json", "--store", tmp_path / "matrix.db")
    [cell] = json.loads(found.stdout)["cells"]
    assert "expected a file that TFLite loads" in cell["error"]
