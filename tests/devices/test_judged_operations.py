"""Random operations, put to a profile and to a program that answers for the driver; what such answers taught."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnbridge.conformance.cases import Case, build
from nnbridge.devices import device
from nnbridge.runtime.placement import answers_of
from tests.conftest import REPOSITORY
from tests.devices.test_shipped_profiles import ADD

ACCEPTS_ALL = "import json, sys; [print(json.dumps({'supported': [True]})) for _ in sys.stdin]"


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(REPOSITORY / "scripts" / "profiles"))


def add_of(*sides: list[int]) -> dict[str, Any]:
    model = copy.deepcopy(ADD)
    for operand, dims in zip((model["operands"][i] for i in (0, 1, 3)), (*sides, sides[0]), strict=True):
        operand["dims"] = dims
    return model


def refused(name: str, model: dict[str, Any]) -> bool:
    return (
        answers_of(device(name), build(Case("judged", "", {"model": model, "relaxed": False, "name": ""}))).reasons[0] is not None
    )


def questions(path: Path, *models: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps({"model": model}) + "\n" for model in models), encoding="utf-8")
    return path


def verified(path: Path, program: str, option: str = "--judge") -> int:
    import verify_profile

    sys.argv = ["verify_profile.py", "vsi-imx-1.3.0", str(path), option, f'{sys.executable} -c "{program}"']
    return verify_profile.main()


def test_a_seed_has_its_operations_and_validation_accepts_each(tmp_path: Path) -> None:
    import random_operations

    operations = random_operations.operations_of([questions(tmp_path / "add.jsonl", ADD)])
    first = list(random_operations.questions(operations, 50, seed=3))
    assert first == list(random_operations.questions(operations, 50, seed=3))
    assert first != list(random_operations.questions(operations, 50, seed=4))
    assert len({json.dumps(question) for question in first}) > 15
    for question in first:
        build(Case("random", "", {**question, "name": ""}))


def test_outputs_of_computed_questions_have_the_dimensions_that_nnapi_computes(tmp_path: Path) -> None:
    import random_operations

    operations = random_operations.operations_of([questions(tmp_path / "add.jsonl", add_of([2, 3], [3]))])
    for question in random_operations.questions(operations, 30, seed=3, computed=True):
        first, second, output = (question["model"]["operands"][i]["dims"] for i in (0, 1, -1))
        assert output == list(np.broadcast_shapes(first, second))


def test_a_disagreement_with_a_judges_program_is_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setattr(sys, "argv", [])
    assert verified(questions(tmp_path / "good.jsonl", ADD), ACCEPTS_ALL) == 0
    assert verified(questions(tmp_path / "one.jsonl", ADD, add_of([0], [2])), ACCEPTS_ALL) == 1
    assert "2 cases, 1 disagreements" in capsys.readouterr().out


def test_a_program_reads_models_as_numbers_and_is_started_again_where_it_dies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setattr(sys, "argv", [])
    # It dies where the first operand, after the count of operands, its type, omission and rank, has a side of 2.
    program = "import sys; [print(1 if int(line.split()[4]) != 2 else sys.exit(3), flush=True) for line in sys.stdin]"
    path = questions(tmp_path / "three.jsonl", add_of([3], [3]), add_of([2], [2]), add_of([4], [4]))
    assert verified(path, program, "--program") == 1
    assert "line 2 ADD: expected False (died, exit status 3); supported" in (found := capsys.readouterr().out)
    assert "3 cases, 1 disagreements" in found


def test_a_program_that_answers_in_other_words_is_a_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setattr(sys, "argv", [])
    assert verified(questions(tmp_path / "one.jsonl", ADD), "print('yes')", "--program") == 2
    assert "expected 1, 0 or ? for each of 1 operations, found yes" in capsys.readouterr().err


def test_a_judge_that_does_not_answer_each_model_is_a_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setattr(sys, "argv", [])
    assert verified(questions(tmp_path / "one.jsonl", ADD), "pass") == 2
    assert "expected exit status 0 and 1 lines, one for each model, found exit status 0, 0 lines" in capsys.readouterr().err


def test_the_imx_driver_refuses_shapes_that_cannot_be_broadcast_since_1_1_8() -> None:
    model = add_of([2, 3], [2, 4])
    assert [refused(name, model) for name in ("imx_1.3.0", "imx_1.1.8", "imx-1.0.4", "nn-1.0.4")] == [True, True, False, False]


@pytest.mark.parametrize(
    ("axis", "second", "out", "accepted"),
    [
        (-3, [1, 2, 4, 8], [1, 5, 4, 8], True),
        (1, [1, 2, 4, 8], [1, 5, 4, 8], True),
        (1, [1, 2, 4, 8], [1, 6, 4, 8], False),
        (1, [1, 2, 5, 8], [1, 5, 4, 8], False),
        (4, [1, 2, 4, 8], [1, 5, 4, 8], False),
        # Of rank 4, the library has [1, 5, 4, 8] for this output, too.
        (1, [1, 2, 4, 8], [5, 4, 8], True),
    ],
)
def test_ethos_n_compares_an_output_with_the_one_that_its_library_computes(
    axis: int, second: list[int], out: list[int], accepted: bool
) -> None:
    tensor = {"type": "TENSOR_QUANT8_ASYMM", "scale": 0.5, "zero_point": 3}
    inputs = [{**tensor, "dims": dims, "lifetime": "SUBGRAPH_INPUT"} for dims in ([1, 3, 4, 8], second)]
    number = {"type": "INT32", "dims": [], "lifetime": "CONSTANT_COPY", "value": [axis]}
    model = {
        "operands": [*inputs, number, {**tensor, "dims": out, "lifetime": "SUBGRAPH_OUTPUT"}],
        "operations": [{"type": "CONCATENATION", "inputs": [0, 1, 2], "outputs": [3]}],
        "inputs": [0, 1],
        "outputs": [3],
    }
    assert refused("ethos-n78-4tops", model) is not accepted
