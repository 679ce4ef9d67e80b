"""ONNX's own backend suite: its node, simple and converted PyTorch tests run on NNAPI's CPU and the host.

What cannot pass is listed by name with the reason; a listed test that passes fails this suite, so that the list stays true.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge.errors import NnbridgeError

onnx = pytest.importorskip("onnx")

from onnx.backend.test import loader  # noqa: E402

from nnbridge_onnx import backend  # noqa: E402

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")

STRINGS = "strings, which operands of fixed size cannot hold"
SEQUENCE = "sequences and optionals, which are no tensors"
TRAINING = "training"
RANDOM = "random numbers that are compared one by one"
LOWEST = "NNAPI's REDUCE_MAX starts from the lowest finite number, so that rows of minus infinity do not stay such"
HALF = "NNAPI's BATCH_MATMUL sums float16 in float16: one result is one step off"
BATCHES = "Scan of opset 8, with batches"
PILLOW = "ImageDecoder needs Pillow"

# Beginning of the name -> reason; an empty one for what passes. The longest match counts.
EXPECTED: dict[str, str] = {
    "test_ai_onnx_ml_label_encoder_string_int": STRINGS,
    "test_ai_onnx_ml_label_encoder_tensor_": STRINGS,
    "test_equal_string": STRINGS,
    "test_regex_full_match": STRINGS,
    "test_string_": STRINGS,
    "test_strnorm": STRINGS,
    "test_sequence_": SEQUENCE,
    "test_split_to_sequence": SEQUENCE,
    "test_optional_get_element": SEQUENCE,
    "test_optional_has_element": SEQUENCE,
    "test_optional_get_element_tensor": "",
    "test_optional_has_element_empty_no_input": "",
    "test_identity_opt": SEQUENCE,
    "test_identity_sequence": SEQUENCE,
    "test_if_opt": SEQUENCE,
    "test_if_seq": SEQUENCE,
    "test_loop13_seq": SEQUENCE,
    "test_loop16_seq_none": SEQUENCE,
    "test_gradient_": TRAINING,
    "test_bernoulli": RANDOM,
    "test_attention_4d_causal_fp16_expanded": HALF,
    "test_attention_causal_boolmask_nan_robustness_expanded": LOWEST,
    "test_attention_23_boolmask_fullymasked_row_nan_robustness_expanded": LOWEST,
    "test_attention_4d_causal_nonpad_negative_offset_structural_empty_expanded": LOWEST,
    "test_attention_23_fullymasked_qk_matmul_output_mode3_zero_expanded": LOWEST,
    "test_attention_24_fullymasked_qk_matmul_output_mode3_zero_expanded": LOWEST,
    "test_attention_24_qk_matmul_output_mode3_softmax_precision_expanded": LOWEST,
    "test_attention_local_window_gqa_rank4_mask_expanded": LOWEST,
    "test_scan_sum": BATCHES,
    **({} if find_spec("PIL") else {"test_image_decoder_": PILLOW}),
}


def cases() -> Iterator[Any]:
    """Every test of the suite, named as ONNX names it."""
    with warnings.catch_warnings():
        # The suite computes infinities and overflows on purpose.
        warnings.simplefilter("ignore")
        for kind in KINDS:
            yield from loader.load_model_tests(kind=kind)


def reason(name: str) -> str:
    """Why a test is expected to fail, or nothing."""
    matching = [beginning for beginning in EXPECTED if name.startswith(beginning)]
    return EXPECTED[max(matching, key=len)] if matching else ""


def stored(case: Any, model: Any) -> Iterator[tuple[list[Any], list[Any]]]:
    """Inputs and expected outputs of a test."""
    if case.data_sets is not None:
        yield from case.data_sets
        return
    for folder in sorted(Path(case.model_dir).glob("test_data_set_*")):
        yield tensors(folder, "input", model.graph.input), tensors(folder, "output", model.graph.output)


def tensors(folder: Path, kind: str, values: Any) -> list[Any]:
    """The files of one side; what is no tensor is None."""
    read = []
    for path, value in zip(sorted(folder.glob(f"{kind}_*.pb"), key=lambda p: int(p.stem.split("_")[1])), values, strict=False):
        is_tensor = value.type.WhichOneof("value") == "tensor_type"
        read.append(onnx.TensorProto.FromString(path.read_bytes()) if is_tensor else None)
    return read


def run(case: Any) -> None:
    """One test, held to its own tolerance."""
    model = case.model or onnx.load(str(Path(case.model_dir) / "model.onnx"))
    prepared = backend.prepare(model)
    count = 0
    for inputs, outputs in stored(case, model):
        for got, want in zip(prepared.run(inputs), outputs, strict=True):
            expected = np.asarray(onnx.numpy_helper.to_array(want) if isinstance(want, onnx.TensorProto) else want)
            assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
            if expected.dtype.kind in "fcV":
                wide = np.complex128 if expected.dtype.kind == "c" else np.float64
                np.testing.assert_allclose(got.astype(wide), expected.astype(wide), rtol=case.rtol, atol=case.atol)
            else:
                np.testing.assert_array_equal(got, expected)
            count += 1
    assert count > 0


CASES = list(cases())


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES if not reason(case.name)])
def test_passes(case: Any) -> None:
    run(case)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES if reason(case.name)])
def test_is_refused_or_differs_for_the_reason_that_is_given(case: Any) -> None:
    if reason(case.name) == RANDOM:
        # By chance all numbers may agree: what counts is that it runs.
        model = backend.prepare(case.model)
        assert all(len(model.run(inputs)) == len(outputs) for inputs, outputs in stored(case, case.model))
        return
    with pytest.raises((NnbridgeError, AssertionError, ValueError)):
        run(case)


def test_at_least_1900_tests_are_expected_to_pass() -> None:
    assert sum(not reason(case.name) for case in CASES) >= 1900
