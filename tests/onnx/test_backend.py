"""ONNX's own backend suite: its node, simple and converted PyTorch tests run on NNAPI's CPU and the host.

What cannot pass is listed by name with the reason, and must fail with the error that says so: a listed test that passes, or fails
in another way, fails this suite, so that the list stays true.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge.errors import OpFailedError

onnx = pytest.importorskip("onnx")

from onnx.backend.test import loader  # noqa: E402

from nnbridge_onnx import backend  # noqa: E402

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")


@dataclass(frozen=True)
class Refusal:
    """The reason why a test cannot pass, and the error that says so."""

    reason: str
    error: type[Exception]
    message: str
    """A regular expression that the error's text must match."""


TRAINING = Refusal("training", OpFailedError, r"Gradient\(-1\) is not a registered function")
PILLOW = Refusal("Pillow is not installed", OpFailedError, "ImageDecoder: an installed package, found Pillow")
HALF = Refusal(
    "NNAPI's SOFTMAX computes float16 in float32, the suite's in float16: two results are one last place off",
    AssertionError,
    r"Mismatched elements: 2 / 192(.|\n)*among violations: 0\.00048828",
)
BRAIN = Refusal(
    "the host computes bfloat16 in float32 and rounds once, as ONNX Runtime's converted operators; the suite rounds each step",
    AssertionError,
    r"Max absolute difference among violations: 0\.00(390625|1953125)",
)
LENGTHS = Refusal(
    "between aligned corners the suite counts elements before they are rounded down; ONNX Runtime and PyTorch count whole ones",
    AssertionError,
    r"Mismatched elements: ",
)
RANDOM = Refusal("random numbers, which differ by chance", AssertionError, "")

# Beginning of the name -> why it cannot pass; None for what does. The longest match counts.
EXPECTED: dict[str, Refusal | None] = {
    "test_gradient_": TRAINING,
    "test_bernoulli": RANDOM,
    "test_attention_4d_causal_fp16_expanded": HALF,
    **dict.fromkeys(
        (
            "test_attention_3d_causal_bf16",
            "test_attention_4d_attn_mask_causal_bf16",
            "test_attention_4d_causal_bf16",
            "test_attention_4d_causal_padded_kv_bf16",
            "test_attention_4d_padded_kv_bf16",
        ),
        BRAIN,
    ),
    "test_resize_downsample_scales_linear_align_corners": LENGTHS,
    "test_resize_downsample_scales_cubic_align_corners": LENGTHS,
    **({} if find_spec("PIL") else {"test_image_decoder_": PILLOW}),
}


def cases() -> Iterator[Any]:
    """Every test of the suite, named as ONNX names it."""
    with warnings.catch_warnings():
        # The suite computes infinities and overflows on purpose.
        warnings.simplefilter("ignore")
        for kind in KINDS:
            yield from loader.load_model_tests(kind=kind)


def refusal(name: str) -> Refusal | None:
    """The reason why a test cannot pass."""
    matching = [beginning for beginning in EXPECTED if name.startswith(beginning)]
    return EXPECTED[max(matching, key=len)] if matching else None


def stored(case: Any, model: Any) -> Iterator[tuple[list[Any], list[Any]]]:
    """Inputs and expected outputs of a test."""
    if case.data_sets is not None:
        yield from case.data_sets
        return
    for folder in sorted(Path(case.model_dir).glob("test_data_set_*")):
        yield tensors(folder, "input", model.graph.input), tensors(folder, "output", model.graph.output)


def tensors(folder: Path, kind: str, values: Any) -> list[Any]:
    """The files of one side."""
    read: list[Any] = []
    for path, value in zip(sorted(folder.glob(f"{kind}_*.pb"), key=lambda p: int(p.stem.split("_")[1])), values, strict=False):
        if value.type.WhichOneof("value") == "tensor_type":
            read.append(onnx.TensorProto.FromString(path.read_bytes()))
        else:
            read.append(onnx.numpy_helper.to_list(onnx.SequenceProto.FromString(path.read_bytes())))
    return read


def run(case: Any) -> None:
    """One test, held to its own tolerance."""
    model = case.model or onnx.load(str(Path(case.model_dir) / "model.onnx"))
    prepared = backend.prepare(model)
    count = 0
    for inputs, outputs in stored(case, model):
        for got, expected in zip(prepared.run(inputs), outputs, strict=True):
            check(case, got, expected)
            count += 1
    assert count > 0


def check(case: Any, got: Any, expected: Any) -> None:
    """One value, by elements if it is a sequence."""
    if isinstance(expected, list):
        assert isinstance(got, list)
        for one, other in zip(got, expected, strict=True):
            check(case, one, other)
        return
    expected = np.asarray(onnx.numpy_helper.to_array(expected) if isinstance(expected, onnx.TensorProto) else expected)
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    if expected.dtype.kind in "fcV":
        wide = np.complex128 if expected.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(got.astype(wide), expected.astype(wide), rtol=case.rtol, atol=case.atol)
    else:
        np.testing.assert_array_equal(got, expected)


CASES = list(cases())


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES if refusal(case.name) is None])
def test_passes(case: Any) -> None:
    run(case)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES if refusal(case.name) not in (None, RANDOM)])
def test_cannot_pass_for_the_reason_that_is_stated(case: Any) -> None:
    expected = refusal(case.name)
    assert expected is not None
    with pytest.raises(expected.error, match=expected.message):
        run(case)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES if refusal(case.name) == RANDOM])
def test_random_numbers_are_of_the_required_type_and_shape(case: Any) -> None:
    for inputs, outputs in stored(case, case.model):
        for got, expected in zip(backend.prepare(case.model).run(inputs), outputs, strict=True):
            assert (got.dtype, got.shape) == (np.asarray(expected).dtype, np.asarray(expected).shape)


@pytest.mark.parametrize("name", ["test_attention_4d_causal_fp16_expanded", "test_attention_4d_causal_bf16"])
def test_attention_of_halves_is_nearer_to_the_exact_values_than_the_suite_is(name: str) -> None:
    case = next(case for case in CASES if case.name == name)
    ((inputs, (expected,)),) = stored(case, case.model)
    query, key, value = (np.asarray(array).astype(np.float64) for array in inputs)
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
    scores[..., np.triu(np.ones(scores.shape[-2:]), 1) > 0] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    exact = weights / weights.sum(-1, keepdims=True) @ value
    (got,) = backend.prepare(case.model).run(inputs)
    assert np.abs(got - exact).max() < np.abs(np.asarray(expected) - exact).max()


def test_at_least_2003_tests_are_expected_to_pass() -> None:
    assert sum(refusal(case.name) is None for case in CASES) >= 2003
