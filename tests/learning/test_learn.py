"""Logs → profiles: `nnbridge devices learn` on logs in the wordings of Android, TFLite, LiteRT and nnbridge's own plans."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from nnbridge import Compilation, ModelBuilder, load, storage
from nnbridge.conformance.cases import build, read_cases
from nnbridge.devices import device
from nnbridge.devices.profile_file import load_profiles
from nnbridge.devices.profile_levels import load_any
from nnbridge.devices.source_profiles import SourceProfile
from nnbridge.file import ModelFile
from nnbridge.learning.command import learn_from
from nnbridge.learning.logs import read_log
from nnbridge.model import Model
from nnbridge.report.plan import plan_as_dict
from nnbridge.runtime.placement import answers_of
from nnbridge.types import OperandCode, OperationCode
from tests.commands import call
from tests.conftest import MODELS

DIGITS = MODELS / "digits_uint8.tflite"
FLOAT, HALF, QUANT = OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_FLOAT16, OperandCode.TENSOR_QUANT8_ASYMM


def pool(stride: int, code: OperandCode = FLOAT, side: int = 8) -> Model:
    """MAX_POOL_2D of a square image with a window of 2."""
    builder = ModelBuilder(f"pool{stride}{code.name}{side}")
    scale = 0.5 if code == QUANT else 0.0
    image = builder.add_operand(code, [1, side, side, 4], scale=scale)
    numbers = []
    for value in (2, stride, stride, 2, 2, 0):
        numbers.append(builder.add_operand(OperandCode.INT32, []))
        builder.set_operand_value(numbers[-1], np.array(value, np.int32))
    out = builder.add_operand(code, [1, -(-(side - 1) // stride), -(-(side - 1) // stride), 4], scale=scale)
    builder.add_operation(OperationCode.MAX_POOL_2D, [image, *numbers], [out])
    builder.identify_inputs_and_outputs([image], [out])
    return builder.finish()


def android(models: Sequence[Model], name: str, supported: Sequence[Sequence[bool]]) -> str:
    """The lines of ExecutionPlan, as a phone's logcat has them."""
    lines = []
    for model, answers in zip(models, supported, strict=True):
        for operation, yes in zip(model.main.operations, answers, strict=True):
            kind = model.operation_name(operation)
            if not yes:
                lines.append(f"Device {name} can't do operation {kind}")
            number, chosen = (0, name) if yes else (1, "nnapi-reference")
            lines.append(f"ModelBuilder::findBestDeviceForEachOperation({kind}) = {number} ({chosen})")
        lines.append("ModelBuilder::partitionTheWork: source: yes")
    return "\n".join(f"08-17 21:47:49.162 29423 29423 I ExecutionPlan: {line}" for line in lines)


def learn_pools(folder: Path, answers: dict[tuple[int, OperandCode, int], bool]) -> Path:
    """A profile from pools with these strides, types and sides and their answers."""
    lines = []
    for i, ((stride, code, side), yes) in enumerate(answers.items()):
        storage.save(pool(stride, code, side), folder / f"{i}.nnapi")
        case = {"model": _data(pool(stride, code, side)), "supported": yes, "device": "npu"}
        lines.append(json.dumps(case))
    (folder / "answers.jsonl").write_text("\n".join(lines))
    learn_from([folder / "answers.jsonl"], None, folder / "npu.toml", "", folder / "questions")
    return folder / "npu.toml"


def _data(model: Model) -> object:
    from nnbridge.export.cases import model_data

    return model_data(model)


def only_digits(folder: Path) -> Path:
    """A folder with this model alone."""
    (folder / "models").mkdir()
    (folder / "models" / DIGITS.name).write_bytes(DIGITS.read_bytes())
    return folder / "models"


def answer(path: Path, model: Model) -> tuple[bool, bool]:
    """The answer of a profile for the only operation of a model, and whether that is open."""
    (profile,) = load_profiles(path)
    found = answers_of(profile, model)
    return found.reasons[0] is None, bool(found.uncertain[0])


