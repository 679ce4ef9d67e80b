"""Profiles of real drivers beside answers of the drivers' own code, and the commands that show their rules."""

from __future__ import annotations

import gzip
import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from nnbridge import Compilation, ModelBuilder, load
from nnbridge.conformance.questions import read_questions
from nnbridge.devices import device
from nnbridge.devices.profile_file import SHIPPED
from nnbridge.devices.profile_levels import load_any
from nnbridge.devices.table_values import OnDemand
from nnbridge.errors import InputError, OpFailedError
from nnbridge.report.plan import plan_as_dict
from nnbridge.runtime.placement import answers_of
from nnbridge.types import OperandCode, OperationCode
from tests.commands import call
from tests.conftest import MODELS, REPOSITORY

IMX, NNSL, ETHOS = (f"{name}-cases.jsonl.gz" for name in ("imx", "nnsl", "ethos-n"))
ADD: dict[str, Any] = {
    "operands": [
        {"type": "TENSOR_FLOAT32", "dims": [2], "lifetime": "SUBGRAPH_INPUT"},
        {"type": "TENSOR_FLOAT32", "dims": [2], "lifetime": "SUBGRAPH_INPUT"},
        {"type": "INT32", "dims": [], "lifetime": "CONSTANT_COPY", "value": [0]},
        {"type": "TENSOR_FLOAT32", "dims": [2], "lifetime": "SUBGRAPH_OUTPUT"},
    ],
    "operations": [{"type": "ADD", "inputs": [0, 1, 2], "outputs": [3]}],
    "inputs": [0, 1],
    "outputs": [3],
}


@pytest.mark.parametrize("path", sorted(SHIPPED.rglob("*.toml")), ids=lambda path: path.stem)
def test_rules_that_are_read_when_needed_are_those_of_a_checked_file(path: Path) -> None:
    assert load_any(path, checked=True) == load_any(path)


def test_the_rules_of_one_operation_are_read_for_it_alone_and_once() -> None:
    read: list[str] = []
    rules = OnDemand({"ADD": lambda: read.append("ADD"), "MUL": lambda: read.append("MUL")})
    assert list(rules) == ["ADD", "MUL"]
    assert "ADD" in rules
    rules["ADD"]
    assert read == ["ADD"]


@pytest.mark.parametrize(
    ("name", "file", "answer", "where"),
    [
        ("vsi-imx-1.3.0", IMX, ("supported",), {}),
        *((name, IMX, ("other", name), {}) for name in ("imx_1.2.0", "nn_1.2.y", "imx_1.1.9", "imx_1.1.8")),
        ("vsi-nn-sl", NNSL, ("supported",), {}),
        *((f"ethos-n78-{v}tops", ETHOS, ("supported",), {"variant": v}) for v in "1248"),
    ],
)
def test_a_profile_answers_as_the_drivers_own_code(
    shared: Path, name: str, file: str, answer: tuple[str, ...], where: dict[str, str]
) -> None:
    path = shared / "reference" / "devices" / file
    if not path.exists():
        pytest.skip(f"needs {path}")
    wrong, count = [], 0
    for question in islice(read_questions(path), 0, None, 7):
        data: Any = question.data
        for key in answer:
            data = data.get(key)
        if data is None or any(question.data[key] != value for key, value in where.items()):
            continue
        count += 1
        found = all(reason is None for reason in answers_of(device(name), question.model).reasons)
        wrong += [question.line] if found is not data else []
    assert (wrong, count > 15) == ([], True)


