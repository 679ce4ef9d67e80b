"""The lines of a phone for a plan. Stock LiteRT with the delegate library is the judge of TFLite's own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import nnbridge
from nnbridge.cli.commands import cli
from nnbridge.learning.logs import read_log
from nnbridge.log_lines.reader import read_lines
from nnbridge.phone_log.printing import PhoneLine, phone_lines
from tests.conftest import MODELS
from tests.phone_log import files
from tests.phone_log.files import Maker
from tests.tflite.shared import FOLDER

UINT8 = MODELS / "digits_uint8.tflite"
PROGRAM = """
import sys
from nnbridge import delegate
from ai_edge_litert.interpreter import Interpreter
try:
    Interpreter(sys.argv[1], experimental_delegates=[delegate.load(sys.argv[2])]).allocate_tensors()
except (RuntimeError, ValueError) as error:
    print(f"ERROR: {error}".replace(chr(10), " "), file=sys.stderr)
"""
SHARED = ("deeplabv3_float", "dtln_noise_suppression", "hello_world_float", "kws_ref_model", "mobilenet_v1_0.25_224_float",
          "movenet_single_pose_lightning_ptq", "movie_review_nl_classifier", "micro_speech_quantized")  # fmt: skip


def lines(path: Path, **words: str) -> list[PhoneLine]:
    """The lines of a plan."""
    return list(phone_lines(nnbridge.plan(path, **words)))


def texts(path: Path, tag: str, **words: str) -> list[str]:
    """The lines of a tag."""
    return [line.text for line in lines(path, **words) if line.tag == tag]


def of_litert(path: Path, device: str) -> tuple[list[str], str]:
    """TFLite's lines on a program's standard error, and all of it."""
    pytest.importorskip("ai_edge_litert.interpreter")
    pytest.importorskip("cffi")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path), device], capture_output=True, text=True, timeout=200, check=False
    )
    known = re.compile(r"(?:INFO|WARNING): ((?:Created|Replacing|Attempting).*)")
    return [found[1] for line in done.stderr.splitlines() if (found := known.match(line))], done.stderr


def assert_same_as_litert(path: Path, device: str) -> None:
    """TFLite's lines of the plan are those of a stock interpreter; of one that is not created, up to the error."""
    mine = texts(path, "tflite", device=device)
    stock, everything = of_litert(path, device)
    errors = [line for line in mine if line.startswith(("NN API returned error", "Restored"))]
    assert [line for line in mine if line not in errors] == stock
    assert bool(errors) == ("NN API returned error" in everything)
    # nnbridge's library prints another line number, and the reason.
    assert all(re.split(r" at line |\.", line)[0] in everything for line in errors)


@pytest.mark.parametrize("device", ["nnapi-sample_all", "arm-nn-18.05", "nnapi-sample_minimal"])
@pytest.mark.parametrize("name", sorted(path.name for path in MODELS.glob("*.tflite")))
def test_tflites_lines_are_litert_s(name: str, device: str) -> None:
    assert_same_as_litert(MODELS / name, device)


@pytest.mark.parametrize("name", SHARED)
def test_tflites_lines_of_published_files_are_litert_s(name: str) -> None:
    path = FOLDER / f"{name}.tflite"
    if not path.is_file():
        pytest.skip("the folder of real models is not here (NNBRIDGE_SHARED)")
    assert_same_as_litert(path, "nnapi-sample_all")


@pytest.mark.parametrize("made", [files.computed_shape, files.where, files.dense_by_unit, files.turned_integers, files.power])
def test_tflites_lines_of_files_that_a_phone_refuses_are_litert_s(made: Maker, tmp_path: Path) -> None:
    assert_same_as_litert(made(tmp_path), "nnapi-sample_all")


def test_each_delegated_partition_is_an_nnapi_model_of_its_own() -> None:
    begun = [line for line in texts(UINT8, "ExecutionPlan", device="arm-nn-18.05") if "sourceModelIndex" in line]
    assert [line.rpartition(", ")[2] for line in begun] == ["operationCount = 3", "operationCount = 2", "operationCount = 2"]


def test_the_cpu_takes_part_only_where_it_is_allowed() -> None:
    with_cpu = texts(UINT8, "ExecutionPlan", device="arm-nn-18.05", fallback="cpu")
    assert "Device arm-nn-18.05 can't do operation ADD:3" in with_cpu
    assert "ModelBuilder::findBestDeviceForEachOperation(ADD:3) = 1 (nnapi-reference)" in with_cpu
    assert not any("can't do" in line for line in texts(UINT8, "ExecutionPlan", device="arm-nn-18.05"))


