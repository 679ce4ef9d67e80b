"""One file for one input: decoded, resized, normalised, quantised, or refused with one message."""

from __future__ import annotations

import os
import sys
import wave
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nnbridge.compare.samples import dequantised
from nnbridge.converters.inspection import TensorMetadata
from nnbridge.errors import InputError
from nnbridge.inputs import Preparation, prepare, quantised
from nnbridge.inputs.preparation import InputTarget, PreparedInput
from nnbridge.model import Operand
from nnbridge.types import OperandCode

FLOAT, UINT8, INT32 = OperandCode.TENSOR_FLOAT32, OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_INT32
INT8 = OperandCode.TENSOR_QUANT8_ASYMM_SIGNED


def operand(code: OperandCode, *dims: int, scale: float = 0.0, zero_point: int = 0, source_type: str = "") -> Operand:
    return Operand(code, dims, scale, zero_point, source_type=source_type)


def read(target: Operand, path: Path, how: Preparation | None = None, stated: TensorMetadata | None = None) -> PreparedInput:
    return prepare(InputTarget("x", target, stated or TensorMetadata()), path, how)


def refused(target: Operand, path: Path, how: Preparation | None = None) -> str:
    with pytest.raises(InputError) as caught:
        read(target, path, how)
    assert str(caught.value).startswith(f"--input x {path}: expected ")
    return str(caught.value).partition(": expected ")[2]


def image(folder: Path, pixels: object, mode: str | None = None, name: str = "x.png") -> Path:
    array = np.asarray(pixels, np.uint8)
    Image.fromarray(array).convert(mode or ("L" if array.ndim == 2 else "RGB")).save(folder / name)
    return folder / name


def sound(path: Path, data: bytes, width: int = 2, channels: int = 1, rate: int = 16000) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setparams((channels, width, rate, 0, "NONE", ""))
        file.writeframes(data)
    return path


RED_BLUE = [[[255, 0, 0], [0, 0, 255]]]
"""One row of two pixels."""


def test_real_numbers_are_rounded_half_away_from_zero_and_saturated() -> None:
    steps = operand(UINT8, 5, scale=0.5, zero_point=10)
    np.testing.assert_array_equal(quantised(steps, np.array([0.25, -0.25, 0.24, 1e9, -1e9])), [11, 9, 10, 255, 0])
    np.testing.assert_array_equal(dequantised(steps, np.array([12, 8], np.uint8)), [1.0, -1.0])


def test_an_array_of_real_numbers_is_quantised_and_gets_a_batch_axis(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([0.0, 1.0], np.float32))
    found = read(operand(UINT8, 1, 2, scale=0.5, zero_point=3), tmp_path / "x.npy").array
    np.testing.assert_array_equal(found, np.array([[3, 5]], np.uint8), strict=True)


def test_an_int8_array_is_offset_by_128_where_the_model_stores_uint8(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([[-128, 127]], np.int8))
    found = read(operand(UINT8, 1, 2, scale=0.5, zero_point=128, source_type="int8"), tmp_path / "x.npy").array
    np.testing.assert_array_equal(found, np.array([[0, 255]], np.uint8), strict=True)


def test_an_array_of_another_shape_or_type_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 3), np.float64))
    assert refused(operand(FLOAT, 1, 3), tmp_path / "x.npy") == "float32 for TENSOR_FLOAT32, found float64"
    np.save(tmp_path / "x.npy", np.zeros((1, 3), np.float32))
    assert refused(operand(FLOAT, 1, 4), tmp_path / "x.npy") == "shape [1, 4], found [1, 3]"


@pytest.mark.parametrize(
    ("code", "expected"), [(UINT8, [[255, 0, 0], [0, 0, 255]]), (INT8, [[127, -128, -128], [-128, -128, 127]])]
)
def test_an_8_bit_input_gets_an_images_bytes(code: OperandCode, expected: list[list[int]], tmp_path: Path) -> None:
    found = read(operand(code, 1, 1, 2, 3, scale=1 / 128, zero_point=128 if code == UINT8 else 0), image(tmp_path, RED_BLUE))
    np.testing.assert_array_equal(found.array, [[expected]])


def test_a_normalisation_that_means_the_bytes_leaves_them(tmp_path: Path) -> None:
    # mobilenet_v2_1.0_224_quant: (p - 127.5) / 127.5 in steps of 1/128 is p within a step.
    target = operand(UINT8, 1, 1, 1, 3, scale=1 / 128, zero_point=128)
    stated = TensorMetadata((127.5,), (127.5,))
    found = read(target, image(tmp_path, [[[255, 128, 0]]]), stated=stated).array
    np.testing.assert_array_equal(found.ravel(), [255, 128, 0])


