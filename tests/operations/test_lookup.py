"""Tables, hashes and random choice."""

from __future__ import annotations

import numpy as np
import pytest

from nnbridge.errors import OpFailedError
from nnbridge.operations.farmhash import fingerprint64
from nnbridge.operations.philox import philox, uniform
from nnbridge.types import OperandCode, OperationCode
from tests.operations.calls import FLOAT, U8, integers, omitted, output, run, scalar, tensor

Op = OperationCode
INTS, HALF = OperandCode.TENSOR_INT32, OperandCode.TENSOR_FLOAT16


def test_embedding_lookup_picks_rows_in_any_order() -> None:
    [y] = run(Op.EMBEDDING_LOOKUP, [integers([2, 0, 2]), tensor([[1, 2], [3, 4], [5, 6]])])
    assert y.tolist() == [[5, 6], [1, 2], [5, 6]]


@pytest.mark.parametrize("number", [-1, 2])
def test_embedding_lookup_refuses_a_row_that_is_not_there(number: int) -> None:
    with pytest.raises(OpFailedError, match="row numbers from 0 to 1"):
        run(Op.EMBEDDING_LOOKUP, [integers([number]), tensor([[1], [2]])])


def test_hashtable_lookup_gives_raw_zeros_for_a_miss() -> None:
    table = tensor([[10, 20], [30, 40]], U8, scale=0.5, zero_point=7)
    outputs = output(U8, scale=0.5, zero_point=7), output(U8, scale=1.0)
    [rows, hits] = run(Op.HASHTABLE_LOOKUP, [integers([9, 5, -3]), integers([-3, 9]), table], *outputs)
    assert rows.tolist() == [[30, 40], [0, 0], [10, 20]]
    assert hits.tolist() == [1, 0, 1]


_PANGRAMS = "the quick brown fox jumps over the lazy dog. " * 10


@pytest.mark.parametrize(
    ("text", "fingerprint"),
    [
        # BigQuery's documentation of FARM_FINGERPRINT.
        ("3true", -4880158226897771312),
        ("1footrue", -1541654101129638711),
        ("2applefalse", 2794438866806483259),
        # Amazon Redshift's documentation of farmFingerprint64.
        ("Amazon Redshift", 8085098817162212970),
        # FarmHash's own C++ code, through the package pyfarmhash 0.5.1: one text for each other class of lengths.
        (_PANGRAMS[:1], 6958822807653381721),
        (_PANGRAMS[:3], 7003889267569045354),
        (_PANGRAMS[:4], 1001158104500252861),
        (_PANGRAMS[:16], 6052272862424356134),
        (_PANGRAMS[:17], -7124445176437993083),
        (_PANGRAMS[:20], -4680401803898416400),
        (_PANGRAMS[:32], -403373237413455665),
        (_PANGRAMS[:50], 5666009074679334383),
        (_PANGRAMS[:64], 8157874316100056489),
        (_PANGRAMS[:65], -1921485520109947628),
        (_PANGRAMS[:128], 8743576800213732567),
        (_PANGRAMS[:200], -4667889882023845142),
    ],
)
def test_fingerprints_are_those_that_others_publish(text: str, fingerprint: int) -> None:
    rows = np.frombuffer(text.encode(), np.uint8).reshape(1, -1)
    assert int(fingerprint64(rows).view(np.int64)[0]) == fingerprint


def _bit(seed: float, *items: bytes, weights: tuple[float, ...] = (1.0, 1.0)) -> int:
    """One bit, from single fingerprints: the sign of the weighted sum."""
    keys = [np.frombuffer(np.float32(seed).tobytes() + item, np.uint8).reshape(1, -1) for item in items]
    prints = [float(fingerprint64(key).view(np.int64)[0]) for key in keys]
    return int(sum(w * p for w, p in zip(weights, prints, strict=False)) > 0)


SEEDS = [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]


def _signature(row: list[float], weights: tuple[float, ...] = (1.0, 1.0)) -> list[int]:
    items = [np.array(v, np.int32).tobytes() for v in ([1, 2], [3, 4])]
    return [_bit(seed, *items, weights=weights) for seed in row]


def test_sparse_signatures_put_the_first_bit_highest_and_keep_hashes_apart() -> None:
    # Type 3 adds the hash's number times 2 ** 3; type 1 does not.
    inputs = [tensor(SEEDS), integers([[1, 2], [3, 4]]), omitted()]
    signatures = [a * 4 + b * 2 + c for a, b, c in (_signature(row) for row in SEEDS)]
    assert run(Op.LSH_PROJECTION, [*inputs, scalar(1)], output(INTS))[0].tolist() == signatures
    assert run(Op.LSH_PROJECTION, [*inputs, scalar(3)], output(INTS))[0].tolist() == [signatures[0], signatures[1] + 8]


