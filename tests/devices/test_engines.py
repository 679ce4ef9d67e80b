"""Profiles of LiteRT's engines beside the engines: small files here, and stored verdicts where the shared folder has them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nnbridge import devices
from nnbridge.compare.references import reference
from nnbridge.devices.evidence import evidence
from nnbridge.devices.profile_levels import load_any
from nnbridge.devices.source_profiles import Claim, SourceProfile
from nnbridge.engines import accelerator
from nnbridge.errors import NnbridgeError, Reason
from nnbridge.file import ModelFile
from tests.commands import call, data
from tests.differential import Fork
from tests.tflite.engines import XNNPACK_FAILS, delegated, differing, stored_cases, taken_by
from tests.tflite.files import TfliteBuilder

Made = tuple[TfliteBuilder, list[int], list[int]]
FILES: dict[str, tuple[Callable[[], Made], list[int] | None]] = {}
"""Name → the file, and the operators that LiteRT 2.3.0's default interpreter hands to XNNPACK; None: it has no interpreter."""


def case(name: str, taken: list[int] | None) -> Callable[[Callable[[], Made]], Callable[[], Made]]:
    """Decorator: a file with the operators that XNNPACK takes."""

    def register(made: Callable[[], Made]) -> Callable[[], Made]:
        FILES[name] = (made, taken)
        return made

    return register


def profile(name: str) -> SourceProfile:
    found = devices.device(name)
    assert isinstance(found, SourceProfile)
    return found


def claims(name: str, path: Path) -> tuple[Claim, ...]:
    return profile(name).claims(ModelFile(path).source_graph)


def one(name: str, shape: tuple[int, ...], out: tuple[int, ...], type: str = "float32", **options: object) -> Made:
    """One operator of one value, with one scale for both sides."""
    file = TfliteBuilder()
    scale = 0.5 if type in ("int8", "uint8") else 0.0
    value, result = file.tensor(shape, type, scale=scale), file.tensor(out, type, scale=scale)
    file.operator(name, [value], [result], options)
    return file, [value], [result]


def weights(stored: str, *, read_by_cpu: bool = False) -> Made:
    """Constant weights that a DEQUANTIZE unpacks for a FULLY_CONNECTED, and for an operator that XNNPACK does not know."""
    file = TfliteBuilder()
    scale = 0.0 if stored == "float16" else 0.01
    value, packed = file.tensor((2, 4)), file.constant(np.ones((3, 4)), stored, scale=scale)
    unpacked, out, again = file.tensor((3, 4)), file.tensor((2, 3)), file.tensor((3, 4))
    file.operator("DEQUANTIZE", [packed], [unpacked], {}, 3)
    file.operator("FULLY_CONNECTED", [value, unpacked, -1], [out], {})
    if read_by_cpu:
        file.operator("ZEROS_LIKE", [unpacked], [again], {})
    return file, [value], [out, *([again] if read_by_cpu else [])]


def product(scale: float) -> Made:
    """FULLY_CONNECTED of 8 bits whose sums are rescaled by 0.5 · 0.5 / ``scale``, behind an operator of no 8-bit kernel."""
    file = TfliteBuilder()
    value, positive = (file.tensor((2, 4), "int8", scale=0.5) for _ in range(2))
    filter, out = file.constant(np.ones((3, 4)), "int8", scale=0.5), file.tensor((2, 3), "int8", scale=scale)
    file.operator("ABS", [value], [positive], {})
    file.operator("FULLY_CONNECTED", [positive, filter, -1], [out], {})
    return file, [value], [out]


def addition(scale: float, second: str = "int8") -> Made:
    file = TfliteBuilder()
    a, b = file.tensor((2, 3), "int8", scale=0.5), file.tensor((2, 3), second, scale=scale)
    out = file.tensor((2, 3), "int8", scale=0.5)
    file.operator("ADD", [a, b], [out], {})
    return file, [a, b], [out]


def reshaped(shape: np.ndarray, *, computed: bool = False) -> Made:
    file = TfliteBuilder()
    value, out = file.tensor((2, 3)), file.tensor((6,))
    target = file.tensor(shape.shape, "int32") if computed else file.constant(shape, "int32")
    file.operator("RESHAPE", [value, target], [out], {})
    return file, [value, *([target] if computed else [])], [out]