def test_a_normalisation_that_means_something_else_is_quantised(tmp_path: Path) -> None:
    target = operand(UINT8, 1, 1, 1, 3, scale=0.5, zero_point=100)
    stated = TensorMetadata((0.0,), (10.0,))
    # 255 / 10 / 0.5 + 100 = 151; 128: 125.6; 0: 100
    found = read(target, image(tmp_path, [[[255, 128, 0]]]), stated=stated).array
    np.testing.assert_array_equal(found.ravel(), [151, 126, 100])


def test_metadata_normalises_a_float_input(tmp_path: Path) -> None:
    found = read(operand(FLOAT, 1, 1, 2, 3), image(tmp_path, RED_BLUE), stated=TensorMetadata((127.5,), (127.5,))).array
    np.testing.assert_array_equal(found, np.array([[[[1, -1, -1], [-1, -1, 1]]]], np.float32), strict=True)


def test_options_normalise_each_channel_and_replace_metadata(tmp_path: Path) -> None:
    how = Preparation(mean=(0.5, 0.25, 0.0), std=(0.5, 0.5, 2.0), scale=1 / 255)
    found = read(operand(FLOAT, 1, 1, 2, 3), image(tmp_path, RED_BLUE), how, TensorMetadata((1.0,), (1.0,))).array
    np.testing.assert_allclose(found, [[[[1, -0.5, 0], [-1, -0.5, 0.5]]]], atol=1e-7)


def test_a_float_input_without_normalisation_is_refused(tmp_path: Path) -> None:
    message = refused(operand(FLOAT, 1, 1, 2, 3), image(tmp_path, RED_BLUE))
    assert message.startswith("--mean and --std, or --scale, as the model states no normalisation")


def test_means_of_another_number_of_channels_are_refused(tmp_path: Path) -> None:
    message = refused(operand(FLOAT, 1, 1, 2, 3), image(tmp_path, RED_BLUE), Preparation(mean=(1.0, 2.0)))
    assert message == "--mean of one number or one for each of 3 channels, found 1,2"


@pytest.mark.parametrize(
    ("dims", "layout", "expected"),
    [
        ((1, 3, 1, 2), "", [[[255, 0]], [[0, 0]], [[0, 255]]]),
        ((3, 1, 2), "nchw", [[[255, 0]], [[0, 0]], [[0, 255]]]),
        ((1, 2, 3), "", [[255, 0, 0], [0, 0, 255]]),
    ],
)
def test_channels_stand_where_the_inputs_dimensions_have_them(
    dims: tuple[int, ...], layout: str, expected: list[object], tmp_path: Path
) -> None:
    found = read(operand(UINT8, *dims, scale=1.0), image(tmp_path, RED_BLUE), Preparation(layout=layout)).array
    np.testing.assert_array_equal(found.reshape(np.shape(expected)), expected)
    assert found.shape == dims


def test_an_input_of_one_channel_gets_grey(tmp_path: Path) -> None:
    for dims in ((1, 2, 2, 1), (1, 2, 2), (2, 2)):
        found = read(operand(UINT8, *dims, scale=1.0), image(tmp_path, [[1, 2], [3, 4]])).array
        np.testing.assert_array_equal(found, np.reshape([1, 2, 3, 4], dims))


def test_a_grey_image_of_16_bits_keeps_its_upper_half(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0x1234, 0xFFFF]], np.uint16)).save(tmp_path / "deep.png")
    found = read(operand(UINT8, 1, 1, 2, 1, scale=1.0), tmp_path / "deep.png").array
    np.testing.assert_array_equal(found.ravel(), [0x12, 0xFF])


def test_open_dimensions_take_the_images_size(tmp_path: Path) -> None:
    assert read(operand(UINT8, 0, 0, 0, 3, scale=1.0), image(tmp_path, np.zeros((5, 7, 3)))).array.shape == (1, 5, 7, 3)


# Two columns of 255 in the middle of four, two rows: what a square input sees of it.
WIDE = [[0, 255, 255, 0], [0, 255, 255, 0]]


