"""``--input`` of the commands as users type it, with LiteRT's own answer for the same arrays beside ours."""

from __future__ import annotations

import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from nnbridge import load
from nnbridge.compare import load_arrays
from nnbridge.compare.litert import LiteRT
from nnbridge.file import ModelFile
from nnbridge.inputs import Dataset, Preparation
from nnbridge.report.answers import answer_as_dict, answers, label_names
from tests.commands import call, data, refused
from tests.conftest import MODELS

DIGITS = str(MODELS / "digits_float32.tflite")
QUANTISED = str(MODELS / "digits_uint8.tflite")
REFERENCE = str(MODELS / "digits_float32.litert.npz")
SCALED = ("--scale", "1/255")


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three pictures of each of the digits 3 and 7 of the models' own test data, in sub-folders of these names."""
    folder = tmp_path_factory.mktemp("digits")
    stored = np.load(MODELS / "digits_test.npz")
    images, labels = stored["images"], stored["labels"]
    largest = images.max()
    for digit in (3, 7):
        (folder / str(digit)).mkdir()
        for n, k in enumerate(np.flatnonzero(labels == digit)[:3]):
            pixels = (images[k].reshape(8, 8).astype(np.float64) * 255 / largest).round().astype(np.uint8)
            Image.fromarray(pixels).save(folder / str(digit) / f"{n}.png")
    return folder


def test_a_picture_of_a_digit_is_recognised(digits: Path) -> None:
    path = digits / "3" / "0.png"
    shown = call("run", DIGITS, "--input", path, *SCALED)
    assert shown.exit_code == 0, shown.output
    lines = shown.stdout.splitlines()
    top = next(k for k, line in enumerate(lines) if line.endswith(": the top 5"))
    assert lines[top + 1].split()[1] == "3"
    result = data("run", DIGITS, "--input", path, *SCALED)
    [answer] = result["answers"]
    assert (answer["form"], answer["top"][0]["index"]) == ("classification", 3)
    assert np.shape(result["outputs"][0]["values"]) == (1, 10)


def test_a_quantised_model_answers_in_real_numbers(digits: Path) -> None:
    result = data("run", QUANTISED, "--input", digits / "7" / "0.png")
    [output] = result["outputs"]
    assert output["max"] > 1 >= output["real_max"] > 0.5
    assert np.max(output["values"]) == output["real_max"] == result["answers"][0]["top"][0]["score"]


def test_labels_name_classes_and_must_be_as_many(digits: Path, tmp_path: Path) -> None:
    names = tmp_path / "labels.txt"
    names.write_text("zero\none\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n")
    arguments = ("run", DIGITS, "--input", str(digits / "3" / "0.png"), *SCALED, "--labels", str(names))
    assert data(*arguments)["answers"][0]["top"][0]["label"] == "three"
    names.write_text("zero\none\n")
    assert "--labels: expected 10 labels for PartitionedCall:0, found 2" in refused(*arguments)


def test_a_folder_is_run_file_by_file_and_its_accuracy_counted(digits: Path, tmp_path: Path) -> None:
    stored = tmp_path / "all.npz"
    arguments = ("run", DIGITS, "--input", str(digits), *SCALED)
    result = data(*arguments, "--samples", stored)
    assert [(s["name"], s["label"]) for s in result["samples"]] == [(f"{d}/{n}.png", d) for d in "37" for n in range(3)]
    assert result["accuracy"]["labelled"] == 6
    assert "accuracy: top-1 " in call(*arguments).stdout
    assert call("compare", DIGITS, "--reference", stored).exit_code == 0
    assert load_arrays(stored)["input:serving_default_image:0"].shape == (6, 1, 8, 8, 1)
    for option in (("-o", str(tmp_path / "o.npz")), ("--repeat", "2"), ("--save-image", str(tmp_path / "x.png"))):
        assert "--input: expected one sample with --" in refused(*arguments, *option)


