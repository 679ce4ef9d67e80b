"""Estimates: cycles beside Vela's, memory, the best cut beside all choices, refusals where nothing is known."""

from __future__ import annotations

import gzip
import json
import math
from itertools import combinations
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnbridge import devices
from nnbridge.devices.source_profiles import SourceProfile
from nnbridge.errors import InputError
from nnbridge.estimate.blocks import Pass, PassCost, Plane, block, pass_cost
from nnbridge.estimate.buffering import Buffer, buffer_of
from nnbridge.estimate.cut import Cut, CutOption, best_cut, largest, memory
from nnbridge.estimate.cycles import operation_cycles
from nnbridge.estimate.memory import peak_bytes
from nnbridge.estimate.network import arena_bytes, partition_estimate
from nnbridge.estimate.numbers import ArrayNumbers
from nnbridge.estimate.partitions import groups
from nnbridge.estimate.plans import estimate
from nnbridge.estimate.work import ENCODER_BYTES, Work, encoded_bytes
from nnbridge.file import ModelFile
from nnbridge.source import SourceTensor
from tests.conftest import REPOSITORY
from tests.devices.test_source_profiles import chain, profile
from tests.tflite.files import TfliteBuilder


def numbers(name: str = "ethos-u55-128") -> ArrayNumbers:
    cost = profile(name).cost
    assert cost is not None
    assert cost.array is not None
    return cost.array


def accepted(device: SourceProfile, path: Path) -> frozenset[int]:
    return frozenset(claim.operator.index for claim in device.claims(ModelFile(path).source_graph) if claim.accepted)


def test_a_pointwise_convolution_takes_the_cycles_of_its_granules() -> None:
    # 64 channels from 64 at 25x5: 25 x 3 granules of 1x2x8, 8 groups, 2 steps of 32 channels, 4 cycles each = 4,800 of the array.
    work = Work("conv", (1, 25, 5, 64), 64, (1, 1), 1, ((1, 25, 5, 64),))
    # With the output of one block and the memory's waits Vela 5.2.0 has 5,944 for operator 2 of kws_ref_model.
    assert operation_cycles(work, numbers(), slack=1e6).cycles == 5944


def test_an_addition_takes_cycles_per_stored_element() -> None:
    work = Work("elementwise", (1, 80, 60, 24), 1, (1, 1), 1, form="add")
    assert operation_cycles(work, numbers()).cycles == 80 * 60 * 32 * 1.5  # Vela 5.2.0: 230,400


@pytest.mark.parametrize(
    ("work", "out", "source"),
    [
        # What Vela 5.2.0 chose for operators 0, 5, 8 and 12 of person_detect (perf_debug_main of its debug database).
        (Pass("conv", (48, 48, 8), (96, 96, 1), (3, 3), 2), (8, 16, 8), (17, 34, 8)),
        (Pass("depthwise", (24, 24, 32), (24, 24, 32), (3, 3)), (7, 12, 16), (9, 14, 16)),
        (Pass("conv", (12, 12, 64), (12, 12, 32)), (4, 12, 32), (4, 12, 32)),
        (Pass("conv", (6, 6, 128), (6, 6, 64)), (6, 6, 48), (6, 6, 32)),
    ],
)
def test_the_block_is_the_one_that_fetches_least(work: Pass, out: Plane, source: Plane) -> None:
    assert (block(work, numbers()).out, block(work, numbers()).source) == (out, source)


def test_edges_count_as_parts_of_a_block() -> None:
    # Operator 5 of person_detect: 24 x 24 x 32 in blocks of 7 x 12 x 16; Vela 5.2.0: 14,980 cycles.
    assert round(pass_cost(Pass("depthwise", (24, 24, 32), (24, 24, 32), (3, 3), per_output=0.5), numbers()).cycles) == 14980


def test_weights_that_are_read_again_are_loaded_while_the_operator_before_runs() -> None:
    work = Work("conv", (1, 48, 48, 16), 16, (1, 1), 1, ((1, 48, 48, 16),), weight_bytes=1536, encoded_bytes=1536)
    waited, hidden = (operation_cycles(work, numbers(), slack=slack).cycles for slack in (0.0, 1e6))
    # 1,536 bytes of weights and 160 of biases and scales at a byte per cycle, 64 cycles until the first.
    assert waited - hidden == 1536 + 160 + 64


