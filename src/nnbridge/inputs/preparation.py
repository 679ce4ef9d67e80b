"""One file as one input: decoded, resized, normalised and quantised as the input requires.

The form of a file follows from its suffix. Errors name the option, the file, what was expected and what was found.
"""

from __future__ import annotations

import stat
import warnings
import wave
from collections.abc import Callable, Iterable
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nnbridge.compare.arrays import MAX_BYTES, Array, load_array, load_arrays
from nnbridge.compare.samples import in_model, is_quantised
from nnbridge.converters.inspection import TensorMetadata
from nnbridge.errors import BadDataError, InputError, OpFailedError, PackageError, Reason, cannot_read, first_line, pass_shortage
from nnbridge.extensions import Codec, codec_of, operand_dtype
from nnbridge.inputs.quantisation import quantised
from nnbridge.model import Operand
from nnbridge.records import dataclass
from nnbridge.runtime.arguments import check_array

if TYPE_CHECKING:
    from PIL import Image

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff")
FORMATS = ("PNG", "JPEG", "BMP", "DIB", "GIF", "WEBP", "PPM", "TIFF")
"""Pillow's names of these. It looks at the content, whatever the suffix, and starts Ghostscript for PostScript."""
_PIXELS, _PIXELS_EACH, _SCANS = 16 << 20, 8, 100
"""An image may have so many pixels, or so many for each byte of its file, and a JPEG so many scans; encoders write ten."""
_SAMPLES, _DIGITS = 16 << 20, 400
"""Samples of resampled sound, if they are more than the file's; characters of a number."""
NUMBERS = (".txt", ".csv")
PACKED = (".npz", ".npy", ".pb")
"""Of sequences, text and optionals: their tensors in the file's order, a single one, or ONNX's own message."""
SUFFIXES = (".npy", *IMAGES, ".wav", ".bin", *NUMBERS)


@dataclass(frozen=True)
class Preparation:
    """The preparation of images and sound as an input, beyond what the model's metadata states."""

    resize: str = "stretch"
    """``stretch`` to the input's height and width; ``fit`` all of the image in and leave black borders; ``crop`` the centre."""
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    scale: float | None = None
    """Real value of a pixel from 0 to 255: ``(pixel * scale - mean) / std``, mean and std one number or one per channel."""
    layout: str = ""
    """``nhwc`` or ``nchw``; empty: from the input's dimensions."""
    rate: int | None = None
    """Samples per second to resample sound to."""

    @property
    def normalises(self) -> bool:
        """True if any part of the normalisation was requested."""
        return bool(self.mean or self.std or self.scale is not None)


@dataclass(frozen=True)
class Picture:
    """An image as the model sees it: column ``x`` of the file is ``x * scale[0] + offset[0]`` of the input, rows likewise."""

    path: Path
    size: tuple[int, int]
    """Width and height of the input."""
    scale: tuple[float, float]
    offset: tuple[float, float]