@pytest.mark.parametrize(
    ("resize", "expected"),
    [
        ("crop", [[255, 255], [255, 255]]),
        ("fit", [[0, 0, 0, 0], [0, 255, 255, 0], [0, 255, 255, 0], [0, 0, 0, 0]]),
        ("stretch", [[0, 255, 255, 0]] * 4),
    ],
)
def test_images_are_cropped_fitted_or_stretched(resize: str, expected: list[list[int]], tmp_path: Path) -> None:
    size = len(expected)
    found = read(operand(UINT8, 1, size, size, 1, scale=1.0), image(tmp_path, WIDE), Preparation(resize))
    np.testing.assert_array_equal(found.array[0, :, :, 0], expected)
    assert found.picture is not None
    # The image's centre is the input's centre in each of them.
    assert [2 * found.picture.scale[0] + found.picture.offset[0], found.picture.scale[1] + found.picture.offset[1]] == [
        size / 2
    ] * 2


def test_a_larger_image_is_resized_bilinearly(tmp_path: Path) -> None:
    found = read(operand(UINT8, 1, 1, 4, 1, scale=1.0), image(tmp_path, [[0, 200]])).array
    np.testing.assert_array_equal(found.ravel(), [0, 50, 150, 200])


def test_an_images_orientation_is_followed(tmp_path: Path) -> None:
    rotated = Image.fromarray(np.array([[10, 20]], np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    rotated.save(tmp_path / "x.png", exif=exif)
    np.testing.assert_array_equal(read(operand(UINT8, 1, 1, 2, 1, scale=1.0), tmp_path / "x.png").array.ravel(), [20, 10])


def test_an_image_of_too_many_pixels_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = image(tmp_path, np.zeros((20, 20)))
    for limit in (300, 100):  # a warning of Pillow's, an error of Pillow's
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        message = refused(operand(UINT8, 1, 20, 20, 1, scale=1.0), path)
        assert message.startswith("an image that Pillow reads, found Image size (400 pixels) exceeds limit of")


def test_a_damaged_image_is_refused(tmp_path: Path) -> None:
    path = image(tmp_path, np.arange(3000).reshape(50, 60) % 251)
    target = operand(UINT8, 1, 50, 60, 1, scale=1.0)
    whole = path.read_bytes()
    for content in (b"", b"some text", whole[:60], whole[: len(whole) // 2]):
        path.write_bytes(content)
        assert refused(target, path).startswith("an image that Pillow reads, found ")


def test_an_image_without_pillow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = image(tmp_path, WIDE)
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert refused(operand(UINT8, 1, 2, 4, 1, scale=1.0), path).startswith(
        "Pillow (pip install '.[images]' in a clone of nnbridge)"
    )


def test_an_image_for_an_input_that_holds_none_is_refused(tmp_path: Path) -> None:
    path = image(tmp_path, WIDE)
    assert refused(operand(FLOAT, 1, 8), path) == "numbers for shape [1, 8], found an image"
    assert refused(operand(FLOAT, 1, 8, 8, 16), path).startswith("1, 3 or 4 channels for an image")


@pytest.mark.parametrize(
    ("width", "data"),
    [
        (1, bytes([128, 192, 0])),
        (2, b"\0\0\0\x40\0\x80"),
        (3, b"\0\0\0\0\0\x40\0\0\x80"),
        (4, b"\0\0\0\0\0\0\0\x40\0\0\0\x80"),
    ],
)
def test_sound_of_every_width_lies_between_minus_1_and_1(width: int, data: bytes, tmp_path: Path) -> None:
    found = read(operand(FLOAT, 3), sound(tmp_path / "x.wav", data, width))
    np.testing.assert_array_equal(found.array, np.array([0, 0.5, -1], np.float32), strict=True)
    assert found.notes == ()


def test_channels_of_sound_are_averaged(tmp_path: Path) -> None:
    data = np.array([[16384, 0], [-16384, -16384]], "<i2").tobytes()
    np.testing.assert_array_equal(read(operand(FLOAT, 1, 2), sound(tmp_path / "x.wav", data, channels=2)).array, [[0.25, -0.5]])


def test_sound_is_cut_or_filled_with_silence_and_says_so(tmp_path: Path) -> None:
    path = sound(tmp_path / "x.wav", np.full(3, 16384, "<i2").tobytes())
    cut, filled = read(operand(FLOAT, 2), path), read(operand(FLOAT, 4), path)
    assert cut.notes == (f"{path}: the first 2 of 3 samples are used",)
    np.testing.assert_array_equal(filled.array, [0.5, 0.5, 0.5, 0])
    assert filled.notes == (f"{path}: 3 samples, filled up with zeros to 4",)
    assert read(operand(FLOAT, 1, 0), path).array.shape == (1, 3)


def test_another_rate_than_the_metadatas_is_reported_and_resampled_on_request(tmp_path: Path) -> None:
    path = sound(tmp_path / "x.wav", np.array([0, 8192, 16384, 24576], "<i2").tobytes(), rate=8000)
    stated = TensorMetadata(sample_rate=16000)
    expected = f"{path}: 8,000 samples per second; the model's metadata states 16,000 (--rate 16000 resamples)"
    assert read(operand(FLOAT, 4), path, stated=stated).notes == (expected,)
    found = read(operand(FLOAT, 8), path, Preparation(rate=16000), stated)
    np.testing.assert_allclose(found.array, [0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.75])
    assert found.notes == ()


def test_an_integer_input_gets_pcm_or_steps(tmp_path: Path) -> None:
    path = sound(tmp_path / "x.wav", np.array([16384, -32768], "<i2").tobytes())
    found = read(operand(OperandCode.TENSOR_QUANT16_SYMM, 2, scale=1 / 32768), path).array
    np.testing.assert_array_equal(found, np.array([16384, -32768], np.int16), strict=True)


def test_sound_that_is_no_pcm_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.wav"
    for content in (b"", b"RIFF", b"some text that is no sound at all"):
        path.write_bytes(content)
        assert refused(operand(FLOAT, 2), path).startswith("PCM sound of 8, 16, 24 or 32 bits, found ")


def test_raw_bytes_are_elements_of_the_inputs_own_type(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(np.array([1.5, -2], "<f4").tobytes())
    np.testing.assert_array_equal(read(operand(FLOAT, 1, 2), path).array, [[1.5, -2]])
    np.testing.assert_array_equal(read(operand(FLOAT, 1, 0), path).array, [[1.5, -2]])
    assert refused(operand(FLOAT, 1, 3), path) == "12 bytes for float32 [1, 3], found 8"
    path.write_bytes(bytes([0x80, 0x7F]))
    np.testing.assert_array_equal(read(operand(UINT8, 2, scale=1.0, source_type="int8"), path).array, [0, 255])


def test_numbers_are_tokens_with_zeros_behind_them(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("1, 14; 22\n7\n")
    found = read(operand(INT32, 1, 6), path)
    np.testing.assert_array_equal(found.array, np.array([[1, 14, 22, 7, 0, 0]], np.int32), strict=True)
    assert found.notes == (f"{path}: 4 numbers, filled up with zeros to 6",)
    assert refused(operand(INT32, 1, 3), path) == "at most 3 numbers for shape [1, 3], found 4"


def test_numbers_with_a_decimal_point_are_real(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("0.5 1 nan")
    np.testing.assert_array_equal(read(operand(FLOAT, 3), path).array, np.array([0.5, 1, np.nan], np.float32))
    np.testing.assert_array_equal(read(operand(UINT8, 3, scale=0.25, zero_point=1), path).array[:2], [3, 5])
    assert refused(operand(INT32, 3), path) == "whole numbers for int32, found 0.5"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "numbers as text, found none"),
        ("1 two", "numbers, found 'two'"),
        ("1 4294967296", "numbers of int32, found 4294967296"),
    ],
)
def test_text_that_is_no_numbers_is_refused(text: str, found: str, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text(text)
    assert refused(operand(INT32, 3), tmp_path / "x.txt") == found


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for name in ("x.png", "x.wav", "x.bin", "x.txt"):
        with pytest.raises(InputError, match=f"^--input x .*{name}: no such file$"):
            read(operand(FLOAT, 3), tmp_path / name)


def test_a_pipe_is_refused_unread(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.png")
    assert refused(operand(FLOAT, 3), tmp_path / "x.png") == "a file, found a device or pipe"


def test_sound_whose_header_claims_more_than_there_is_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = sound(tmp_path / "x.wav", np.full(2, 16384, "<i2").tobytes())
    content = bytearray(path.read_bytes())
    content[4:8] = content[40:44] = b"\xff\xff\xff\x7f"
    path.write_bytes(content)
    np.testing.assert_array_equal(read(operand(FLOAT, 2), path).array, [0.5, 0.5])


def test_a_number_of_too_many_digits_is_refused_in_few_words(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("9" * 5000)
    assert refused(operand(INT32, 3), tmp_path / "x.txt") == f"numbers of at most 400 characters, found '{'9' * 40}'"


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "x.bin").open("wb") as file:
        file.truncate(1 << 40)
    assert refused(operand(FLOAT, 3), tmp_path / "x.bin") == "at most 1,073,741,824 bytes, found 1,099,511,627,776"