def test_a_bound_is_learned_and_what_lies_between_is_open(tmp_path: Path) -> None:
    path = learn_pools(tmp_path, {(1, FLOAT, 8): True, (2, FLOAT, 8): True, (4, FLOAT, 16): False, (5, FLOAT, 8): False})
    assert answer(path, pool(2)) == (True, False)
    assert answer(path, pool(6)) == (False, False)
    assert answer(path, pool(3)) == (False, True)


def test_an_operation_that_was_always_refused_is_refused_and_unseen_types_are_open(tmp_path: Path) -> None:
    path = learn_pools(tmp_path, {(1, FLOAT, 8): False, (2, FLOAT, 8): False})
    assert answer(path, pool(3)) == (False, False)
    assert answer(path, pool(1, QUANT)) == (False, True)


def test_a_condition_on_one_type_alone_holds_for_that_type_alone(tmp_path: Path) -> None:
    seen = {(s, c, 8): s <= 2 or c == FLOAT for s in (1, 2, 3, 4) for c in (FLOAT, QUANT)}
    path = learn_pools(tmp_path, seen)
    assert answer(path, pool(4)) == (True, False)
    assert answer(path, pool(4, QUANT)) == (False, False)


def test_an_operation_that_no_log_has_is_refused_and_open(tmp_path: Path) -> None:
    path = learn_pools(tmp_path, {(1, FLOAT, 8): True})
    assert answers_of(load_profiles(path)[0], load(DIGITS)).uncertain[0] == "it is in no log"