def concatenated(count: int) -> Made:
    file = TfliteBuilder()
    parts = [file.tensor((2, 3)) for _ in range(count)]
    out = file.tensor((2, 3 * count))
    file.operator("CONCATENATION", parts, [out], {"axis": 1})
    return file, parts, [out]


case("a 7th dimension", [])(lambda: one("TANH", (1, 1, 1, 1, 1, 2, 3), (1, 1, 1, 1, 1, 2, 3)))
case("six dimensions", [0])(lambda: one("TANH", (1, 1, 1, 1, 2, 3), (1, 1, 1, 1, 2, 3)))
case("8-bit TANH", [0])(lambda: one("TANH", (2, 3), (2, 3), "uint8"))
case("8-bit ABS", [])(lambda: one("ABS", (2, 3), (2, 3), "int8"))
case("unsigned ELU", [])(lambda: one("ELU", (2, 3), (2, 3), "uint8"))
case("signed ELU", [0])(lambda: one("ELU", (2, 3), (2, 3), "int8"))
case("a stride above the window", [])(
    lambda: one("AVERAGE_POOL_2D", (1, 6, 6, 2), (1, 3, 6, 2), stride_w=1, stride_h=2, filter_width=1, filter_height=1)
)
case("float16 weights", [0, 1])(lambda: weights("float16"))
case("signed 8-bit weights", [0, 1])(lambda: weights("int8"))
case("unsigned 8-bit weights are computed", [0])(lambda: weights("uint8"))
case("unpacked weights that the CPU reads", [1])(lambda: weights("int8", read_by_cpu=True))
case("sums rescaled by 250", [1])(lambda: product(0.001))
case("sums rescaled by 256", None)(lambda: product(0.25 / 256))
case("a scale of a 1024th", [0])(lambda: addition(0.5 / 1024))
case("a scale below a 1024th", [])(lambda: addition(0.5 / 1025))
case("a stored shape", [0])(lambda: reshaped(np.array([6])))
case("a computed shape", [])(lambda: reshaped(np.array([6]), computed=True))
case("a shape of -1", [])(lambda: reshaped(np.array([-1])))
case("five parts", [0])(lambda: concatenated(5))
case("six parts", [])(lambda: concatenated(6))


@pytest.mark.parametrize("name", FILES)
def test_xnnpack_takes_what_the_default_interpreter_hands_to_it(name: str, tmp_path: Path) -> None:
    (file, inputs, outputs), taken = FILES[name][0](), FILES[name][1]
    path = file.write(tmp_path / "case.tflite", inputs, outputs)
    found = claims("xnnpack", path)
    assert [claim.operator.index for claim in found if claim.accepted] == (taken or [])
    assert any("failed" in (claim.reason.says if claim.reason else "") for claim in found) is (taken is None)


def test_a_file_that_xnnpack_fails_to_prepare_does_not_run_with_it(tmp_path: Path) -> None:
    for name in (name for name, (_, taken) in FILES.items() if taken is None):
        file, inputs, outputs = FILES[name][0]()
        shown = call("plan", file.write(tmp_path / "case.tflite", inputs, outputs), "--device", "xnnpack").stdout.splitlines()
        assert shown[0].startswith("The file does not run with xnnpack: it fails at operator ")
        assert "fails with the whole file" in shown[1]
        assert "without it" in shown[1]


@pytest.mark.parametrize("name", FILES)
def test_the_installed_wheel_says_the_same(name: str) -> None:
    litert = pytest.importorskip("ai_edge_litert")
    if litert.__version__ != "2.3.0":
        pytest.skip(f"the profile is of LiteRT 2.3.0, not {litert.__version__}")
    (file, inputs, outputs), taken = FILES[name][0](), FILES[name][1]
    fork = Fork(delegated)
    try:
        if taken is None:
            with pytest.raises(RuntimeError, match=XNNPACK_FAILS):
                fork.run(file.content(inputs, outputs))
        else:
            assert fork.run(file.content(inputs, outputs)) == taken
    finally:
        fork.close()