def test_releases_of_the_imx_driver_differ_as_their_sources_do() -> None:
    def refused(name: str, code: OperationCode) -> bool:
        builder = ModelBuilder("one operation")
        f32, i32 = OperandCode.TENSOR_FLOAT32, OperandCode.INT32
        data = builder.add_operand(f32, [2, 3])
        inputs = [data]
        if code is OperationCode.STRIDED_SLICE:
            for values in ([0, 0], [2, 3], [1, 1]):
                inputs.append(builder.add_operand(OperandCode.TENSOR_INT32, [2]))
                builder.set_operand_value(inputs[-1], values)
            for _ in range(3):
                inputs.append(builder.add_operand(i32))
                builder.set_operand_value(inputs[-1], 0)
        else:
            inputs += [builder.add_operand(OperandCode.TENSOR_INT32, [1]), builder.add_operand(i32)]
            builder.set_operand_value(inputs[1], [1])
            builder.set_operand_value(inputs[2], 1)
        output = builder.add_operand(f32, [2, 3] if code is OperationCode.STRIDED_SLICE else [2, 1])
        builder.add_operation(code, inputs, [output])
        builder.identify_inputs_and_outputs([data], [output])
        return answers_of(device(name), builder.finish()).reasons != (None,)

    for code, expected in ((OperationCode.STRIDED_SLICE, (True, False)), (OperationCode.MEAN, (False, True))):
        assert tuple(refused(name, code) for name in ("vsi-imx-1.1.8", "vsi-imx-1.1.9")) == expected


def test_a_driver_that_dies_when_asked_refuses_all() -> None:
    builder = ModelBuilder("a stride that is an input")
    data, axis = builder.add_operand(OperandCode.TENSOR_FLOAT32, [2]), builder.add_operand(OperandCode.TENSOR_INT32, [1])
    reversed_data, output = (
        builder.add_operand(OperandCode.TENSOR_FLOAT32, [2]),
        builder.add_operand(OperandCode.TENSOR_FLOAT32, [2]),
    )
    builder.add_operation(OperationCode.REVERSE, [data, axis], [reversed_data])
    builder.add_operation(OperationCode.ABS, [reversed_data], [output])
    builder.identify_inputs_and_outputs([data, axis], [output])
    reasons = answers_of(device("vsi-nn-sl"), builder.finish()).reasons
    assert [reason is not None and reason.rule for reason in reasons] == ["a driver that survives the question"] * 2


def test_an_operand_that_the_driver_cannot_prepare_fails_there() -> None:
    builder = ModelBuilder("an unknown side")
    data, output = (builder.add_operand(OperandCode.TENSOR_QUANT8_ASYMM, dims, scale=0.5) for dims in ([0, 2], [0, 2]))
    builder.add_operation(OperationCode.RELU, [data], [output])
    builder.identify_inputs_and_outputs([data], [output])
    hvx, model = device("qti-hvx"), builder.finish()
    assert answers_of(hvx, model).reasons == (None,)
    with pytest.raises(OpFailedError, match=r"operand\.dims"):
        hvx.prepare_model(model)


def test_an_uncertain_answer_is_marked_in_answers_and_plans(tmp_path: Path) -> None:
    (tmp_path / "npu.toml").write_text(
        '[[device]]\nname = "npu"\nperformance.other = [0.5, 0.5]\n[device.operations]\nothers = {}\n'
        'CONV_2D = { rules = [{ when = "filter.h > 1", uncertain = "large windows" }] }\n'
        'SOFTMAX = { uncertain = "the axis" }\n'
    )
    npu, model = device(str(tmp_path / "npu.toml")), load(MODELS / "digits_float32.tflite")
    texts = answers_of(npu, model).as_dict()["uncertain"]
    assert isinstance(texts, list)
    assert set(texts) == {"", "large windows", "the axis"}
    compilation = Compilation.create(model, [npu])
    compilation.finish()
    last = plan_as_dict(compilation)["operations"][-1]
    assert (last["type"], last["uncertain"]) == ("SOFTMAX", {"npu": "the axis"})


# -- commands ------------------------------------------------------------------------------------------------------------


def ask(tmp_path: Path, lines: list[str], name: str = "vsi-imx-1.3.0") -> tuple[int, str]:
    path = tmp_path / "models.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    result = call("devices", "ask", name, path, "--json")
    return result.exit_code, result.output