@pytest.mark.parametrize("model", [DIGITS, QUANTISED, str(MODELS / "digits_int8.tflite")])
def test_files_are_compared_with_litert(model: str, digits: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    result = data("compare", model, "--reference", "litert", "--input", digits, *(SCALED if model == DIGITS else ()))
    assert (result["pass"], result["samples"]) == (True, 6)
    assert result["accuracy"]["top1_agreement"] == result["accuracy"]["classified"] == 6
    assert result["accuracy"]["labelled"] == result["accuracy"]["reference"]["labelled"] == 6
    assert result["accuracy"]["top1"] == result["accuracy"]["reference"]["top1"] > 0


def test_files_are_compared_with_onnx_runtime(digits: Path) -> None:
    pytest.importorskip("onnxruntime")
    model = str(MODELS / "digits_float32.onnx")
    result = call("compare", model, "--reference", "onnxruntime", "--input", digits / "7", *SCALED)
    assert result.exit_code == 0, result.output
    assert "top-1 agreement: 3 of 3 samples" in result.stdout


def test_files_are_compared_with_stored_outputs(digits: Path, tmp_path: Path) -> None:
    one, all_of_them = tmp_path / "one.npz", tmp_path / "all.npz"
    picture = ("--input", str(digits / "3" / "1.png"), *SCALED)
    assert call("run", DIGITS, *picture, "-o", one).exit_code == 0
    assert call("compare", DIGITS, *picture, "--reference", one).exit_code == 0
    assert call("compare", DIGITS, "--input", digits / "3" / "2.png", *SCALED, "--reference", one).exit_code == 1
    assert call("run", DIGITS, "--input", digits, *SCALED, "--samples", all_of_them).exit_code == 0
    assert call("compare", DIGITS, "--input", digits, *SCALED, "--reference", all_of_them).exit_code == 0
    message = refused("compare", DIGITS, *picture, "--reference", all_of_them)
    assert f"{all_of_them}: expected outputs of 1 samples, as many as inputs, found 6" in message


def test_an_archive_of_samples_is_an_input_as_well() -> None:
    result = data("compare", DIGITS, "--input", REFERENCE, "--reference", REFERENCE)
    assert (result["pass"], result["samples"]) == (True, 64)


def test_bad_options_of_images_are_refused(digits: Path, tmp_path: Path) -> None:
    arguments = ("run", DIGITS, "--input", str(digits / "3" / "0.png"))
    assert "expected --mean and --std, or --scale, as the model states no normalisation" in refused(*arguments)
    for option, value in (("--mean", "x"), ("--std", "0"), ("--scale", "1/0"), ("--mean", "nan"), ("--scale", "1,2")):
        assert f"nnbridge: {option}: expected " in refused(*arguments, option, value)
    with_image = ("--save-image", str(tmp_path / "out.png"))
    message = refused(*arguments, *SCALED, *with_image)
    assert "--save-image: expected outputs that can be drawn on the image" in message
    assert message.endswith("found classification")
    assert "--save-image: expected an image as --input, found none" in refused("run", DIGITS, "--seed", "0", *with_image)
    assert not (tmp_path / "out.png").exists()
    assert "--save-image: expected a file other than an input" in refused(
        *arguments, *SCALED, "--save-image", digits / "3" / "0.png"
    )


def test_options_of_files_without_files_are_refused(tmp_path: Path) -> None:
    for command in (("run", DIGITS, "--seed", "0"), ("compare", DIGITS, "--reference", REFERENCE)):
        assert "--mean does nothing here: no --input has a file" in refused(*command, "--mean", "1")


def test_steps_with_files_are_refused(digits: Path) -> None:
    arguments = ("compare", DIGITS, "--reference", "litert", "--input", str(digits), *SCALED)
    assert "--steps does nothing here: --input has its own samples" in refused(*arguments, "--steps", "2")


# Published models and LiteRT ------


def picture(path: Path) -> Path:
    """Something to look at: a gradient with a dark disc and a bright square."""
    y, x = np.mgrid[:180, :260]
    pixels = np.stack([x, y, 255 - x // 2], -1).clip(0, 255).astype(np.uint8)
    pixels[(x - 90) ** 2 + (y - 90) ** 2 < 2500] = (30, 40, 60)
    pixels[60:130, 170:240] = (240, 230, 90)
    Image.fromarray(pixels).save(path)
    return path


def tone(path: Path) -> Path:
    """A second of a chord that fades."""
    t = np.arange(16000) / 16000
    samples = np.exp(-2 * t) * (np.sin(880 * np.pi * t) + np.sin(1320 * np.pi * t)) * 12000
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes(samples.astype("<i2").tobytes())
    return path


@pytest.mark.parametrize(
    ("name", "options", "form"),
    [
        ("mobilenet_v2_1.0_224_quant", (), "classification"),
        ("ssd_mobilenet_v1_quant_postprocess", ("--save-image",), "detection"),
        ("deeplabv3_float", ("--mean", "127.5", "--std", "127.5", "--save-image"), "segmentation"),
        ("movenet_single_pose_lightning_ptq", ("--resize", "fit", "--save-image"), "pose"),
        ("yamnet_wavin_quantized_mel_relu6", (), "classification"),
    ],
)
def test_a_published_model_answers_as_litert(
    name: str, options: tuple[str, ...], form: str, real_models: Path, tmp_path: Path
) -> None:
    pytest.importorskip("ai_edge_litert")
    path = real_models / f"{name}.tflite"
    file = tone(tmp_path / "x.wav") if name.startswith("yamnet") else picture(tmp_path / "x.png")
    drawn = tmp_path / "drawn.png"
    saved = (str(drawn),) if "--save-image" in options else ()
    result = data("run", path, "--input", file, *options, *saved, "--samples", tmp_path / "s.npz")
    arrays = {k.removeprefix("input:"): v[0] for k, v in load_arrays(tmp_path / "s.npz").items() if k.startswith("input:")}
    model, stated = load(path), ModelFile(path).interface
    reference = LiteRT(path).run(arrays)
    outputs = dict(zip((output["name"] for output in result["outputs"]), reference, strict=True))
    [theirs] = answers(model, outputs, label_names(model, stated.outputs, (), outputs))
    [ours] = result["answers"]
    assert ours["form"] == theirs.form == form
    if form == "classification":
        scores = outputs[theirs.output][0].astype(np.float64) * (result["outputs"][0].get("scale") or 1)
        ranked = [(top["index"], top["score"]) for top in ours["top"]]
        assert ranked[0][0] == theirs.top[0].index
        # NNAPI's 8-bit arithmetic differs by a step here and there, which changes the order of nearly equal scores.
        assert [score for _, score in ranked] == pytest.approx([scores[index] for index, _ in ranked], abs=1 / 256)
        assert [score for _, score in ranked] == pytest.approx([top.score for top in theirs.top], abs=1 / 256)
    else:
        _close(_sorted(ours), _sorted(json.loads(json.dumps(answer_as_dict(theirs)))))
    if form == "classification" and name.startswith("mobilenet"):
        assert ours["top"][0]["label"]
    if saved:
        assert Image.open(drawn).size == (260, 180)


def test_a_sound_under_the_phones_mapping_differs_by_the_mean_that_is_named(real_models: Path, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    path, file = real_models / "yamnet_wavin_quantized_mel_relu6.tflite", tone(tmp_path / "x.wav")
    against = ("compare", path, "--input", file, "--reference", "litert")
    found = json.loads(call(*against, "--json").stdout)
    assert [(cause["kind"], cause["operation"], cause["operator"]) for cause in found["causes"]] == [
        ("mean_truncates", "MEAN", "43 MEAN")
    ]
    assert found["agreement"]["classes"] == {"compared": 1, "top1": 1, "top5": 1}
    # The wide mapping leaves this MEAN to the host, which rounds as TFLite does.
    wide = data(*against, "--mapping", "wide")
    assert (wide["outputs"][0]["mismatches"], wide["causes"]) == (0, [])


def _sorted(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer with boxes of equal score in the order of their classes."""
    boxes = sorted(answer.get("boxes", ()), key=lambda box: (-round(box["score"], 4), box["index"]))
    return {**answer, "boxes": boxes}


def _close(ours: Any, theirs: Any) -> None:
    """The same words and whole numbers, and floats within a thousandth."""
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        for key in ours:
            _close(ours[key], theirs[key])
    elif isinstance(ours, list):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            _close(one, other)
    else:
        assert ours == (pytest.approx(theirs, abs=1e-3) if isinstance(ours, float) else theirs)


def test_the_array_of_an_image_is_what_the_models_metadata_states(real_models: Path, tmp_path: Path) -> None:
    path = real_models / "mobilenet_v2_1.0_224_quant.tflite"
    stated = ModelFile(path).interface
    assert stated.inputs[0].metadata.mean == stated.inputs[0].metadata.std == (127.5,)
    assert stated.outputs[0].metadata.labels[286] == "Egyptian cat"
    file = picture(tmp_path / "x.png")
    [item] = Dataset.of(load(path), [str(file)], stated=stated.inputs, how=Preparation())
    expected = np.asarray(Image.open(file).resize((224, 224), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(item.inputs["input"][0], expected)