# 64 cycles until the first byte, a byte per cycle from the weights' memory; blocks of 16 channels.
@pytest.mark.parametrize(
    ("depth", "stored", "found", "slack", "buffer"),
    [
        # Read four times, and copied while the operator before runs.
        (64, 1000, PassCost(5000, 8000, 4, 16), 5000, Buffer((1008,), True, 5000)),
        # Read once, and nothing hides the copy.
        (64, 1000, PassCost(100, 800, 1, 64), 0, Buffer((), False, 100)),
        # 1,700 cycles are enough for 16 of 48 channels; the other 32 are copied while these are computed.
        (48, 4800, PassCost(30000, 8000, 2, 16), 1700, Buffer((1600, 3200), True, 20000)),
    ],
)
def test_weights_are_copied_into_sram_where_that_costs_no_time(
    depth: int, stored: int, found: PassCost, slack: float, buffer: Buffer
) -> None:
    assert buffer_of(depth, stored, found, numbers(), slack) == buffer


def test_two_buffers_take_turns_and_the_last_slice_is_held_until_the_end() -> None:
    buffer = Buffer((100, 60, 80))
    assert (buffer.parts, buffer.last) == ((100, 60), 100)


def test_a_value_that_is_looked_up_as_it_is_computed_is_not_stored(tmp_path: Path) -> None:
    file = TfliteBuilder()
    value, sum_, out = (file.tensor((1, 8, 8, channels), "int8", scale=0.5) for channels in (1, 8, 8))
    weights = file.constant(np.ones((8, 1, 1, 1), np.int8), scale=[0.5] * 8, zero_point=[0] * 8, axis=0)
    file.operator("CONV_2D", [value, weights], [sum_], {"padding": 0, "stride_w": 1, "stride_h": 1})
    file.operator("LOGISTIC", [sum_], [out], {})
    graph = ModelFile(file.write(tmp_path / "fused.tflite", [value], [out])).source_graph
    both = groups(graph, frozenset((0, 1)))[0]
    assert peak_bytes(graph, both, 16, {}, [1]) == 64 + 512
    assert peak_bytes(graph, both, 16, {0: Buffer((96,), True)}, [1]) == 64 + 512 + 96


def test_a_rice_code_takes_the_parameter_that_needs_least() -> None:
    # Three values that are not zero, a byte each at the start, as symbols 0 to 2: 1 + 2 + 3 bits with a parameter of 0. Runs of
    # zeros after them: none, one, none, which is 1 + 2 + 1 bits.
    tensor = SourceTensor(0, "w", "INT8", 8, (4,), read=lambda: np.array([-1, 0, 1, 3], np.int8))
    assert encoded_bytes(tensor) == ENCODER_BYTES + 3 + math.ceil((6 + 4) / 8)


def test_long_runs_of_zeros_between_weights_are_counted() -> None:
    # 8 weights of one value: a byte at the start, and 8 bits with a parameter of 0. Then 56 zeros, whose run counts for the last
    # weight, with a parameter of 3: 4 bits for each of the seven runs of 0, 4 + 7 for that of 56; with 2 these are 3 and 3 + 14.
    tensor = SourceTensor(0, "w", "INT8", 8, (8,), read=lambda: np.full(8, 32, np.int8))
    assert encoded_bytes(tensor, ((56, 1),)) == ENCODER_BYTES + math.ceil((8 + 8 + 7 * 3 + 17) / 8)


@pytest.mark.parametrize(("spread", "coded"), [(5, 304), (14, 432), (25, 496)])
def test_weights_take_as_many_bytes_as_velas_encoder_makes_of_them(spread: float, coded: int) -> None:
    # ethosu.mlw_codec.encode of ethos-u-vela 5.2.0, of the same 512 numbers.
    drawn = np.random.default_rng(1).normal(0, spread, 512)
    tensor = SourceTensor(0, "w", "INT8", 8, (512,), read=lambda: np.clip(drawn, -127, 127).astype(np.int8))
    assert abs(encoded_bytes(tensor) - coded) <= 16