@pytest.mark.parametrize("name", ["xnnpack", "litert-gpu"])
def test_a_profile_takes_the_stored_files_as_the_engine_does(name: str, shared: Path, tmp_path: Path) -> None:
    folder, path = shared / "reference" / "engines", tmp_path / "case.tflite"
    if not folder.is_dir():
        pytest.skip(f"needs {folder}, which is not part of the repository")
    device, compared, different = profile(name), 0, []
    for stored in stored_cases(folder, shared / "models" / "tflite"):
        taken = taken_by(name, stored.engines)
        if taken is None:
            continue
        path.write_bytes(stored.content)
        graph = ModelFile(path).source_graph
        answers = device.claims(graph)
        assert not any(claim.uncertain for claim in answers)
        different += [(stored.name, c.operator.label) for c in differing(graph, answers, taken)]
        compared += 1
    assert compared > 1_000
    assert different == []


def addition_of(constant: tuple[int, ...], *, first: bool = False) -> Made:
    """ADD of a computed [2, 3, 4] and a constant."""
    file = TfliteBuilder()
    value, out = file.tensor((2, 3, 4)), file.tensor((2, 3, 4))
    stored = file.constant(np.ones(constant), "float32")
    file.operator("ADD", [stored, value] if first else [value, stored], [out], {})
    return file, [value], [out]


# Measured on LiteRT 2.3.0's accelerator: [4] and [1] on the right are computed right, equal and lower ranks are not.
@pytest.mark.parametrize(("constant", "wrong"), [((4,), False), ((1,), False), ((2, 3, 4), True), ((3, 1), True)])
def test_numbers_of_a_known_fault_are_unknown_and_the_plan_names_it(
    constant: tuple[int, ...], wrong: bool, tmp_path: Path
) -> None:
    file, inputs, outputs = addition_of(constant)
    path = file.write(tmp_path / "add.tflite", inputs, outputs)
    bound = profile("litert-gpu-float32").bound(ModelFile(path).source_graph)
    assert evidence(bound).emulated is not wrong
    assert ("another layout" in evidence(bound).numbers) is wrong
    planned = data("plan", path, "--device", "litert-gpu-float32")
    assert ("faults" in planned["operators"][0]) is wrong


def test_a_fault_of_an_operator_that_is_left_to_the_cpu_changes_nothing(tmp_path: Path) -> None:
    file, inputs, outputs = addition_of((2, 3, 4))
    bound = profile("litert-gpu-float32").bound(ModelFile(file.write(tmp_path / "add.tflite", inputs, outputs)).source_graph)
    left = bound.without({0: Reason("an operator that is worth delegating", "none")})
    assert evidence(left).emulated


def merged(name: str, reader: str, *, constant: bool, also: bool = False) -> Made:
    """An operator whose result is an output of the file and read by another, and ``also`` by a second one."""
    file, shape = TfliteBuilder(), (1, 4, 4, 8)
    value, middle = file.tensor(shape), file.tensor(shape)
    other = file.constant(np.arange(8), "float32") if constant else file.tensor(shape)
    file.operator(name, [value, other], [middle], {"fused_activation_function": 0})
    out = file.tensor((1, 1, 1, 8) if reader == "SUM" else shape)
    if reader == "CONV_2D":
        window = {"padding": 0, "stride_w": 1, "stride_h": 1, "dilation_w_factor": 1, "dilation_h_factor": 1}
        weights = file.constant(np.ones((8, 1, 1, 8)), "float32")
        file.operator(reader, [middle, weights, file.constant(np.ones(8), "float32")], [out], window)
    elif reader == "SUM":
        file.operator(reader, [middle, file.constant(np.array([1, 2]), "int32")], [out], {"keep_dims": True})
    else:
        file.operator(reader, [middle], [out], {})
    results = [middle, out]
    if also:
        results.append(file.tensor(shape))
        file.operator("RELU", [middle], results[-1:], {})
    return file, [value, *([] if constant else [other])], results


MERGED = {
    "a sum that is reduced": (merged("ADD", "SUM", constant=False), "one of the operands"),
    "a constant before a convolution": (merged("ADD", "CONV_2D", constant=True), "never written"),
    "a factor before a convolution": (merged("MUL", "CONV_2D", constant=True), "never written"),
    "a product that is reduced": (merged("MUL", "SUM", constant=False), ""),
    "a sum before a convolution": (merged("ADD", "CONV_2D", constant=False), ""),
    "a constant before an activation": (merged("ADD", "TANH", constant=True), ""),
    "two readers": (merged("ADD", "CONV_2D", constant=True, also=True), ""),
}
"""Outputs that another operator reads → the fault; measured on the accelerator of LiteRT 2.3.0."""