@dataclass(frozen=True)
class PreparedInput:
    """An input's array, the picture that it was read from, and what should be known about it."""

    array: Array
    picture: Picture | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class InputTarget:
    """The input that a file is read for."""

    name: str
    operand: Operand
    metadata: TensorMetadata = field(default_factory=TensorMetadata)
    option: str = "--input"

    @property
    def place(self) -> str:
        """For messages."""
        return f"{self.option} {self.name}"

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Of files that are read for it."""
        return SUFFIXES if codec_of(self.operand) is None else PACKED

    def refuse(self, rule: str, found: object, path: Path) -> InputError:
        """An error for a file."""
        return InputError(Reason(rule, str(found), self.place, str(path), file=str(path)))


def prepare(target: InputTarget, path: Path, how: Preparation | None = None) -> PreparedInput:
    """Read one file for an input. InputError for a file of another form, type or shape than the input requires."""
    codec = codec_of(target.operand)
    read = _READERS.get(path.suffix.lower()) if codec is None else partial(_packed, codec)
    if read is None:
        # A suffix that says nothing: NumPy's reader names what the file begins with.
        read = _array
    try:
        found = path.stat()
    except OSError as error:
        rule = "a .npy file of numbers" if path.suffix == ".npy" else "a file that can be read"
        raise target.refuse(rule, cannot_read(error), path) from error
    if not stat.S_ISREG(found.st_mode):
        raise target.refuse("a file", "a folder" if stat.S_ISDIR(found.st_mode) else "a device or pipe", path)
    if found.st_size > MAX_BYTES:
        raise target.refuse(f"at most {MAX_BYTES:,} bytes", f"{found.st_size:,}", path)
    return read(target, path, how or Preparation())


def fit(target: InputTarget, array: Array, path: Path) -> Array:
    """An array as the input: quantised if it holds real numbers, with a batch axis added if that is all it lacks.

    int8 becomes uint8, offset by 128, where the model stores it so.
    """
    operand = target.operand
    if array.dtype.kind == "f" and is_quantised(operand):
        array = quantised(operand, array)
    array = in_model(operand, array)
    if len(operand.dims) == array.ndim + 1 and operand.dims[0] in (0, 1):
        array = array[np.newaxis]
    try:
        check_array(operand, array, "")
    except BadDataError as error:
        raise InputError(replace(error.reason, operation=target.place, operand=str(path))) from error
    return np.ascontiguousarray(array)


def _packed(codec: Codec, target: InputTarget, path: Path, _how: Preparation) -> PreparedInput:
    """A sequence, text or the like, of the tensors in a file."""
    suffix = path.suffix.lower()
    if suffix not in PACKED:
        raise target.refuse(f"a file of its tensors ({', '.join(PACKED)})", suffix or "a file without a suffix", path)
    try:
        if suffix == ".pb":
            content = np.fromfile(path, np.uint8)
            codec.unpack(content)
            return PreparedInput(content)
        arrays = list(load_arrays(path).values()) if suffix == ".npz" else [load_array(path, target.place)]
        return PreparedInput(codec.pack(arrays))
    except OpFailedError as error:
        raise target.refuse(error.reason.rule, error.reason.found, path) from error
    except (TypeError, ValueError) as error:
        raise target.refuse("a value of this type", str(error), path) from error


def _array(target: InputTarget, path: Path, _how: Preparation) -> PreparedInput:
    return PreparedInput(fit(target, load_array(path, target.place), path))


# Images -----------------------------------------------------------------------------------------------------------------------


def open_image(path: Path, place: str) -> Image.Image:
    """An image with its pixels decoded and upright; InputError without Pillow, and for what Pillow cannot read."""
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise PackageError.needed("Pillow", "'.[images]'", error, str(path), place, str(path)) from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Pillow only warns of images between MAX_IMAGE_PIXELS and twice as many.
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path, formats=FORMATS) as image:
                _check_image(image, path)
                image.load()
                upright: Image.Image = ImageOps.exif_transpose(image)
                return upright
    except Exception as error:
        pass_shortage(error)
        # Pillow's decoders raise whatever their formats suggest, for damaged files SyntaxError and struct.error among others.
        raise InputError(Reason("an image that Pillow reads", first_line(error), place, str(path), file=str(path))) from error


def _check_image(image: Image.Image, path: Path) -> None:
    """ValueError for an image whose decoding takes far more than its file: of too many pixels, or a JPEG of too many scans."""
    most = max(_PIXELS, _PIXELS_EACH * path.stat().st_size)
    if image.width * image.height > most:
        raise ValueError(f"{image.width * image.height:,} pixels, more than {most:,}")
    # Each scan of a progressive JPEG goes through all of its pixels; the mark does not occur in their data.
    if image.format in ("JPEG", "MPO") and path.read_bytes().count(b"\xff\xda") > _SCANS:
        raise ValueError(f"more than {_SCANS} scans")


def _pixels(image: Image.Image, channels: int) -> Image.Image:
    """The image with this many channels of 8 bits; 16-bit greys lose their lower half."""
    from PIL import Image

    if image.mode.startswith("I"):
        image = Image.fromarray((np.clip(np.asarray(image).astype(np.int64), 0, 65535) >> 8).astype(np.uint8))
    return image.convert({1: "L", 3: "RGB", 4: "RGBA"}[channels])


def _image_axes(target: InputTarget, how: Preparation, path: Path) -> tuple[int, int, int]:
    """The axes of height, width and channels in an input, channels -1 where it has none."""
    dims, counts = target.operand.dims, (1, 3, 4)
    first = len(dims) - 3
    if first == -1 and dims[0] > 1:
        return 0, 1, -1
    if first not in (0, 1) or (first == 1 and dims[0] > 1):
        raise target.refuse(f"numbers for shape {list(dims)}", "an image", path)
    channels_first = how.layout == "nchw" if how.layout else dims[-1] not in (0, *counts) and dims[first] in counts
    axes = (first + 1, first + 2, first) if channels_first else (first, first + 1, first + 2)
    if dims[axes[2]] not in (0, *counts):
        raise target.refuse(f"1, 3 or 4 channels for an image, or numbers for shape {list(dims)}", f"{dims[axes[2]]}", path)
    return axes


def _image(target: InputTarget, path: Path, how: Preparation) -> PreparedInput:
    dims = target.operand.dims
    rows, columns, axis = _image_axes(target, how, path)
    channels = 1 if axis < 0 else dims[axis] or 3
    whole = open_image(path, target.place)
    size = (dims[columns] or whole.width, dims[rows] or whole.height)
    resized, picture = _resized(_pixels(whole, channels), size, how.resize, path)
    pixels = np.asarray(resized).reshape(size[1], size[0], channels)
    values = _normalised(target, pixels, how, path)
    if axis < 0:
        values = values[..., 0]
    elif axis < rows:
        values = np.moveaxis(values, -1, 0)
    return PreparedInput(fit(target, values, path), picture)


def _resized(image: Image.Image, size: tuple[int, int], mode: str, path: Path) -> tuple[Image.Image, Picture]:
    """Bilinear, as Pillow does it: averaged over the area where the image becomes smaller."""
    from PIL import Image

    ratios = size[0] / image.width, size[1] / image.height
    if mode != "stretch":
        ratios = (max(ratios),) * 2 if mode == "crop" else (min(ratios),) * 2
    inner = max(1, round(image.width * ratios[0])), max(1, round(image.height * ratios[1]))
    offset = (size[0] - inner[0]) // 2, (size[1] - inner[1]) // 2
    picture = Picture(path, size, (inner[0] / image.width, inner[1] / image.height), (float(offset[0]), float(offset[1])))
    if mode == "crop":
        # Only the part that remains is computed: a thin image would otherwise become a huge one.
        left, top = -offset[0] / picture.scale[0], -offset[1] / picture.scale[1]
        box = left, top, left + size[0] / picture.scale[0], top + size[1] / picture.scale[1]
        box = max(box[0], 0), max(box[1], 0), min(box[2], image.width), min(box[3], image.height)
        return image.resize(size, Image.Resampling.BILINEAR, box), picture
    resized = image if inner == image.size else image.resize(inner, Image.Resampling.BILINEAR)
    if inner == size:
        return resized, picture
    canvas = Image.new(image.mode, size)
    canvas.paste(resized, offset)
    return canvas, picture


def _normalised(target: InputTarget, pixels: Array, how: Preparation, path: Path) -> Array:
    """Pixels as the input's stored values, or as real numbers that :func:`fit` quantises.

    8-bit inputs receive the bytes themselves, as from TFLite's Task Library, unless a requested or stated normalisation
    means something else by more than a step.
    """
    operand, dtype = target.operand, operand_dtype(target.operand)
    mean, std, scale = (how.mean, how.std, how.scale) if how.normalises else (target.metadata.mean, target.metadata.std, None)
    real = pixels.astype(np.float64) * (1.0 if scale is None else scale)
    for numbers, option in ((mean, "--mean"), (std, "--std")):
        if len(numbers) not in (0, 1, pixels.shape[-1]):
            rule = f"{option} of one number or one for each of {pixels.shape[-1]} channels"
            raise target.refuse(rule, ",".join(f"{number:g}" for number in numbers), path)
    if 0.0 in std:
        raise target.refuse("a standard deviation other than 0", "0", path)
    real = (real - np.array(mean or 0.0)) / np.array(std or 1.0)
    stated = how.normalises or bool(mean or std)
    if dtype.kind == "f":
        if not stated:
            rule = "--mean and --std, or --scale, as the model states no normalisation (--mean 127.5 --std 127.5: from -1 to 1)"
            raise target.refuse(rule, f"an image for {dtype} without them", path)
        return real.astype(dtype)
    if is_quantised(operand) and stated:
        exact = real / operand.scale + operand.zero_point
        offset = 0 if dtype.kind == "u" else 128
        if how.normalises or np.abs(exact - (pixels.astype(np.float64) - offset)).max() > 1:
            return real
    if dtype == np.int8:
        return (pixels ^ np.uint8(0x80)).view(np.int8)
    return np.rint(real).astype(dtype) if how.normalises else pixels.astype(dtype)


# Sound ------------------------------------------------------------------------------------------------------------------------


def _sound(target: InputTarget, path: Path, how: Preparation) -> PreparedInput:
    """PCM from -1 to 1, channels averaged; cut or filled with silence to the input's length."""
    try:
        with wave.open(str(path), "rb") as file:
            width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
            # A header may claim more than there is.
            data = file.readframes(min(file.getnframes(), path.stat().st_size))
        if not 1 <= width <= 4 or channels < 1 or rate < 1:
            raise wave.Error(f"{8 * width} bits, {channels} channels, {rate} samples per second")
    except (wave.Error, EOFError, OSError, ValueError, RuntimeError) as error:
        pass_shortage(error)
        raise target.refuse("PCM sound of 8, 16, 24 or 32 bits", first_line(error), path) from error
    mono = _pcm(data[: len(data) // (width * channels) * width * channels], width).reshape(-1, channels).mean(axis=1)
    notes = []
    stated = target.metadata.sample_rate
    if how.rate is not None and how.rate != rate:
        count = round(len(mono) * how.rate / rate)
        most = max(_SAMPLES, len(mono))
        if count > most:
            raise target.refuse(f"at most {most:,} samples at --rate {how.rate}", f"{count:,}", path)
        mono = np.interp(np.arange(count) * (rate / how.rate), np.arange(len(mono)), mono) if len(mono) else mono
        rate = how.rate
    if stated and stated != rate:
        notes.append(f"{path}: {rate:,} samples per second; the model's metadata states {stated:,} (--rate {stated} resamples)")
    array, more = _filled(target, mono, path, "samples", cut=True)
    dtype = operand_dtype(target.operand)
    if dtype.kind in "iu" and not is_quantised(target.operand):
        limits = np.iinfo(dtype)
        array = np.clip(np.rint(array * (limits.max + 1.0)), limits.min, limits.max)
    if not (is_quantised(target.operand)):
        array = array.astype(dtype)
    return PreparedInput(fit(target, array, path), None, (*notes, *more))


def _pcm(data: bytes, width: int) -> Array:
    if width == 1:
        return (np.frombuffer(data, np.uint8).astype(np.float64) - 128) / 128
    # Each sample fills the upper bytes of 32 bits.
    wide = np.zeros((len(data) // width, 4), np.uint8)
    wide[:, 4 - width :] = np.frombuffer(data, np.uint8).reshape(-1, width)
    return wide.view("<i4")[:, 0] / 2.0**31


def _filled(target: InputTarget, values: Array, path: Path, what: str, cut: bool) -> tuple[Array, list[str]]:
    """Values in the input's shape: zeros after too few of them, too many refused or ``cut`` off; one open dimension follows."""
    dims = target.operand.dims
    shape = [d or 1 for d in dims]
    opened = [k for k, d in enumerate(dims) if not d]
    known = int(np.prod(shape))
    if not dims:
        return values, []
    if opened:
        # The last open dimension has the length of the file; others, such as the batch, are 1.
        shape[opened[-1]] = max(1, -(-len(values) // known))
    size = int(np.prod(shape))
    notes = []
    if len(values) > size:
        if not cut:
            raise target.refuse(f"at most {size:,} {what} for shape {list(dims)}", f"{len(values):,}", path)
        notes.append(f"{path}: the first {size:,} of {len(values):,} {what} are used")
    elif len(values) < size:
        notes.append(f"{path}: {len(values):,} {what}, filled up with zeros to {size:,}")
    whole = np.zeros(size, values.dtype)
    whole[: len(values)] = values[:size]
    return whole.reshape(shape), notes


# Numbers ----------------------------------------------------------------------------------------------------------------------


def _bytes(target: InputTarget, path: Path, _how: Preparation) -> PreparedInput:
    """Raw little-endian elements of the type that the source file's input has."""
    operand = target.operand
    dtype = np.dtype(np.int8) if operand.source_type == "int8" else operand_dtype(operand)
    data = path.read_bytes()
    dims = list(operand.dims)
    opened = [k for k, d in enumerate(dims) if not d]
    count, known = len(data) // dtype.itemsize, int(np.prod([d or 1 for d in dims]))
    if opened and known and count % known == 0:
        dims = [d or 1 for d in dims]
        dims[opened[-1]] = count // known
    if len(data) % dtype.itemsize or (operand.dims and count != int(np.prod(dims))):
        required = (
            f"{int(np.prod(dims)) * dtype.itemsize:,} bytes" if all(dims) else f"a multiple of {known * dtype.itemsize:,} bytes"
        )
        raise target.refuse(f"{required} for {dtype} {list(operand.dims)}", f"{len(data):,}", path)
    array = np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype)
    return PreparedInput(fit(target, array.reshape(dims) if operand.dims else array, path))


def _numbers(target: InputTarget, path: Path, _how: Preparation) -> PreparedInput:
    """Numbers between commas, semicolons and white space, such as tokens; zeros follow where there are too few.

    Whole numbers are stored values; with a decimal point among them all are real numbers, which are quantised.
    """
    try:
        words = path.read_text("utf-8-sig").replace(",", " ").replace(";", " ").split()
    except UnicodeDecodeError as error:
        raise target.refuse("numbers as text", str(error), path) from error
    if not words:
        raise target.refuse("numbers as text", "none", path)
    long = next((word for word in words if len(word) > _DIGITS), None)
    if long is not None:
        raise target.refuse(f"numbers of at most {_DIGITS} characters", repr(long[:40]), path)
    values: list[int] | list[float]
    try:
        values = [int(word) for word in words]
    except ValueError:
        values = [_number(target, word, path) for word in words]
    dtype = operand_dtype(target.operand)
    real = isinstance(values[0], float)
    if real and is_quantised(target.operand):
        dtype = np.dtype(np.float64)
    elif real and dtype.kind in "iub":
        odd = next((word for word in words if not word.lstrip("+-").isdigit()), max(words, key=len))
        raise target.refuse(f"whole numbers for {dtype}", odd[:40], path)
    elif dtype.kind in "iu" and target.operand.source_type != "int8":
        limits = np.iinfo(dtype)
        outside = next((v for v in values if not limits.min <= v <= limits.max), None)
        if outside is not None:
            raise target.refuse(f"numbers of {dtype}", outside, path)
    elif dtype.kind in "iu":
        outside = next((v for v in values if not -128 <= v <= 127), None)
        if outside is not None:
            raise target.refuse("numbers of int8", outside, path)
        dtype = np.dtype(np.int8)
    try:
        array = np.array(values).astype(dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise target.refuse(f"numbers of {dtype}", str(error), path) from error
    array, notes = _filled(target, array, path, "numbers", cut=False)
    return PreparedInput(fit(target, array, path), None, tuple(notes))


def _number(target: InputTarget, word: str, path: Path) -> float:
    try:
        return float(word)
    except ValueError as error:
        raise target.refuse("numbers", repr(word[:40]), path) from error


def _archive(target: InputTarget, path: Path, _how: Preparation) -> PreparedInput:
    rule = "a .npy file of numbers"
    raise target.refuse(rule, f"an archive, whose arrays have names of their own: {target.option} {path}", path)


def _table(*entries: tuple[Iterable[str], Callable[[InputTarget, Path, Preparation], PreparedInput]]) -> dict[str, Any]:
    return {suffix: reader for suffixes, reader in entries for suffix in suffixes}


_READERS: dict[str, Callable[[InputTarget, Path, Preparation], PreparedInput]] = _table(
    ((".npy",), _array), (IMAGES, _image), ((".wav",), _sound), ((".bin",), _bytes), (NUMBERS, _numbers), ((".npz",), _archive)
)
"""Suffix → reader."""
