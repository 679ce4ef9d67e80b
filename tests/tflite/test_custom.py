"""Files with custom operators: a sentence says what they need besides TFLite, and the rest is planned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nnbridge
from nnbridge.errors import NnbridgeError
from nnbridge.file import ModelFile
from tests.commands import call
from tests.tflite.files import TfliteBuilder


def file_with(operator: str, path: Path, *, stamp: bytes = b"") -> Path:
    """RELU, the operator, TANH."""
    file = TfliteBuilder()
    a, b, c, d = (file.tensor((1, 4)) for _ in range(4))
    file.operator("RELU", [a], [b])
    file.operator(operator, [b], [c], custom=b"")
    file.operator("TANH", [c], [d])
    more = {}
    if stamp:
        file.buffers.append({"data": np.frombuffer(stamp, np.uint8)})
        more = {"metadata": [{"name": "LiteRtStamp", "buffer": len(file.buffers) - 1}]}
    return file.write(path / "m.tflite", [a], [d], **more)


SENTENCES = {
    "FlexErf": "needs TensorFlow's Flex delegate; link the app with tensorflow-lite-select-tf-ops, or convert without",
    "FlexTensorListReserve": "needs TensorFlow's Flex delegate",
    "ethos-u": "was compiled by Vela for an Ethos-U: TFLite Micro with Arm's driver runs it; plan the file",
    "edgetpu-custom-op": "was compiled by the Edge TPU Compiler",
    "DISPATCH_OP": "was compiled by LiteRT's compiler: LiteRT runs it with the dispatch library",
    "MTKEXT_RESIZE": "is MediaTek's",
    "LandmarksToTransformMatrix": "is MediaPipe's, which registers it",
    "MyOp": "is custom: the app must register it",
    "Flex": "is custom: the app must register it",
}


@pytest.mark.parametrize("operator", SENTENCES)
def test_plan_inspect_and_run_begin_with_what_a_custom_operator_needs(operator: str, tmp_path: Path) -> None:
    path = file_with(operator, tmp_path)
    first = f"TFLite by itself does not load this file: operator 1 {operator} {SENTENCES[operator]}"
    plan = call("plan", str(path), "--device", "nnapi-sample_all")
    assert plan.exit_code == 0
    assert plan.stderr.startswith(first)
    assert "The other 2 operators are TFLite's." in plan.stderr
    assert call("inspect", str(path)).stdout.startswith(first)
    run = call("run", str(path), "--seed", "0")
    assert run.exit_code != 0
    assert run.stderr.startswith(first)


def test_the_rest_of_a_file_with_a_custom_operator_is_planned(tmp_path: Path) -> None:
    found = nnbridge.plan(file_with("MyOp", tmp_path), device="nnapi-sample_all")
    assert (found.summary.handed_over, found.summary.operators) == (2, 3)
    assert found.to_dict()["notes"][0].startswith("TFLite by itself does not load this file")


@pytest.mark.parametrize("operator", ["NumericVerify", "Mfcc", "AudioSpectrogram"])
def test_custom_operators_that_tflite_registers_need_nothing(operator: str, tmp_path: Path) -> None:
    path = file_with(operator, tmp_path)
    found = nnbridge.plan(path, device="nnapi-sample_all")
    # LiteRT, where it is installed, refuses the operator's operands.
    assert [note for note in found.notes if note != found.disagreement] == []
    with pytest.raises(NnbridgeError, match=f"TFLite has a kernel of {operator}"):
        nnbridge.run(path, seed=0)


def test_the_chip_that_a_compiled_file_names_is_stated(tmp_path: Path) -> None:
    stamp = b"Qualcomm".ljust(125, b"\0") + b"SM8750".ljust(125, b"\0")
    path = file_with("DISPATCH_OP", tmp_path, stamp=stamp)
    assert "compiler for Qualcomm SM8750: LiteRT runs it" in nnbridge.inspect(path).remarks[0]


def test_a_vela_file_whose_operator_reads_memory_that_nothing_writes_is_planned(tmp_path: Path) -> None:
    # As Vela 5 writes it: command stream, weights, scratch (twice), the input.
    file = TfliteBuilder()
    commands, weights = (file.constant(np.zeros(16, np.uint8)) for _ in range(2))
    scratch, x, y = file.tensor((64,), "uint8"), file.tensor((1, 8), "int8", scale=0.1), file.tensor((1, 8), "int8", scale=0.1)
    file.operator("ethos-u", [commands, weights, scratch, scratch, x], [y], custom=b"\x01\x04\x01")
    path = file.write(tmp_path / "vela.tflite", [x], [y])
    summary = nnbridge.plan(path, device="nnapi-sample_all").summary
    assert (summary.operators, summary.handed_over) == (1, 0)
    assert call("plan", str(path), "--device", "nnapi-sample_all").exit_code == 0


def test_several_custom_operators_of_a_kind_are_one_sentence(tmp_path: Path) -> None:
    file = TfliteBuilder()
    tensors = [file.tensor((1, 4)) for _ in range(7)]
    for i, name in enumerate(("FlexErf", "FlexA", "FlexB", "FlexC", "MyOp", "MyOp")):
        file.operator(name, [tensors[i]], [tensors[i + 1]], custom=b"")
    notes = nnbridge.inspect(file.write(tmp_path / "m.tflite", [0], [6])).remarks
    assert [note.partition(";")[0] for note in notes] == [
        "TFLite by itself does not load this file: operator 0 FlexErf, operator 1 FlexA, operator 2 FlexB and 1 more "
        "need TensorFlow's Flex delegate",
        "TFLite by itself does not load this file: operator 4 MyOp, operator 5 MyOp are custom: the app must register it",
    ]


@pytest.mark.parametrize("operator", ["ethos-u", "edgetpu-custom-op", "DISPATCH_OP", "FlexErf", "MyOp"])
@pytest.mark.parametrize("device", ["nnapi-sample_all", "gpu-delegate", "ethos-u55-128", "xnnpack"])
def test_what_has_no_kernel_in_tflite_does_not_run_on_its_cpu(operator: str, device: str, tmp_path: Path) -> None:
    file = TfliteBuilder()
    a, b = (file.tensor((1, 4)) for _ in range(2))
    file.operator(operator, [a], [b], custom=b"")
    found = nnbridge.plan(file.write(tmp_path / "m.tflite", [a], [b]), device=device).summary
    assert found.sentence.endswith("; 1 has no kernel in TFLite")
    assert (found.elsewhere, found.foreign) == ({}, 1)


def test_what_tflite_registers_runs_on_its_cpu(tmp_path: Path) -> None:
    sentence = nnbridge.plan(file_with("AudioSpectrogram", tmp_path), device="nnapi-sample_all").summary.sentence
    assert sentence.endswith("; 1 runs on TFLite's CPU")


@pytest.mark.parametrize("name", ["ADD", "TFLite_Detection_PostProcess", "MyOperator"])
def test_advice_names_an_operator_as_the_file_does(name: str, tmp_path: Path) -> None:
    builder = TfliteBuilder()
    x, y = builder.tensor((1, 4)), builder.tensor((1, 4))
    builder.operator(name, [x, x], [y], {} if name == "ADD" else None)
    found = ModelFile(builder.write(tmp_path / "one.tflite", [x], [y])).adjustable(0, 0)
    assert found is not None
    assert found.operator == name