def test_what_no_phone_prints_is_marked() -> None:
    own = [str(line) for line in lines(UINT8, device="arm-nn-18.05") if not line.tag]
    assert all(line.startswith("nnbridge: ") for line in own)
    assert any("operator 3 ADD stays with TFLite: arm-nn-18.05 requires TENSOR_FLOAT32" in line for line in own)


def test_without_devices_the_node_fails_where_a_model_cannot_be_built(tmp_path: Path) -> None:
    errors = [line for line in texts(files.turned_integers(tmp_path), "tflite") if line.startswith("NN API")]
    assert errors == [
        "NN API returned error ANEURALNETWORKS_BAD_DATA at line 1144 while adding operation.",
        "NN API returned error ANEURALNETWORKS_BAD_STATE at line 4716 while creating NNAPI compilation.",
    ]


def test_nnapi_s_validation_names_the_operand_and_both_types(tmp_path: Path) -> None:
    (line,) = texts(files.dense_by_unit(tmp_path), "OperationValidationUtils", device="nnapi-sample_all")
    types = "TENSOR_QUANT8_SYMM_PER_CHANNEL for input 1, expected TENSOR_QUANT8_ASYMM_SIGNED"
    assert line.endswith(f"OperationsValidationUtils.cpp:38): type == expectedTypes[i] Invalid input tensor type {types}")


def test_nnapi_s_validation_names_an_operation_that_lacks_the_type(tmp_path: Path) -> None:
    (line,) = texts(files.turned_integers(tmp_path), "ModelBuilder", device="nnapi-sample_all")
    assert line.endswith("operations/src/Transpose.cpp:37): Unsupported tensor type for operation TRANSPOSE")


def test_a_custom_operator_may_be_unknown_to_the_app(tmp_path: Path) -> None:
    own = [line.text for line in lines(files.custom(tmp_path), device="nnapi-sample_all") if not line.tag]
    assert any('"Encountered unresolved custom op: Mean."' in line for line in own)


def test_the_provider_prints_each_node_and_its_partitions() -> None:
    pytest.importorskip("onnx")
    found = texts(MODELS / "digits_float32.onnx", "onnxruntime", device="nnapi-sample_all")
    unit = "type: [Conv] index: [0] name: [conv_sum_node]"
    assert found[0] == f"Node supported: [1] Operator {unit} as part of the NodeUnit {unit}"
    assert found[-1].endswith("NNAPI: 1 number of nodes in the graph: 15 number of nodes supported by NNAPI: 15")


def test_the_provider_s_words_say_which_input_is_open(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    model = onnx.load(str(files.product(tmp_path)))
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    onnx.save(model, str(tmp_path / "open.onnx"))
    assert "Dynamic shape is not supported for now, for input:x" in texts(
        tmp_path / "open.onnx", "onnxruntime", device="nnapi-sample_all"
    )


def test_a_node_that_the_provider_cannot_build_ends_the_log_with_its_error(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    path = files.parts(tmp_path)
    assert texts(path, "onnxruntime", device="nnapi-sample_all")[-1] == "count [0] does not evenly divide dimension 1 [4]"
    assert not texts(path, "ExecutionPlan", device="nnapi-sample_all")


def test_an_older_release_is_named(tmp_path: Path) -> None:
    own = [line.text for line in lines(UINT8, device="arm-nn-18.05", tflite="2.8") if not line.tag]
    assert own[1] == "what is handed over is TFLite 2.8's; forms and line numbers are the newest release's"


def test_devices_before_nnapi_have_no_line_of_nnapi() -> None:
    assert not [line for line in lines(MODELS / "digits_int8.tflite", device="ethos-u55-128") if line.tag]


@pytest.mark.parametrize("fallback", ["app", "cpu", "none"])
@pytest.mark.parametrize("name", ["digits_uint8.tflite", "digits_float32.tflite"])
def test_every_line_of_a_phone_is_read_again(name: str, fallback: str) -> None:
    printed = (
        CliRunner().invoke(cli, ["plan", str(MODELS / name), "--device", "aosp-minimal", "--fallback", fallback, "-v"]).stderr
    )
    phone = [line for line in printed.splitlines() if re.match(r"[VDIWE]/", line)]
    assert phone
    assert all(read.pattern is not None and not read.cut for read in read_lines("\n".join(phone)))


def test_devices_learn_reads_what_a_plan_prints(tmp_path: Path) -> None:
    printed = CliRunner().invoke(cli, ["plan", str(UINT8), "--device", "arm-nn-18.05", "--fallback", "cpu", "-v"]).stderr
    (tmp_path / "phone.log").write_text(printed)
    (model,) = read_log(tmp_path / "phone.log").models
    assert model.operations[3] == "ADD"
    assert model.answers[3] == {"arm-nn-18.05": False, "nnapi-reference": True}
