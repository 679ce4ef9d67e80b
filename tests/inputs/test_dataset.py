"""Files and folders for a model's inputs as samples."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from nnbridge.compare import arrays, load_arrays
from nnbridge.errors import InputError
from nnbridge.inputs import Dataset, class_index, read_labels
from nnbridge.model import Model
from nnbridge.types import OperationCode
from tests.graphs import unary_chain

CHAIN = unary_chain(OperationCode.FLOOR)
"""One input ``x`` of [1, 4] floats."""


def numbers(path: Path, *values: float) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(" ".join(map(str, values)))
    return path


def refused(*texts: str, model: Model = CHAIN) -> str:
    with pytest.raises(InputError) as caught:
        list(Dataset.of(model, texts))
    return str(caught.value)


def firsts(dataset: Dataset) -> list[float]:
    return [float(item.inputs["x"][0, 0]) for item in dataset]


def test_a_file_without_a_name_is_the_first_inputs(tmp_path: Path) -> None:
    path = numbers(tmp_path / "a=b.txt", 1, 2, 3, 4)
    for text in (str(path), f"x={path}"):
        [item] = Dataset.of(CHAIN, [text])
        assert item.name == "a=b.txt"
        np.testing.assert_array_equal(item.inputs["x"], np.array([[1, 2, 3, 4]], np.float32), strict=True)


def test_an_unknown_input_is_answered_with_those_there_are() -> None:
    assert refused("foo=cat.png") == 'input: no input named "foo"; this model\'s inputs are: x (float32 [1, 4])'


def test_a_folder_is_a_data_set_in_the_order_of_names_with_sub_folders_as_labels(tmp_path: Path) -> None:
    for k, name in enumerate(("b.txt", "a.txt", "dog/2.txt", "cat/3.txt", ".hidden.txt", "readme.md")):
        numbers(tmp_path / name, k, 0, 0, 0)
    dataset = Dataset.of(CHAIN, [str(tmp_path)])
    assert len(dataset) == 4
    assert [(item.name, item.label) for item in dataset] == [
        ("a.txt", ""),
        ("b.txt", ""),
        ("cat/3.txt", "cat"),
        ("dog/2.txt", "dog"),
    ]
    assert firsts(dataset) == [1, 0, 3, 2]


def test_a_folder_without_usable_files_is_refused(tmp_path: Path) -> None:
    assert refused(str(tmp_path)).endswith("found an empty one")
    (tmp_path / "readme.md").touch()
    assert refused(str(tmp_path)).endswith("found 1 files, none of these")


def test_a_bad_file_of_a_folder_is_named(tmp_path: Path) -> None:
    numbers(tmp_path / "good.txt", 1)
    bad = numbers(tmp_path / "ugly.txt", 1, 2, 3, 4, 5)
    assert refused(str(tmp_path)) == f"--input x {bad}: expected at most 4 numbers for shape [1, 4], found 5"


def test_an_archive_has_inputs_by_name_or_stacks_of_samples(tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", x=np.ones((1, 4), np.float32), other=np.zeros(3))
    assert firsts(Dataset.of(CHAIN, [str(tmp_path / "one.npz")])) == [1]
    np.savez(tmp_path / "stack.npz", **{"input:x": np.arange(8, dtype=np.float32).reshape(2, 1, 4)})
    assert firsts(Dataset.of(CHAIN, [str(tmp_path / "stack.npz")])) == [0, 4]
    np.savez(tmp_path / "none.npz", y=np.ones(1))
    path = tmp_path / "none.npz"
    rule = "an array named after an input; this model's inputs are: x (float32 [1, 4]), found none"
    assert refused(str(path)) == f"input {path}: expected {rule}"


def test_an_archive_that_unpacks_to_too_much_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "unpacked_limit", lambda packed: 1000)
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, x=np.zeros((1, 4000), np.float32), small=np.zeros(3))
    assert zipfile.ZipFile(path).getinfo("x.npy").file_size > 16000
    assert f"{path} x: expected at most 1,000 bytes of unpacked arrays, found more" in refused(str(path))
    assert list(load_arrays(path, {"small"})) == ["small"]


def test_inputs_without_a_file_are_drawn_with_the_seed_or_missing() -> None:
    assert refused() == "expected --input for every input, or --seed, found none for x"
    [item] = Dataset.of(CHAIN, [], seed=0)
    np.testing.assert_array_equal(item.inputs["x"], np.random.default_rng(0).standard_normal((1, 4)).astype(np.float32))


def test_an_input_twice_is_refused(tmp_path: Path) -> None:
    path = numbers(tmp_path / "x.txt", 1)
    assert refused(str(path), f"x={path}") == f"input x: expected each input once, found {path} and {path}"


def test_notes_of_all_files_stand_once(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        numbers(tmp_path / name, 1, 2)
    dataset = Dataset.of(CHAIN, [str(tmp_path)])
    list(dataset)
    list(dataset)
    assert list(dataset.notes) == [f"{tmp_path / name}: 2 numbers, filled up with zeros to 4" for name in ("a.txt", "b.txt")]


def test_labels_are_lines_and_classes_their_places_or_numbers(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("\ufeffcat\n\ndog\n\n")
    labels = read_labels(tmp_path / "labels.txt")
    assert labels == ("cat", "", "dog")
    assert [class_index(label, labels) for label in ("dog", "7", "bird")] == [2, 7, None]


def test_a_file_of_labels_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\xff")
    for name, found in (("empty", "an empty file"), ("bytes", "bytes that are not UTF-8, at 0")):
        with pytest.raises(InputError, match=f"labels .*{name}: expected a text file with a label in each line, found {found}"):
            read_labels(tmp_path / name)
    with pytest.raises(InputError, match=r"labels .*none: no such file"):
        read_labels(tmp_path / "none")
