"""One question, one answer: a file on a phone is planned alike by Python, commands, matrix and report, and read once."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnbridge
from nnbridge.converters import Importer
from nnbridge.devices import device
from nnbridge.errors import BadDataError, InputError, OptionError
from nnbridge.file import ModelFile
from nnbridge.inputs import Dataset
from nnbridge.matrix.cells import MatrixSettings, compute_all, tasks
from nnbridge.plan import Planned, plan
from nnbridge.report.page import PageFacts, page_data
from nnbridge.target import Fallback, Target
from tests.commands import call, data
from tests.conftest import MODELS
from tests.tflite.files import TfliteBuilder

FILES = ("digits_dynamic.tflite", "digits_uint8.tflite", "digits_float16.tflite", "digits_float32.onnx")
DEVICES = ("", "arm-nn-18.05", "arm-nn-21.11", "nnapi-sample_float_fast,nnapi-sample_quant")
INT8 = MODELS / "digits_int8.tflite"


def without_times(found: Any) -> Any:
    """JSON as it is read back; nothing in a plan is measured."""
    return json.loads(json.dumps(found, default=str))


@pytest.mark.parametrize("android", ["8.1", "10", "13"])
@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("file", FILES)
def test_python_plans_as_the_command_does(file: str, name: str, android: str) -> None:
    options = ["--device", name] if name else []
    printed = data("plan", MODELS / file, *options, "--android", android)
    assert without_times(nnbridge.plan(MODELS / file, device=name, android=android).to_dict()) == printed


@pytest.mark.parametrize("name", ["ethos-u55-128", "tflite-gpu-delegate"])
def test_devices_before_nnapi_take_operators_in_python_too(name: str) -> None:
    found = nnbridge.plan(INT8, device=name)
    assert without_times(found.to_dict()) == data("plan", INT8, "--device", name)
    assert found.summary.accepted == 11


@pytest.mark.parametrize("name", ["arm-nn-18.05", "arm-nn-21.11", "ethos-u55-128"])
def test_matrix_and_report_have_the_plans_steps(name: str) -> None:
    path = MODELS / "digits_dynamic.tflite"
    found = nnbridge.plan(path, device=name)
    (cell,) = compute_all(tasks({"m": path}, [name], [8], MatrixSettings())[0])
    counts = Counter(row["place"] for row in found.to_dict()["operations"])
    assert (cell.on_device, cell.on_cpu, cell.on_host) == (counts["device"], counts["NNAPI CPU"], counts["host"])
    shown = page_data(PageFacts(found, [], {}, ""))["plan"]
    assert shown["sentence"] == found.summary.sentence
    assert len(shown["steps"]) == len(found.to_dict()["steps"])


def test_a_report_summarises_each_plan_by_its_own_operators(tmp_path: Path) -> None:
    path, first, second = MODELS / "digits_uint8.tflite", "nnapi-sample_float_fast", "nnapi-sample_quant"
    facts = nnbridge.report(path, tmp_path / "r.html", device=first, against=second)
    assert facts.against is not None
    assert facts.against.summary == nnbridge.plan(path, device=second).summary
    assert facts.against.summary.handed_over == 11


# -- what the phone does is the default ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("android", "name", "fallback"),
    [
        ("8.1", "nnapi-sample_quant", "cpu"),
        ("9", "nnapi-sample_quant", "cpu"),
        ("10", "nnapi-sample_quant", "app"),
        ("12", "", "cpu"),
    ],
)
def test_from_android_10_on_the_app_keeps_what_a_named_device_refuses(android: str, name: str, fallback: str) -> None:
    found = nnbridge.plan(MODELS / "digits_float32.tflite", device=name, android=android)
    places = {row["place"] for row in found.to_dict()["operations"]}
    assert found.fallback.value == fallback
    assert ("NNAPI CPU" in places) == (fallback == "cpu")


def test_the_first_line_and_the_table_agree_on_the_place() -> None:
    found = nnbridge.plan(MODELS / "digits_float32.tflite", device="nnapi-sample_quant", android="12")
    assert found.summary.elsewhere == {"TFLite's CPU": 11}
    assert {row["place"] for row in found.to_dict()["operations"]} == {"host"}


def test_a_refused_operator_of_nnapis_has_the_devices_reason() -> None:
    printed = call("plan", MODELS / "digits_float32.tflite", "--device", "nnapi-sample_quant", "--android", "12").stdout
    assert "NNAPI has no such operation" not in printed
    assert "nnapi-sample_quant" in printed


@pytest.mark.parametrize(("old", "new"), [("--no-fallback", "none"), ("--disallow-nnapi-cpu", "app")])
def test_old_options_are_names_of_the_new_one(old: str, new: str) -> None:
    words = ("plan", INT8, "--device", "nnapi-sample_all")
    assert data(*words, old) == data(*words, "--fallback", new)


def test_two_fallbacks_exclude_each_other() -> None:
    result = call("plan", INT8, "--device", "nnapi-sample_all", "--no-fallback", "--fallback", "app")
    assert (result.exit_code, "One --fallback is possible" in result.output) == (2, True)


def test_android_16_has_the_feature_level_of_15() -> None:
    assert nnbridge.plan(INT8, device="arm-nn-21.11", android="16").target.level == 8


@pytest.mark.parametrize(
    ("target", "mapping", "of_devices", "limit"),
    [
        (Target(), "delegate", None, 3),
        (Target(), "wide", None, 0),
        (Target(), "delegate", 1, 1),
        (Target(max_partitions=0), "delegate", 1, 0),
        (Target(("a",), fallback=Fallback.NONE), "delegate", None, 0),
        (Target(("a",)), "delegate", None, 3),
        (Target(("a",), fallback=Fallback.NONE, max_partitions=5), "delegate", None, 5),
    ],
)
def test_the_first_limit_on_partitions_that_is_stated_counts(
    target: Target, mapping: str, of_devices: int | None, limit: int
) -> None:
    assert target.partition_limit(mapping, of_devices) == limit


def test_a_mixture_of_profiles_is_said_to_be_one(capsys: pytest.CaptureFixture[str]) -> None:
    found = nnbridge.plan(INT8, device="arm-nn-21.11,vsi-imx-1.3.0")
    assert found.notes == ("No phone is known to offer a model to arm-nn-21.11 and vsi-imx-1.3.0: this is a mixture of devices.",)
    assert found.notes[0] in call("plan", INT8, "--device", "arm-nn-21.11,vsi-imx-1.3.0").stderr
    assert nnbridge.plan(INT8, device="nnapi-sample_float_fast,nnapi-sample_quant").notes == ()


# -- files are opened once -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("plan", INT8, "--device", "arm-nn-21.11"),
        ("plan", INT8, "--device", "ethos-u55-128"),
        ("plan", INT8, "--device", "arm-nn-18.05", "--advice"),
        ("run", INT8, "--seed", "0", "--device", "arm-nn-18.05"),
        ("inspect", INT8),
        ("convert", INT8, "-o", "m.nnapi"),
        ("report", INT8, "--device", "arm-nn-18.05", "-o", "r.html"),
        ("report", INT8, "-o", "o.json"),
        ("bisect", INT8, "--device", "nnapi-sample_all"),
    ],
    ids=lambda words: f"{words[0]} {' '.join(words[2:])}",
)
def test_a_command_opens_and_maps_its_file_once(words: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    counts: Counter[str] = Counter()

    def counted(name: str, owner: Any, of: Any) -> None:
        real = getattr(owner, name)

        def wrapper(*arguments: Any, **named: Any) -> Any:
            path = of(arguments)
            counts[name] += path == INT8
            return real(*arguments, **named)

        monkeypatch.setattr(owner, name, wrapper)

    import nnbridge_tflite.read.reader as reader

    counted("__init__", Importer, lambda a: a[1])
    counted("mapped", reader, lambda a: a[0])
    call(*words)
    assert counts == {"__init__": 1, "mapped": 1}


def test_a_file_under_other_options_shares_what_was_read() -> None:
    file = ModelFile(INT8)
    assert file.with_(mapping="wide").with_(mapping="phone").model is file.model
    assert file.with_(mapping="wide").importer is file.importer


def test_a_closed_file_answers_no_question() -> None:
    with ModelFile(INT8) as file:
        model = file.model
    with pytest.raises(nnbridge.ConversionError, match="an open file, found one that was closed"):
        _ = file.model
    assert model.main.operations  # what was read stays usable


def test_a_saved_model_is_planned_like_any_file(tmp_path: Path) -> None:
    call("convert", INT8, "-o", tmp_path / "m.nnapi")
    found = nnbridge.plan(tmp_path / "m.nnapi", device="arm-nn-21.11")
    assert (found.mapping, found.file.format, found.mapped) == ("wide", "nnapi", ())
    with pytest.raises(OptionError, match="layout"):
        nnbridge.plan(tmp_path / "m.nnapi", layout="nchw")


# -- Python as people expect it ------------------------------------------------------------------------------------------------


def test_a_plan_runs_and_names_itself_in_a_line() -> None:
    found = nnbridge.plan(INT8, device="arm-nn-21.11")
    (y,) = found.run([np.zeros((1, 8, 8, 1), np.int8)]).values()
    assert y.shape == (1, 10)
    assert len(repr(found)) < 300
    assert "\n" not in repr(found)
    assert "arm-nn-21.11" in found._repr_html_()


@pytest.mark.parametrize("form", [list, iter], ids=["list", "generator"])
def test_map_has_the_outputs_of_single_runs_in_order(form: Any) -> None:
    planned = nnbridge.plan(str(MODELS / "digits_uint8.tflite"))
    [operand] = (planned.model.main.operands[i] for i in planned.model.main.inputs)
    draws = np.random.default_rng(0).integers(0, 256, (40, *operand.dims), np.uint8)
    found = planned.map(form([[draw] for draw in draws]), threads=3)
    for outputs, draw in zip(found, draws, strict=True):
        assert {name: value.tolist() for name, value in outputs.items()} == {
            name: value.tolist() for name, value in planned.run([draw]).items()
        }


def test_map_reads_a_data_set_in_the_threads_that_compute(tmp_path: Path) -> None:
    planned = nnbridge.plan(str(MODELS / "digits_uint8.tflite"))
    [operand] = (planned.model.main.operands[i] for i in planned.model.main.inputs)
    for k in range(5):
        np.save(tmp_path / f"{k}.npy", np.full(operand.dims, k, np.uint8))
    dataset = Dataset.of(planned.model, [str(tmp_path)])
    found = [next(iter(outputs.values())).tolist() for outputs in planned.map(dataset, threads=2)]
    assert found == [next(iter(planned.run(item.inputs).values())).tolist() for item in dataset]


def test_map_raises_in_the_place_of_the_sample_that_does_not_fit() -> None:
    planned = nnbridge.plan(str(MODELS / "digits_uint8.tflite"))
    [operand] = (planned.model.main.operands[i] for i in planned.model.main.inputs)
    good = [np.zeros(operand.dims, np.uint8)]
    found = planned.map([good, good, [np.zeros((3, 3), np.uint8)], good], threads=2)
    next(found), next(found)
    with pytest.raises(nnbridge.NnbridgeError):
        next(found)


def test_results_print_their_sentence() -> None:
    found = nnbridge.compare(INT8, reference=str(MODELS / "digits_int8.litert.npz"))
    assert str(found) == found.sentence
    assert repr(found) == f"Comparison({found.sentence})"


def test_plans_targets_models_and_profiles_pickle() -> None:
    found = nnbridge.plan(INT8, device=device("arm-nn-21.11"), android="12")
    again: Planned = pickle.loads(pickle.dumps(found))
    assert again.to_dict() == found.to_dict()
    model = pickle.loads(pickle.dumps(found.model))
    assert model.main.operations == found.model.main.operations
    assert pickle.loads(pickle.dumps(device("arm-nn-21.11"))).name == "arm-nn-21.11"


def test_a_device_that_no_name_opens_says_so_when_it_is_pickled() -> None:
    from nnbridge.devices import driver

    mine = driver("mine")(lambda model, operation: True)
    with pytest.raises(InputError, match="a device that a name opens"):
        pickle.dumps(Target((mine,)))


def test_the_public_names_are_listed() -> None:
    assert {"plan", "run", "compare", "report", "inspect", "load", "ModelFile", "Target"} <= set(dir(nnbridge))
    assert callable(nnbridge.plan)
    assert callable(nnbridge.compare)  # the package of this name, which tests import, is not in its place


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"devise": "x"}, r"\(did you mean device\?\), found devise"),
        ({"android": "7"}, "android: expected one of 8.1"),
        ({"preference": "slow"}, "preference: expected one of low-power, fast, sustained"),
        ({"max_partitions": -1}, "max_partitions: expected 0 for no limit, or more, found -1"),
        ({"fallback": "app"}, "fallback app: expected at least one device, found none"),
        ({"feature_level": 3, "android": "12"}, "feature_level: expected Android 12's feature level 5, found 3"),
    ],
)
def test_wrong_words_name_pythons_arguments(words: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        nnbridge.plan(INT8, **words)


def test_one_device_without_a_list_is_said_to_be_one() -> None:
    with pytest.raises(BadDataError, match="a list of devices or names, such as \\[device\\], found 'vsi-nn-sl' without a list"):
        nnbridge.Compilation.create(nnbridge.load(INT8), "vsi-nn-sl")


def test_a_compilation_refuses_a_device_that_has_seen_no_file() -> None:
    with pytest.raises(BadDataError, match=r"call nnbridge.plan\(FILE, device=NAME\)"):
        nnbridge.Compilation.create(nnbridge.load(INT8), ["ethos-u55-128"])
    printed = call("plan", INT8, "--device", "process:ethos-u55-128").output
    assert "expected a driver for a separate process, which takes NNAPI operations" in printed


def test_a_partition_limit_of_a_delegate_before_nnapi_holds_for_what_nnapi_lacks_too(tmp_path: Path) -> None:
    # SIN is no NNAPI operation at this level; TFLite's GPU delegate takes it, in one partition at most.
    builder = TfliteBuilder()
    a, b, c, d = (builder.tensor((1, 2, 2, 4), name=name) for name in "abcd")
    builder.operator("SIN", [a], [b], {})
    builder.operator("CUMSUM", [b, builder.constant(np.array(1, np.int32))], [c], {})
    builder.operator("COS", [c], [d], {})
    found = plan(ModelFile(builder.write(tmp_path / "m.tflite", [a], [d])), Target(("tflite-gpu-delegate",)))
    assert [found.compilation.devices[step.device].name for step in found.compilation.plan.steps].count(
        "tflite-gpu-delegate"
    ) <= 1


def test_run_and_compare_take_files_and_arrays() -> None:
    pytest.importorskip("ai_edge_litert")
    stored = MODELS / "digits_uint8.litert.npz"
    with pytest.raises(InputError, match="files of one sample"):
        nnbridge.run(MODELS / "digits_uint8.tflite", str(stored))
    found = nnbridge.compare(INT8, "litert", seeds=(0, 1), device="arm-nn-21.11")
    assert (found.passed, found.samples) == (True, 2)


def test_the_example_of_all_files_writes_a_table_a_comparison_and_a_page(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("ai_edge_litert")
    shutil.copy(INT8, tmp_path)
    script = MODELS.parent / "examples" / "all_files.py"
    done = subprocess.run([sys.executable, script, tmp_path], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = (tmp_path / "all_files.csv").read_text(encoding="utf-8").splitlines()
    assert rows[0].startswith("file,device,accepted")
    assert {row.split(",")[1] for row in rows[1:]} > {"arm-nn-21.11", "ethos-u55-128"}
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_a_file_of_which_nothing_is_left_to_the_app_is_converted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from nnbridge_tflite import TfliteModelFile

    done, convert = [], TfliteModelFile.convert
    monkeypatch.setattr(TfliteModelFile, "convert", lambda self, options: done.append(options.left) or convert(self, options))
    nnbridge.plan(MODELS / "digits_float32.tflite", device="nnapi-sample_all")
    assert done == [None]
    done.clear()
    nnbridge.plan(MODELS / "digits_float32.tflite", device="nnapi-sample_minimal")
    assert [left is None for left in done] == [True, False]
