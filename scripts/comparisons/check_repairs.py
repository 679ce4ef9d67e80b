"""Random graphs with a planted fault of LiteRT's GPU: advice repairs each, the reference kernels' bits stay, the engine is right.

    python scripts/comparisons/check_repairs.py --count 100 --seed 1

A graph is an activation, an operator that the accelerator computes wrongly, and another activation. Rewrites of ``plan --advice``
are applied until no known fault is left. Exit status 1 if a graph has none that helps, or one of the two comparisons fails.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import argument_parser, one_line_errors

with one_line_errors():
    from nets.hunt import Hunt, difference, feeds_of

    from nnbridge.advice import advise
    from nnbridge.engines import accelerator
    from nnbridge.file import ModelFile
    from nnbridge.target import Target
    from tests.tflite.files import TfliteBuilder

_DEVICE, _BASE = "litert-gpu-float32", "litert-reference"
_MOST = 4
"""Rewrites of one graph."""
Rng = np.random.Generator
NONE = {"fused_activation_function": 0}


def _constant(file: TfliteBuilder, rng: Rng, value: int, shape: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    name = ("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM")[rng.integers(5)]
    other = file.constant(rng.standard_normal(shape), "float32")
    out = file.tensor(shape)
    sides = [value, other] if rng.integers(2) else [other, value]
    file.operator(name, sides, [out], NONE if name in ("ADD", "SUB", "MUL") else {})
    return out, shape


def _padding(file: TfliteBuilder, rng: Rng, value: int, shape: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    sides = rng.integers(0, 3, (len(shape), 2))
    result = tuple(int(n + a + b) for n, (a, b) in zip(shape, sides, strict=True))
    out = file.tensor(result)
    file.operator("PAD", [value, file.constant(sides, "int32")], [out], {})
    return out, result


def _sums(file: TfliteBuilder, rng: Rng, value: int, shape: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    out = file.tensor(shape)
    file.operator("CUMSUM", [value, file.constant(np.array(0), "int32")], [out], {"exclusive": False, "reverse": False})
    return out, shape


def _reversed(file: TfliteBuilder, rng: Rng, value: int, shape: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    out = file.tensor(shape)
    file.operator("REVERSE_V2", [value, file.constant(np.array([len(shape) - 1]), "int32")], [out], {})
    return out, shape


def _blocks(file: TfliteBuilder, rng: Rng, value: int, shape: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    n, h, w, c = shape
    result = (n, h * 2, w * 2, c // 4)
    out = file.tensor(result)
    file.operator("DEPTH_TO_SPACE", [value], [out], {"block_size": 2})
    return out, result


PLANTS: Mapping[str, tuple[Callable[..., tuple[int, tuple[int, ...]]], Callable[[Rng], tuple[int, ...]]]] = {
    "a constant of rank 1 to 3": (_constant, lambda rng: tuple(int(n) for n in rng.integers(2, 6, rng.integers(1, 4)))),
    "padding of rank 3": (_padding, lambda rng: tuple(int(n) for n in rng.integers(2, 6, 3))),
    "sums along the first axis": (_sums, lambda rng: tuple(int(n) for n in rng.integers(2, 6, 3))),
    "the last axis reversed": (_reversed, lambda rng: (*(int(n) for n in rng.integers(2, 5, rng.integers(1, 3))), 5)),
    "blocks of several images": (_blocks, lambda rng: (int(rng.integers(2, 4)), 2, 3, 4 * int(rng.integers(1, 3)))),
}
"""Fault → what adds it to a file, and dimensions for it."""


def graph(rng: Rng, plant: str) -> tuple[TfliteBuilder, list[int], list[int]]:
    """A file with a fault between two activations."""
    file, (place, drawn) = TfliteBuilder(), PLANTS[plant]
    shape = drawn(rng)
    value, before = file.tensor(shape), file.tensor(shape)
    file.operator(("RELU", "ABS", "TANH")[rng.integers(3)], [value], [before], {})
    result, shape = place(file, rng, before, shape)
    out = file.tensor(shape)
    file.operator(("RELU6", "NEG", "LOGISTIC")[rng.integers(3)], [result], [out], {})
    return file, [value], [out]


def repaired(path: Path) -> tuple[Path, str]:
    """The file after rewrites that lower the number of known faults; the reason why there is none."""
    for number in range(_MOST):
        found = advise(ModelFile(path), Target.of(_DEVICE))
        better = [one for one in found.advice if one.edit is not None and len(one.after.faulty) < len(one.before.faulty)]
        if not better:
            return path, "" if number else "no advice"
        edited = path.with_name(f"{path.stem}-{number}.tflite")
        assert better[0].edit is not None
        better[0].edit.content().write(edited)
        path = edited
    return path, "too many faults"


def outcome(hunt: Hunt, path: Path) -> str:
    """``repaired``, or what went wrong."""
    feeds = feeds_of(ModelFile(path).source_graph)
    right = hunt.run(_BASE, path.read_bytes(), feeds)
    if not difference(hunt.run(_DEVICE, path.read_bytes(), feeds), right):
        return "right before"
    after, why = repaired(path)
    if why:
        return why
    bits = hunt.run(_BASE, after.read_bytes(), feeds)
    if any(not np.array_equal(one, other) for one, other in zip(bits, right, strict=True)):
        return "other bits in the reference kernels"
    apart = difference(hunt.run(_DEVICE, after.read_bytes(), feeds), right)
    return f"still wrong on the engine: {apart}" if apart else "repaired"


def main() -> int:
    parser = argument_parser()
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if (missing := accelerator.unavailable()) is not None:
        parser.error(str(missing))
    hunt, counts = Hunt([_DEVICE], cold=True), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.count):
            plant = list(PLANTS)[number % len(PLANTS)]
            file, inputs, outputs = graph(np.random.default_rng([options.seed, number]), plant)
            found = outcome(hunt, file.write(Path(folder) / f"{number}.tflite", inputs, outputs))
            counts[found.split(":")[0]] += 1
            if found not in ("repaired", "right before"):
                print(f"{number}, {plant}: {found}", flush=True)
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    return int(set(counts) - {"repaired", "right before"} != set())


if __name__ == "__main__":
    with one_line_errors():
        sys.exit(main())