def test_contradictions_are_open_not_invented(tmp_path: Path) -> None:
    lines = [json.dumps({"model": _data(pool(1)), "supported": yes, "device": "npu"}) for yes in (True, False)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    learn_from([tmp_path / "a.jsonl"], None, tmp_path / "npu.toml", "", None)
    assert answer(tmp_path / "npu.toml", pool(1))[1]


@pytest.mark.parametrize("name", ["vsi-imx-1.1.9", "aosp-minimal", "intel-nn-hal-gna", "ethos-n78-4tops"])
def test_a_profile_learned_from_a_phones_log_answers_as_the_driver_did(name: str, tmp_path: Path) -> None:
    model, driver = load(DIGITS), device(name)
    supported = [reason is None for reason in answers_of(driver, model).reasons]
    (tmp_path / "logcat.txt").write_text(android([model], name, [supported]))
    found = learn_from([tmp_path / "logcat.txt"], only_digits(tmp_path), tmp_path / "npu.toml", "", None)
    assert found["without_models"] == []
    (profile,) = load_profiles(tmp_path / "npu.toml")
    answers = answers_of(profile, model)
    assert ([reason is None for reason in answers.reasons], set(answers.uncertain)) == (supported, {""})


def test_a_plan_is_a_log(tmp_path: Path) -> None:
    model = load(DIGITS)
    compilation = Compilation.create(model, [device("aosp-quant")])
    compilation.finish()
    (tmp_path / "plan.json").write_text(json.dumps(plan_as_dict(compilation) | {"model": str(DIGITS)}))
    found = learn_from([tmp_path / "plan.json"], MODELS, tmp_path / "npu.toml", "", None)
    assert found["devices"][0]["supported"] == sum(r is None for r in answers_of(device("aosp-quant"), model).reasons)


def test_without_models_types_alone_decide(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(android([pool(1), pool(3)], "npu", [[True], [False]]))
    found = learn_from([tmp_path / "log.txt"], None, tmp_path / "npu.toml", "", None)
    assert [why.partition(" of log")[2] for why in found["without_models"]] == [".txt line 1", ".txt line 4"]
    assert answer(tmp_path / "npu.toml", pool(1)) == (True, True)


def test_a_log_that_two_models_fit_uses_the_operands_of_neither(tmp_path: Path) -> None:
    model = load(DIGITS)
    (tmp_path / "log.txt").write_text(android([model], "npu", [[True] * len(model.main.operations)]))
    found = learn_from([tmp_path / "log.txt"], MODELS, tmp_path / "npu.toml", "", None)
    assert "digits_float16.tflite and digits_float32.tflite" in found["without_models"][0]


def test_lines_that_chatty_left_out_count(tmp_path: Path) -> None:
    line = "08-17 21:47:49.162 1 1 I ExecutionPlan: ModelBuilder::findBestDeviceForEachOperation(MUL) = 0 (qti-dsp)"
    (tmp_path / "log.txt").write_text(
        f"{line}\n08-17 21:47:49.162 1 1 I chatty  : uid=2000(shell) /data/x identical 4 lines\n{line}\n"
    )
    assert read_log(tmp_path / "log.txt").models[0].operations == ("MUL",) * 6


GPU = """ERROR: Following operations are not supported by GPU delegate:
SOFTMAX: Operation is not supported.
{taken} operations will run on the GPU, and the remaining {rest} operations will run on the CPU.
"""


def test_the_gpu_delegates_words_are_a_profile_of_operators(tmp_path: Path) -> None:

    count = len(ModelFile(DIGITS).source_graph.operators)
    softmax = sum(o.name == "SOFTMAX" for o in ModelFile(DIGITS).source_graph.operators)
    (tmp_path / "log.txt").write_text(GPU.format(taken=count - softmax, rest=softmax))
    learn_from([tmp_path / "log.txt"], only_digits(tmp_path), tmp_path / "gpu.toml", "", None)
    (profile,) = load_any(tmp_path / "gpu.toml")
    assert isinstance(profile, SourceProfile)
    claims = profile.claims(ModelFile(DIGITS).source_graph)
    assert [c.accepted for c in claims] == [c.operator.name != "SOFTMAX" for c in claims]


def test_litert_names_refused_operators_by_their_index(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(
        "ERROR: [qnn_compiler_plugin.cc:503] \nLiteRT Op #24 'BroadcastTo' (code=130) is not supported in Qualcomm Compiler.\n"
        "INFO: PartitionSubgraph: 0, selected num ops: 30, from totoal ops: 31, num partitions: 2\n"
    )
    (found,) = read_log(tmp_path / "log.txt").delegated
    assert (found.device, found.accepted, found.total, found.indexes) == ("qualcomm", 30, 31, {24: "BroadcastTo"})


def test_questions_are_cases_that_break_one_of_several_conditions(tmp_path: Path) -> None:
    learn_pools(tmp_path, {(1, FLOAT, 8): True, (2, FLOAT, 8): True, (4, FLOAT, 8): False})
    written = sorted((tmp_path / "questions").glob("*.json.gz"))
    strides = {tuple(_number(m, place) for place in (2, 3)) for m in _models(written)}
    assert strides == {(2, 3), (3, 2)}
    assert {p.with_suffix("").with_suffix(".nnapi").is_file() for p in written} == {True}


def _number(model: Model, place: int) -> int:
    value = model.value(model.main.operands[model.main.operations[0].inputs[place]])
    assert value is not None
    return int(value.item())


def _models(paths: Sequence[Path]) -> list[Model]:
    return [build(case) for path in paths for case in read_cases(path)]


@pytest.mark.parametrize(("fallback", "matched"), [("app", False), ("cpu", True)])
def test_a_plan_whose_refused_operators_went_back_to_the_app_is_reported(fallback: str, matched: bool, tmp_path: Path) -> None:
    result = call("plan", DIGITS, "--device", "arm-nn-18.05", "--fallback", fallback, "--json")
    (tmp_path / "plan.json").write_text(result.stdout)
    (note,) = learn_from([tmp_path / "plan.json"], MODELS, tmp_path / "npu.toml", "", None)["without_models"] or [""]
    assert ("make it with --fallback cpu" in note) is not matched
