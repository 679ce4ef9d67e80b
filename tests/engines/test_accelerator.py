"""LiteRT's GPU accelerator: its words as data, the Vulkan driver that is found, files that it takes, refuses, or ends with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nnbridge.apart import Apart, EndedError
from nnbridge.compare.references import REFERENCE_RUNTIMES, reference
from nnbridge.engines import REFERENCES, accelerator, vulkan
from nnbridge.engines.accelerator import AcceleratorLog
from nnbridge.errors import InputError, Reason
from tests.conftest import MODELS
from tests.tflite.files import TfliteBuilder

DIGITS = MODELS / "digits_float32.tflite"

LISTED = """INFO: [delegate_webgpu.cc:363] Created a WebGPU environment.
E0000 00:00:1795955399.015331    7918 gpu_compatibility.cc:63]
ERROR: Following operations are not supported by GPU delegate:
GATHER_ND: Operation is not supported.
RELU: Tensor dimensions must be less than 5. t
63 operations will run on the GPU, and the remaining 2 operations will run on the CPU.
INFO: [x.cc:1] more"""


@pytest.fixture
def gpu() -> None:
    """Skips the test where the accelerator cannot run."""
    if (missing := accelerator.unavailable()) is not None:
        pytest.skip(str(missing))


def test_the_log_lists_refused_operators_and_counts_both_sides() -> None:
    found = AcceleratorLog.read(LISTED)
    assert found.reasons == ("GATHER_ND: Operation is not supported.", "RELU: Tensor dimensions must be less than 5. t")
    assert (found.on_gpu, found.on_cpu, found.broken) == (63, 2, "")


def test_a_shader_that_does_not_compile_is_in_the_log_only() -> None:
    found = AcceleratorLog.read("INFO: fine\nValidation error: Error while parsing WGSL: :1:1 error: unexpected token")
    assert found.broken.startswith("Validation error")
    assert found.on_gpu is None


def test_a_log_without_refusals_has_no_reasons() -> None:
    assert AcceleratorLog.read("INFO: [a.cc:1] Failed to load OpenCL library\n") == AcceleratorLog()


def test_a_driver_that_the_environment_names_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vulkan, "_BROWSERS", (str(tmp_path),))
    monkeypatch.setattr(vulkan, "_system_has_loader", lambda: False)
    monkeypatch.delenv("VK_DRIVER_FILES", raising=False)
    monkeypatch.delenv("VK_ICD_FILENAMES", raising=False)
    (tmp_path / "libvulkan.so.1").touch()
    assert isinstance(vulkan.vulkan_driver(), Reason)  # a loader without a driver
    (tmp_path / "vk_swiftshader_icd.json").touch()
    found = vulkan.vulkan_driver()
    assert isinstance(found, vulkan.VulkanDriver)
    assert found.name == f"SwiftShader of {tmp_path}"
    monkeypatch.setenv("VK_ICD_FILENAMES", "/elsewhere/lvp_icd.json")
    named = vulkan.vulkan_driver()
    assert isinstance(named, vulkan.VulkanDriver)
    assert (named.name, named.variables) == ("/elsewhere/lvp_icd.json", {})


def test_without_a_driver_the_reason_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vulkan, "_BROWSERS", ())
    monkeypatch.setattr(vulkan, "_system_has_loader", lambda: False)
    assert "chromium-common" in str(vulkan.vulkan_driver())


def test_names_of_references_are_those_of_the_table() -> None:
    assert set(REFERENCES) == set(REFERENCE_RUNTIMES)


def test_a_whole_file_has_the_outputs_of_the_reference_kernels(gpu: None) -> None:
    image = np.random.default_rng(0).standard_normal((1, 8, 8, 1)).astype(np.float32)
    ours, theirs = (reference(name, DIGITS).run({"image": image}) for name in ("litert-gpu-float32", "litert-reference"))
    np.testing.assert_allclose(ours[0], theirs[0], atol=1e-5)  # type: ignore[index]


def _relu_then(name: str, folder: Path, rank: int) -> Path:
    file = TfliteBuilder()
    shape = (1,) * (rank - 1) + (4,)
    value, middle, out = (file.tensor(shape) for _ in range(3))
    file.operator("RELU", [value], [middle], {})
    file.operator(name, [middle], [out], {})
    return file.write(folder / "m.tflite", [value], [out])


def test_a_refused_operator_is_left_to_the_cpu_with_a_note(gpu: None, tmp_path: Path) -> None:
    runtime = Apart("GPU", "nnbridge.engines.accelerator:opened", _relu_then("ZEROS_LIKE", tmp_path, 4), "", False, True)
    assert "left 1 of 2 operators to the CPU: ZEROS_LIKE" in runtime.call("notes")[0]
    assert runtime.call("run", {"x": np.ones((1, 1, 1, 4), np.float32)})[0].tolist() == [[[[0, 0, 0, 0]]]]


def test_a_file_of_which_nothing_is_taken_is_refused_with_the_engines_words(gpu: None, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="dimensions must be less than 5"):
        reference("litert-gpu", _relu_then("RELU6", tmp_path, 5))


def test_a_constant_of_lower_rank_is_computed_otherwise_as_on_phones(gpu: None, tmp_path: Path) -> None:
    # LiteRT issue 8619: ADD of rank 2 with a constant of its shape.
    file = TfliteBuilder()
    value, out = file.tensor((8, 16)), file.tensor((8, 16))
    constant = np.arange(128, dtype=np.float32).reshape(8, 16)
    file.operator("ADD", [value, file.constant(constant, "float32")], [out], {"fused_activation_function": 0})
    found = reference("litert-gpu-float32", file.write(tmp_path / "m.tflite", [value], [out])).run(
        {"x": np.zeros((8, 16), np.float32)}
    )
    assert np.abs(found[0] - constant).max() > 1  # type: ignore[index]


def test_a_process_that_the_file_ends_is_an_error_of_the_call(gpu: None, tmp_path: Path) -> None:
    # SPLIT into one piece: "Check failed" in LiteRT 2.3.0.
    file = TfliteBuilder()
    value, out = file.tensor((1, 2, 2, 4)), file.tensor((1, 2, 2, 4))
    axis = file.constant(np.array(3, np.int32), "int32")
    file.operator("SPLIT", [axis, value], [out], {"num_splits": 1})
    with pytest.raises(EndedError, match="GPU accelerator ended with"):
        reference("litert-gpu", file.write(tmp_path / "m.tflite", [value], [out]))