@pytest.mark.parametrize("name", MERGED)
def test_an_output_that_is_merged_into_its_reader_is_a_fault(name: str, tmp_path: Path) -> None:
    (file, inputs, outputs), fault = MERGED[name]
    found = claims("litert-gpu-float32", file.write(tmp_path / "m.tflite", inputs, outputs))[0].fault
    assert fault in found
    assert bool(found) is bool(fault)


@pytest.mark.parametrize("name", MERGED)
def test_the_accelerator_is_wrong_where_a_fault_says_so(name: str, tmp_path: Path) -> None:
    if (missing := accelerator.unavailable()) is not None:
        pytest.skip(str(missing))
    (file, inputs, outputs), fault = MERGED[name]
    path, rng = file.write(tmp_path / "m.tflite", inputs, outputs), np.random.default_rng(1)
    values = {str(i): rng.standard_normal((1, 4, 4, 8)).astype(np.float32) for i in inputs}
    gpu, right = (list(reference(kind, path).run(values)) for kind in ("litert-gpu-float32", "litert"))
    equal = all(np.allclose(a, b, rtol=0.0, atol=1e-3) for a, b in zip(gpu, right, strict=True))  # type: ignore[arg-type]
    assert equal is not bool(fault)  # An output that is never written may hold anything, NaN too.


def test_an_unpacked_constant_that_is_an_output_is_a_fault(tmp_path: Path) -> None:
    file = TfliteBuilder()
    value, out, unpacked = file.tensor((1, 1, 1, 4)), file.tensor((1, 1, 1, 4)), file.tensor((1, 1, 1, 4))
    file.operator("DEQUANTIZE", [file.constant(np.ones((1, 1, 1, 4)), "float16")], [unpacked], {}, 3)
    file.operator("ADD", [value, unpacked], [out], {"fused_activation_function": 0})
    for outputs, fault in (([out], False), ([out, unpacked], True)):
        found = claims("litert-gpu", file.write(tmp_path / "m.tflite", [value], outputs))[0].fault
        assert ("not written to an output" in found) is fault


def test_comparisons_of_8_bits_of_different_ranks_are_right(tmp_path: Path) -> None:
    file = TfliteBuilder()
    a, b, out = file.tensor((2, 3, 4), "int8", scale=0.1), file.tensor((4,), "int8", scale=0.1), file.tensor((2, 3, 4), "bool")
    file.operator("LESS", [a, b], [out], {})
    assert not claims("litert-gpu", file.write(tmp_path / "m.tflite", [a, b], [out]))[0].fault


def test_the_default_precision_of_the_gpu_is_not_emulated() -> None:
    assert not evidence(profile("litert-gpu")).emulated
    assert evidence(profile("litert-gpu-float32")).emulated


def test_the_old_name_of_the_gpu_delegate_works_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    assert devices.device("gpu-delegate").name == "tflite-gpu-delegate"
    assert "gpu-delegate is another name of tflite-gpu-delegate" in caplog.text


def test_a_graph_with_a_tensor_of_computed_shape_is_refused_whole_where_the_profile_says_static(tmp_path: Path) -> None:
    file = TfliteBuilder()
    value, flags, out = file.tensor((2, 3)), file.tensor((2, 3), "bool"), file.tensor((2, 3))
    places = file.tensor((0, 2), "int64")
    file.operator("ABS", [value], [out], {})
    file.operator("WHERE", [flags], [places], {})
    path = file.write(tmp_path / "dynamic.tflite", [value, flags], [out, places])
    text = '[[device]]\nname = "mine"\nlevel = "tflite"\nstatic = true\noperations = { ABS = [] }\n'
    (tmp_path / "mine.toml").write_text(text)
    (mine,) = load_any(tmp_path / "mine.toml")
    assert isinstance(mine, SourceProfile)
    reasons = [str(claim.reason) for claim in mine.claims(ModelFile(path).source_graph)]
    assert all("WHERE with an output of computed shape" in reason for reason in reasons)


def test_static_is_true_or_false(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[[device]]\nname = "mine"\nlevel = "tflite"\nstatic = "yes"\noperations = { ABS = [] }\n')
    with pytest.raises(NnbridgeError, match="true or false"):
        load_any(path)
