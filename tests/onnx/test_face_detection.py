"""UltraFace as TFLite and as ONNX finds the same faces in the same picture.

The picture is drawn here. It goes in as (pixel - 127) / 128 in RGB; boxes come out relative to anchors on grids of 8, 16, 32
and 64 pixels, with variances of 0.1 and 0.2, as the authors' detectors take them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from nnbridge.file import load
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution

pytest.importorskip("onnx")

Array = npt.NDArray[Any]
HEIGHT, WIDTH = 240, 320
FACES = ((90, 110, 40), (230, 130, 28))
"""Centre and size of each drawn face."""
ANCHORS = ((8, (10, 16, 24)), (16, (32, 48)), (32, (64, 96)), (64, (128, 192, 256)))
"""Pixels between a grid's places, and the anchors' sides."""
SCORE, OVERLAP = 0.7, 0.3


def picture() -> Array:
    """Two faces, channels last."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    pixels = np.full((HEIGHT, WIDTH, 3), (90, 110, 140), np.float32)

    def oval(centre: tuple[float, float], radii: tuple[float, float], colour: tuple[int, int, int]) -> None:
        pixels[((x - centre[0]) / radii[0]) ** 2 + ((y - centre[1]) / radii[1]) ** 2 < 1] = colour

    for left, top, size in FACES:
        oval((left, top - 0.27 * size), (1.05 * size, 1.35 * size), (60, 40, 30))  # hair
        oval((left, top), (0.85 * size, 1.15 * size), (224, 178, 150))
        for side in (-0.35, 0.35):
            oval((left + side * size, top - 0.2 * size), (0.18 * size, 0.1 * size), (250, 250, 250))
            oval((left + side * size, top - 0.2 * size), (0.08 * size, 0.1 * size), (40, 25, 20))
            oval((left + side * size, top - 0.42 * size), (0.22 * size, 0.05 * size), (60, 40, 30))
        oval((left, top + 0.15 * size), (0.1 * size, 0.22 * size), (200, 150, 120))
        oval((left, top + 0.55 * size), (0.32 * size, 0.1 * size), (170, 70, 70))
    return ((pixels - 127) / 128)[None]


def anchors() -> Array:
    """Centre and size of each anchor, [4420, 4], as shares of the picture's width and height."""
    made = []
    for step, sides in ANCHORS:
        rows, columns = -(-HEIGHT // step), -(-WIDTH // step)
        for row in range(rows):
            for column in range(columns):
                place = ((column + 0.5) / columns, (row + 0.5) / rows)
                made += [(*place, side / WIDTH, side / HEIGHT) for side in sides]
    return np.clip(np.array(made), 0, 1)


def corners(places: Array) -> Array:
    """Boxes as shares of the picture: left, top, right, bottom."""
    known = anchors()
    centres = places[:, :2] * 0.1 * known[:, 2:] + known[:, :2]
    halves = np.exp(places[:, 2:] * 0.2) * known[:, 2:] / 2
    return np.concatenate([centres - halves, centres + halves], axis=1)


def kept(boxes: Array, scores: Array) -> Array:
    """Boxes in pixels, likely ones first, without those that overlap a likelier one."""
    left = [i for i in np.argsort(-scores, kind="stable") if scores[i] > SCORE]
    found = []
    while left:
        best = left.pop(0)
        found.append(boxes[best] * np.tile([WIDTH, HEIGHT], 2))
        left = [i for i in left if overlap(boxes[best], boxes[i]) < OVERLAP]
    return np.array(found)


def overlap(one: Array, other: Array) -> float:
    """Intersection over union."""
    shared = np.prod(np.clip(np.minimum(one[2:], other[2:]) - np.maximum(one[:2], other[:2]), 0, None))
    return float(shared / (np.prod(one[2:] - one[:2]) + np.prod(other[2:] - other[:2]) - shared))


def answers(path: Path, image: Array) -> tuple[Array, Array]:
    """The network's boxes and each one's probability of being a face."""
    if not path.is_file():
        pytest.skip(f"no real model at {path}")
    compilation = Compilation.create(load(path), [])
    compilation.finish()
    outputs = [output[0] for output in Execution(compilation).run([np.ascontiguousarray(image)]).values()]
    return next(o for o in outputs if o.shape[-1] == 4), next(o for o in outputs if o.shape[-1] == 2)[:, 1]


def test_the_same_boxes_in_both_formats(shared: Path) -> None:
    image = picture()
    places, scores = answers(shared / "models/tflite/ultraface_rfb_320.tflite", image)
    of_tflite = kept(corners(places), scores)
    places, scores = answers(shared / "models/onnx/ultraface_rfb_320.onnx", image.transpose(0, 3, 1, 2))
    of_onnx = kept(corners(places), scores)
    centres = (of_onnx[:, :2] + of_onnx[:, 2:]) / 2
    assert len(centres) == len(FACES)
    assert all(any(np.abs(centre - face[:2]).max() < face[2] / 2 for centre in centres) for face in FACES)
    np.testing.assert_allclose(of_tflite, of_onnx, atol=0.1)


def test_boxes_that_the_file_decodes_itself_are_those_that_are_decoded_here(shared: Path) -> None:
    image = picture().transpose(0, 3, 1, 2)
    places, _ = answers(shared / "models/onnx/ultraface_rfb_320.onnx", image)
    boxes, _ = answers(shared / "models/onnx/ultraface_rfb_320_postprocess.onnx", image)
    np.testing.assert_allclose(corners(places), boxes, atol=1e-4)