@pytest.mark.parametrize("configuration", ["ethos-u55-128", "ethos-u65-256"])
def test_published_networks_are_near_velas_cycles_and_memory(shared: Path, configuration: str) -> None:
    oracle = json.loads(gzip.decompress((shared / "reference" / "devices" / "vela-open.json.gz").read_bytes()))
    device, cycles, memories = profile(configuration), [], []
    assert device.cost is not None
    for file, configurations in oracle["files"].items():
        summary = configurations[f"{configuration}/regor"].get("summary") or {}
        if not summary.get("total_cycles"):
            continue
        graph = ModelFile(shared / file).source_graph
        parts = [partition_estimate(graph, group, device.cost) for group in groups(graph, accepted(device, shared / file))]
        cycles.append(abs(sum(o.cycles for p in parts for o in p.operators) / summary["total_cycles"] - 1))
        memories.append(abs(arena_bytes(graph, parts, device.cost) / summary["memory_peak"]["Sram"] - 1))
    assert median(cycles) <= 0.02
    assert sorted(cycles)[-3] <= 0.12
    assert median(memories) <= 0.01
    assert sorted(memories)[-3] <= 0.02


def test_nothing_is_estimated_without_numbers(tmp_path: Path) -> None:
    graph = ModelFile(chain(tmp_path, "RELU")).source_graph
    with pytest.raises(InputError, match="no timing is known"):
        estimate(graph, {0}, "edgetpu", profile("edgetpu").cost, "pixel3-4-threads")
    with pytest.raises(InputError, match="a CPU whose rates are known"):
        estimate(graph, {0}, "ethos-u55-128", profile("ethos-u55-128").cost, "unknown")


def test_a_call_that_costs_more_than_it_saves_does_not_pay(tmp_path: Path) -> None:
    graph = ModelFile(chain(tmp_path, "RELU")).source_graph
    found = estimate(graph, {0}, "hexagon", profile("hexagon").cost, "pixel3-4-threads")
    assert found.best.cut.options == ()
    assert found.us > 1800 > found.cpu_us


def test_groups_are_as_few_as_dependences_allow(tmp_path: Path) -> None:
    graph = ModelFile(chain(tmp_path, "RELU", "TANH", "SIN", "RELU")).source_graph
    assert [group.operators for group in groups(graph, {0, 1, 3})] == [(0, 1), (3,)]


def test_latencies_give_their_own_rates_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(REPOSITORY / "scripts" / "profiles"))
    from calibrate_latency import Measured, calibrate

    macs, moved = [10**6, 10**8, 10**7], [10**5, 10**6, 10**6]
    each = sum(max(m / 1e11, b / 2e9) for m, b in zip(macs, moved, strict=True))
    made = [Measured(str(k), [k * m for m in macs], [k * b for b in moved], 1 + 1e3 * k * each) for k in range(1, 9)]
    found = calibrate(made)
    assert found.call_us == pytest.approx(1000, rel=0.1)
    assert found.worst_error < 0.1
    with pytest.raises(InputError, match="at least 5 networks"):
        calibrate(made[:4])


def exhaustive(options: list[CutOption], limit: int | None) -> Cut:
    """The best of all choices, by trying them."""
    best = Cut(())
    for count in range(1, len(options) + 1):
        for chosen in combinations(options, count):
            if len({o.group for o in chosen}) == count and (limit is None or memory(chosen) <= limit):
                best = max(best, Cut(chosen), key=lambda cut: (cut.gain_us, -len(cut.options)))
    return best


OPTIONS = st.lists(st.tuples(st.integers(-50, 50), st.integers(0, 40), st.integers(0, 40)), max_size=10)


@given(OPTIONS, st.one_of(st.none(), st.integers(0, 150)), st.booleans())
def test_the_best_cut_is_the_best_of_all(drawn: list[tuple[int, int, int]], limit: int | None, paired: bool) -> None:
    options = [CutOption(n // 2 if paired else n, (n,), g, w + p, p) for n, (g, w, p) in enumerate(drawn)]
    found, best = best_cut(options, limit), exhaustive(options, limit)
    assert math.isclose(found.gain_us, best.gain_us)
    assert limit is None or memory(found.options) <= limit


def test_the_largest_groups_need_not_be_the_best() -> None:
    options = [CutOption(0, (0, 1, 2), -5.0, 10), CutOption(1, (3, 4), 7.0, 10)]
    assert largest(options, 1).gain_us == -5
    assert best_cut(options).gain_us == 7


def test_devices_without_a_cost_model_are_listed_with_the_others() -> None:
    assert {d.name for d in devices.shipped_at_source() if d.cost is None} >= {"edgetpu", "xnnpack", "ethos-u85-256"}
