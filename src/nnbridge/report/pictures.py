"""Answers drawn over the image that they are about."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np

from nnbridge.inputs.preparation import Picture, open_image
from nnbridge.report.answers import BODY, Answer, Detection, Pose, Segmentation
from nnbridge.storage.atomic import atomic_write

_BONES = ((5, 7), (7, 9), (6, 8), (8, 10), (5, 6), (5, 11), (6, 12), (11, 12), (11, 13), (13, 15), (12, 14), (14, 16))
_OPACITY = 0.55
BOXES_FROM, POINTS_FROM = 0.5, 0.3
"""The least scores of boxes and points that are drawn."""


def colour(index: int) -> tuple[int, int, int]:
    """A colour for a class: hues a golden ratio apart, so that neighbours differ."""
    red, green, blue = colorsys.hsv_to_rgb(index * 0.618034 % 1, 0.85, 1.0)
    return round(red * 255), round(green * 255), round(blue * 255)


def drawable(answers: Sequence[Answer]) -> bool:
    """True if any of the answers has a place in the image."""
    return any(isinstance(answer, Detection | Segmentation | Pose) for answer in answers)


def draw(path: Path, picture: Picture, answers: Sequence[Answer]) -> None:
    """Write the image as a PNG with boxes, mask and points over it; a mask's class 0, the background, stays clear."""
    from PIL import Image, ImageDraw, ImageFont

    image = open_image(picture.path, "--save-image").convert("RGB")
    width = max(2, round(max(image.size) / 250))

    def at(row: float, column: float) -> tuple[float, float]:
        """The image's column and row for shares of the input's height and width."""
        x, y = column * picture.size[0], row * picture.size[1]
        return (x - picture.offset[0]) / picture.scale[0], (y - picture.offset[1]) / picture.scale[1]

    for answer in answers:
        if isinstance(answer, Segmentation):
            image = Image.fromarray(_tinted(np.asarray(image), picture, answer.mask))
    brush = ImageDraw.Draw(image)
    font = ImageFont.load_default(max(11, round(max(image.size) / 40)))
    for answer in answers:
        if isinstance(answer, Detection):
            for box in sorted((box for box in answer.boxes if box.score >= BOXES_FROM), key=lambda box: box.score):
                (x0, y0), (x1, y1) = at(box.top, box.left), at(box.bottom, box.right)
                x0, x1, y0, y1 = min(x0, x1), max(x0, x1), min(y0, y1), max(y0, y1)
                brush.rectangle((x0, y0, x1, y1), outline=colour(box.index), width=width)
                size = brush.textbbox((0, 0), box.title, font)
                corner = max(min(x0, image.width - size[2]), 0), max(min(y0, image.height - size[3]), 0)
                brush.rectangle(brush.textbbox(corner, box.title, font), fill=colour(box.index))
                brush.text(corner, box.title, (0, 0, 0), font)
        elif isinstance(answer, Pose):
            points = [(*at(row, column), score) for _, row, column, score in answer.points]
            for a, b in _BONES:
                if min(points[a][2], points[b][2]) >= POINTS_FROM:
                    brush.line((*points[a][:2], *points[b][:2]), colour(0), width)
            for k in range(len(BODY)):
                x, y, score = points[k]
                if score >= POINTS_FROM:
                    brush.ellipse((x - 2 * width, y - 2 * width, x + 2 * width, y + 2 * width), colour(k))
    with atomic_write(path) as file:
        _save(image, file)


def _save(image: object, file: IO[bytes]) -> None:
    image.save(file, "PNG")  # type: ignore[attr-defined]  # an image of Pillow, which is imported when it is used


def _tinted(pixels: np.ndarray, picture: Picture, mask: np.ndarray) -> np.ndarray:
    """Pixels with the colours of a mask's classes over them."""
    index, inside = [], []
    for axis, (length, cells) in enumerate(((pixels.shape[1], mask.shape[1]), (pixels.shape[0], mask.shape[0]))):
        seen = (np.arange(length) + 0.5) * picture.scale[axis] + picture.offset[axis]
        inside.append((seen >= 0) & (seen < picture.size[axis]))
        index.append(np.clip((seen * cells / picture.size[axis]).astype(np.int64), 0, cells - 1))
    classes = mask[index[1][:, None], index[0][None, :]]
    known, position = np.unique(classes, return_inverse=True)
    colours = np.array([colour(int(c)) for c in known])[position.reshape(classes.shape)]
    covered = (classes != 0) & inside[1][:, None] & inside[0][None, :]
    mixed = pixels * (1 - _OPACITY) + colours * _OPACITY
    return np.where(covered[..., None], mixed, pixels).astype(np.uint8)
