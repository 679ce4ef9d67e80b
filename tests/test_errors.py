"""Words of errors: the cause in messages of other libraries."""

from __future__ import annotations

import re

import pytest

from nnbridge.errors import Reason, first_line
from tests.conftest import REPOSITORY

PLACE = "/onnxruntime_src/onnxruntime/core/providers/cpu/rnn/lstm_base.h:51"
SIGNATURE = "onnxruntime::LSTMBase::LSTMBase(const onnxruntime::OpKernelInfo&)"
CAUSES = {
    f"[ONNXRuntimeError] : 6 : EP_FAIL : Exception caught: {PLACE} {SIGNATURE} layout was false.": "layout was false.",
    "[ONNXRuntimeError] : 1 : FAIL : Load model from /a b/c.onnx failed:Fatal error: my:Foo(-1) is not registered": (
        "Fatal error: my:Foo(-1) is not registered"
    ),
    'This is an invalid model. In Node, ("n", Loop, "", -1) : ("a": tensor(float),) -> ("b",) , Error Nodes must be sorted': (
        "Nodes must be sorted"
    ),
    "Non-zero status code returned while running Gemm node. Name:'/a' Status Message: Bad bias": "Gemm '/a': Bad bias",
    "input 'u' of node:\nname:  OpType: Exp\n is not output of any previous nodes.": (
        "input 'u' of node: name:  OpType: Exp is not output of any previous nodes."
    ),
    "tensorflow/lite/kernels/conv.cc:351 input->dims->size != 4": "input->dims->size != 4",
    "\n  a cause\nand more": "a cause",
    "": "an error without a message",
}


@pytest.mark.parametrize("text", CAUSES)
def test_the_cause_is_quoted_without_what_surrounds_it(text: str) -> None:
    assert first_line(ValueError(text)) == CAUSES[text]


def test_a_long_cause_is_cut_after_a_word_and_says_so() -> None:
    found = first_line(ValueError("word " * 200))
    assert found.endswith("word […]")
    assert len(found) < 410


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ValueError("real numbers, found bool"), "0 SIN: expected real numbers, found bool"),
        (ValueError("a rank of 4, found [1, 2], found twice"), "0 SIN: expected a rank of 4, found [1, 2], found twice"),
        (ValueError("shapes (2,) (3,) not aligned"), "0 SIN: expected a function, found shapes (2,) (3,) not aligned"),
        (KeyError("mode, found 3"), "0 SIN: expected a function, found no entry 'mode, found 3'"),
        (ValueError("0 EXP: expected x, found y"), "0 SIN: expected a function, found 0 EXP: expected x, found y"),
    ],
)
def test_a_kernels_reason_has_the_requirement_before_what_was_found(error: Exception, sentence: str) -> None:
    assert str(Reason.of_kernel(error, "a function", "0 SIN", named=True)) == sentence


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (KeyError("axis"), "no entry 'axis'"),
        (ZeroDivisionError("division by zero"), "division by zero"),
        (MemoryError(), "not enough memory"),
        (RecursionError(), "nesting that is too deep"),
        (NotImplementedError(), "an error without a message"),
        (UnicodeDecodeError("utf-8", b"a\xff", 1, 2, "invalid start byte"), "bytes that are not UTF-8, at 1"),
    ],
)
def test_an_exception_in_words_has_no_class(error: Exception, words: str) -> None:
    assert first_line(error) == words


NAMED = {
    "errors.py",
    "cli/errors.py",
    "provider/glue.py",
    "delegate/glue.py",
    "embedding.py",
    "matrix/cells.py",
    *("conformance/run.py", "runtime/caching.py"),
}
"""Modules that name classes: of internal errors, which are reported to nnbridge, and of drivers' code."""


def test_no_other_module_puts_the_class_of_an_exception_into_a_message() -> None:
    roots = [REPOSITORY / "src" / "nnbridge", REPOSITORY / "converters"]
    classes = re.compile(r"(type\((e|error|why)\)|error\.__class__)\.__name__")
    paths = [(path, str(path.relative_to(root))) for root in roots for path in root.rglob("*.py")]
    assert {name for path, name in paths if classes.search(path.read_text("utf-8"))} == NAMED