def test_dense_signatures_have_one_bit_in_each_element_and_use_weights() -> None:
    inputs = [tensor(SEEDS), integers([[1, 2], [3, 4]]), tensor([0.25, -2])]
    [y] = run(Op.LSH_PROJECTION, [*inputs, scalar(2)], output(INTS))
    assert y.tolist() == [bit for row in SEEDS for bit in _signature(row, (0.25, -2.0))]


def test_float16_items_are_hashed_as_their_two_bytes() -> None:
    [y] = run(Op.LSH_PROJECTION, [tensor([[0.5]]), tensor([1, 2], HALF), omitted(), scalar(1)], output(INTS))
    assert y.tolist() == [_bit(0.5, *(np.float16(v).tobytes() for v in (1, 2)))]


def test_no_items_give_no_bits() -> None:
    inputs = [tensor([[0.5, 1.5]]), tensor(np.zeros((0, 3))), omitted(), scalar(3)]
    assert run(Op.LSH_PROJECTION, inputs, output(INTS))[0].tolist() == [0]


def test_weights_belong_to_the_dense_type_only() -> None:
    data = [tensor([[0.5]]), tensor([1, 2])]
    with pytest.raises(OpFailedError, match="no weight for a sparse type"):
        run(Op.LSH_PROJECTION, [*data, tensor([1, 1]), scalar(3)], output(INTS))
    with pytest.raises(OpFailedError, match="a weight for the dense type"):
        run(Op.LSH_PROJECTION, [*data, omitted(), scalar(2)], output(INTS))


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        # Random123's known answers for philox4x32 with 10 rounds.
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_known_answers(counter: tuple[int, ...], key: tuple[int, int], words: tuple[int, ...]) -> None:
    assert philox(counter, key).tolist() == list(words)


def test_a_double_is_made_of_52_bits_of_two_words() -> None:
    # Without seeds the first block is the first known answer: low 20 bits of the first word, then the second word.
    [first, second] = uniform(2, (0, 0))
    assert first == (0x7E8D5 * 2**32 + 0xE169C58D) / 2**52
    assert second == (0x7AC4C * 2**32 + 0x9B00DBD8) / 2**52


def test_negative_seeds_wrap_in_64_bits() -> None:
    [word] = philox([[0, 0, 0xFFFFFFFE, 0xFFFFFFFF]], (0xFFFFFFFF, 0xFFFFFFFF))[:, 1].tolist()
    assert int(uniform(1, (-1, -2))[0] * 2**52) & 0xFFFFFFFF == word


def test_draws_follow_the_stream_row_after_row() -> None:
    # Two equal classes: the second is drawn where the double is at least a half.
    [y] = run(Op.RANDOM_MULTINOMIAL, [tensor(np.zeros((2, 2))), scalar(50), integers([3, 4])], output(INTS))
    np.testing.assert_array_equal(y, uniform(100, (3, 4)).reshape(2, 50) >= 0.5)


def test_frequencies_are_the_softmax() -> None:
    # Within five standard deviations of a share p in 20000 draws, sqrt(p (1 - p) / 20000) < 0.0036.
    logits = np.random.default_rng(3).normal(size=(2, 7))
    [y] = run(Op.RANDOM_MULTINOMIAL, [tensor(logits), scalar(20000), integers([5, 6])], output(INTS))
    shares = np.stack([np.bincount(row, minlength=7) / 20000 for row in y])
    np.testing.assert_allclose(shares, np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True), atol=0.018)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_a_logit_that_is_not_finite_is_never_drawn(value: float) -> None:
    [y] = run(Op.RANDOM_MULTINOMIAL, [tensor([[0, value, 0]]), scalar(200), integers([1, 2])], output(INTS))
    assert set(y[0].tolist()) == {0, 2}


def test_without_seeds_draws_differ_each_time() -> None:
    inputs = [tensor(np.zeros((1, 1000), np.float32), FLOAT), scalar(20), integers([0, 0])]
    [a], [b] = (run(Op.RANDOM_MULTINOMIAL, inputs, output(INTS)) for _ in range(2))
    assert a.tolist() != b.tolist()


def test_one_seed_that_is_not_0_names_a_stream() -> None:
    for seeds in ((0, 7), (7, 0)):
        [y] = run(Op.RANDOM_MULTINOMIAL, [tensor(np.zeros((1, 2))), scalar(50), integers(seeds)], output(INTS))
        np.testing.assert_array_equal(y, [uniform(50, seeds) >= 0.5])


def test_no_samples_are_none() -> None:
    [y] = run(Op.RANDOM_MULTINOMIAL, [tensor([[1, 2]]), scalar(0), integers([1, 2])], output(INTS))
    assert y.shape == (1, 0)