def test_ask_answers_a_line_for_each_model_and_ignores_other_keys(tmp_path: Path) -> None:
    status, output = ask(tmp_path, [json.dumps({"model": ADD, "else": 1}), "", json.dumps({"model": ADD})])
    answers = [json.loads(line) for line in output.splitlines()]
    head = {"schema": "nnbridge/devices-ask", "version": 1}
    assert (status, answers) == (0, [{**head, "supported": [True], "reasons": [None]}] * 2)


def test_ask_states_the_rule_and_the_drivers_own_words(tmp_path: Path) -> None:
    operands = [{**ADD["operands"][i], "dims": [1] * 5} for i in (0, 3)]
    sine = {"operands": operands, "operations": [{"type": "SIN", "inputs": [0], "outputs": [1]}], "inputs": [0], "outputs": [1]}
    answer = json.loads(ask(tmp_path, [json.dumps({"model": sine})])[1])
    assert answer["supported"] == [False]
    assert "expected the rank of input is at most 4, found input.rank 5" in answer["reasons"][0]
    assert 'it says "because input shape rank > 4"' in answer["reasons"][0]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("{", "a JSON object in each line"),
        ("[" * 100_000, "a JSON object in each line"),
        ('{"model": 1}', "the object.model"),
        (json.dumps({"model": {**ADD, "outputs": [9]}}), "one of the 4 operands"),
        (json.dumps({"model": {**ADD, "operations": [{"type": "ADD", "inputs": [0], "outputs": [3]}]}}), "3 inputs"),
    ],
)
def test_ask_names_the_line_of_a_mistake(tmp_path: Path, line: str, found: str) -> None:
    path = tmp_path / "models.jsonl"
    path.write_text(json.dumps({"model": ADD}) + "\n" + line)
    with pytest.raises(InputError) as error:
        list(read_questions(path))
    assert "models.jsonl line 2" in str(error.value)
    assert found in str(error.value)


def test_explain_prints_rules_as_sentences() -> None:
    result = call("devices", "explain", "vsi-imx-1.3.0", "DEPTHWISE_CONV_2D", "--json")
    rules = [rule["rule"] for rule in json.loads(result.output)["operations"]["DEPTHWISE_CONV_2D"]["alternatives"][0]["rules"]]
    assert "no duplicates among the inputs" in rules
    assert "the height of filter × the width of filter is at most 6400" in rules


def test_explain_refuses_a_driver_without_rules() -> None:
    result = call("devices", "explain", "nnapi-sample_all")
    assert isinstance(result.exception, (InputError, SystemExit))
    assert result.exit_code != 0


def test_damaged_profiles_are_profiles_or_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(REPOSITORY / "scripts" / "nets"))
    import mutate_profiles

    outcomes = mutate_profiles.run(1_000, 18, tmp_path)
    assert set(outcomes) == {"profile", "mistakes", "slower than 2 s"}
    assert outcomes["profile"] + outcomes["mistakes"] == 1_000
    assert min(outcomes["profile"], outcomes["mistakes"]) > 20


def test_a_driver_in_another_process_says_the_same(tmp_path: Path) -> None:
    squeeze = {
        "operands": [
            {"type": "TENSOR_FLOAT32", "dims": [1, 2], "lifetime": "SUBGRAPH_INPUT"},
            {"type": "TENSOR_INT32", "dims": [1], "lifetime": "SUBGRAPH_INPUT"},
            {"type": "TENSOR_FLOAT32", "dims": [2], "lifetime": "SUBGRAPH_OUTPUT"},
        ],
        "operations": [{"type": "SQUEEZE", "inputs": [0, 1], "outputs": [2]}],
        "inputs": [0, 1],
        "outputs": [2],
    }
    lines = [json.dumps({"model": squeeze})]
    assert ask(tmp_path, lines, "process:vsi-imx-1.3.0") == ask(tmp_path, lines)
    assert "Squeeze: dimension tensor should be constant" in ask(tmp_path, lines)[1]
