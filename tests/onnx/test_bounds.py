"""Values that choose places in other operands, and numbers for each of something: refused before any kernel sees them."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

from nnbridge.errors import OpFailedError
from nnbridge.model import Array
from nnbridge_onnx.host.evaluator import HostNode

onnx = pytest.importorskip("onnx")
MS = "com.microsoft"


def reals(*shape: int) -> Array:
    return np.ones(shape, np.float32)


def whole(*values: int, shape: tuple[int, ...] | None = None, dtype: Any = np.int32) -> Array:
    return np.array(values, dtype).reshape(shape or (len(values),))


def computed(name: str, inputs: list[Array | None], outputs: int = 1, **attributes: Any) -> None:
    """Run a node as the host does; ONNX Runtime, for kernels that the host lacks, is never reached by what does not fit."""
    domain, _, op = name.rpartition(":")
    feeds = {f"i{k}": value for k, value in enumerate(inputs) if value is not None}
    names = [f"i{k}" if value is not None else "" for k, value in enumerate(inputs)]
    proto = onnx.helper.make_node(op, names, [f"o{k}" for k in range(outputs)], domain=domain, **attributes)
    types = {key: onnx.helper.np_dtype_to_tensor_dtype(value.dtype) for key, value in feeds.items()}
    encoded = base64.b64encode(proto.SerializeToString()).decode()
    version = 1 if domain else 23
    HostNode({"domain": domain, "opset": version, "op": op, "types": types, "node": encoded}).run(feeds)


@pytest.fixture(autouse=True)
def no_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nnbridge_onnx.host.runtime.HostedNode.run", lambda *_: [])


BOX = np.array([[0, 0, 3, 3]], np.float32)
HEADS = {"num_heads": 2}
BITS = {"K": 32, "N": 4, "block_size": 16}
IMAGE, SEQUENCE, TABLE = reals(1, 1, 4, 4), reals(1, 2, 8), reals(4, 4)
PAST = reals(1, 2, 8, 8)
ATTENTION = [reals(1, 1, 16), reals(1, 1, 16), reals(1, 1, 16), PAST, PAST]


def embedding(words: Array, segments: Array | None = None, positions: Array | None = None) -> list[Array | None]:
    tables = [reals(4, 8), reals(4, 8), None if segments is None else reals(2, 8), reals(8), reals(8), None]
    return [words, segments, *tables, positions]


INDEXED = {
    "RoiAlign": lambda k: ("RoiAlign", [IMAGE, BOX, whole(k, dtype=np.int64)], {"output_height": 2, "output_width": 2}),
    "CropAndResize": lambda k: (f"{MS}:CropAndResize", [IMAGE, BOX, whole(k), whole(2, 2)], {}),
    "rotary positions": lambda k: (
        f"{MS}:RotaryEmbedding", [SEQUENCE, whole(0, 3 * k, shape=(1, 2), dtype=np.int64), TABLE, TABLE], {},
    ),
    "rotary offset": lambda k: (f"{MS}:RotaryEmbedding", [SEQUENCE, whole(2 * k, dtype=np.int64), TABLE, TABLE], {}),
    "ONNX's rotary": lambda k: (
        "RotaryEmbedding", [SEQUENCE, TABLE, TABLE, whole(0, 3 * k, shape=(1, 2), dtype=np.int64)], {"num_heads": 1},
    ),
    "words": lambda k: (f"{MS}:EmbedLayerNormalization", embedding(whole(0, 3 * k, shape=(1, 2))), {}),
    "segments": lambda k: (
        f"{MS}:EmbedLayerNormalization", embedding(whole(0, 1, shape=(1, 2)), whole(0, k, shape=(1, 2))), {},
    ),
    "positions": lambda k: (
        f"{MS}:EmbedLayerNormalization", embedding(whole(0, 1, shape=(1, 2)), None, whole(0, 3 * k, shape=(1, 2))), {},
    ),
    "lengths": lambda k: (f"{MS}:GroupQueryAttention", [*ATTENTION, whole(7 * k), whole(8)], {**HEADS, "kv_num_heads": 2}),
    "groups": lambda k: (
        f"{MS}:MatMulNBits",
        [reals(1, 32), np.ones((4, 2, 8), np.uint8), reals(8), None, np.full(32, k, np.int32)],
        {**BITS, "bits": 4},
    ),
    "characters": lambda k: (
        f"{MS}:WordConvEmbedding", [whole(1, 3 * k, shape=(1, 1, 2)), reals(2, 1, 1, 2), reals(2), reals(4, 2)], {},
    ),
}  # fmt: skip
"""Nodes whose last index is the largest that fits for 1."""
FIRST_ONLY = {"RoiAlign", "CropAndResize"}
"""Of which only 0 fits, as there is one image."""


def node(name: str, k: int) -> tuple[str, list[Array | None], dict[str, Any]]:
    found: tuple[str, list[Array | None], dict[str, Any]] = INDEXED[name](k)
    return found


@pytest.mark.parametrize("name", INDEXED)
@pytest.mark.parametrize("k", [-100_000_000, -1, 2, 100_000_000])
def test_indexes_beyond_what_they_choose_from_are_refused(name: str, k: int) -> None:
    op, inputs, attributes = node(name, k)
    with pytest.raises(OpFailedError, match=r"expected (indexes from 0 to|whole numbers from 0 on)"):
        computed(op, inputs, **attributes)


@pytest.mark.parametrize("name", INDEXED)
def test_the_largest_index_is_none_of_them(name: str) -> None:
    op, inputs, attributes = node(name, 0 if name in FIRST_ONLY else 1)
    computed(op, inputs, **attributes)


HIDDEN = reals(8, 24), reals(24)
QUANTISED = [np.ones((1, 2, 8), np.uint8), np.ones((8, 24), np.uint8), reals(24), reals(1), reals(1)]
ZEROS = [np.zeros(1, np.uint8)] * 2
WRONG: dict[str, tuple[str, list[Array | None], dict[str, Any]]] = {
    "mask of Attention": (f"{MS}:Attention", [SEQUENCE, *HIDDEN, whole(-1)], HEADS),
    "mask of QAttention": (f"{MS}:QAttention", [*QUANTISED, whole(-1), *ZEROS], HEADS),
    "mask of MultiHeadAttention": (f"{MS}:MultiHeadAttention", [SEQUENCE, SEQUENCE, SEQUENCE, None, whole(-1)], HEADS),
    "bias of FusedConv": (f"{MS}:FusedConv", [IMAGE, reals(4, 1, 2, 2), reals(1)], {}),
    "numbers of four bits": (f"{MS}:MatMulBnb4", [reals(1, 32), np.ones(2, np.uint8), reals(8)], {**BITS, "quant_type": 1}),
    "their scales": (f"{MS}:MatMulBnb4", [reals(1, 32), np.ones(64, np.uint8), reals(1)], {**BITS, "quant_type": 1}),
    "experts": (f"{MS}:MoE", [reals(2, 8), reals(2, 4), reals(4, 8, 16), None, reals(4, 16, 8)], {"k": 5}),
    "no expert": (f"{MS}:MoE", [reals(2, 8), reals(2, 4), reals(4, 8, 16), None, reals(4, 16, 8)], {"k": 0}),
    "negative part": ("Split", [reals(4), whole(5, -1, dtype=np.int64)], {"outputs": 2}),
    "parts of a longer axis": ("Split", [reals(4), whole(2, 3, dtype=np.int64)], {"outputs": 2}),
    "negative part of a sequence": ("SplitToSequence", [reals(4), whole(5, -1, dtype=np.int64)], {}),
}


@pytest.mark.parametrize(("op", "inputs", "attributes"), WRONG.values(), ids=WRONG)
def test_other_operands_that_do_not_fit_are_refused(op: str, inputs: list[Array | None], attributes: dict[str, Any]) -> None:
    with pytest.raises(OpFailedError, match="expected"):
        computed(op, inputs, **attributes)


@pytest.mark.parametrize(
    ("op", "inputs"),
    [
        ("Gather", [reals(4, 3), whole(4, dtype=np.int64)]),
        ("GatherND", [reals(4, 3), whole(4, shape=(1, 1), dtype=np.int64)]),
        ("ScatterND", [reals(4, 3), whole(4, shape=(1, 1), dtype=np.int64), reals(1, 3)]),
        ("ScatterElements", [reals(4, 3), whole(4, shape=(1, 1), dtype=np.int64), reals(1, 1)]),
        ("Compress", [reals(4), np.ones(9, bool)]),
        ("Range", [np.array(0), np.array(7), np.array(0)]),
    ],
    ids=lambda found: found if isinstance(found, str) else "",
)
def test_what_numpy_finds_out_of_bounds_is_not_handed_over(op: str, inputs: list[Array | None]) -> None:
    with pytest.raises(OpFailedError, match=r"out of bounds|division by zero"):
        computed(op, inputs, **({"axis": 0} if op == "Compress" else {}))
