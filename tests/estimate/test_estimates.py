"""Estimates: cycles beside Vela's, memory, the best cut beside all choices, refusals where nothing is known."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnbridge import devices
from nnbridge.devices.source_profiles import SourceProfile
from nnbridge.errors import InputError
from nnbridge.estimate.blocks import Pass, Plane, block, pass_cost
from nnbridge.estimate.calibration import Measured, calibrate
from nnbridge.estimate.cut import Option, best_cut, exhaustive, largest, memory
from nnbridge.estimate.cycles import operation_cycles
from nnbridge.estimate.network import partition_estimate
from nnbridge.estimate.numbers import ArrayNumbers
from nnbridge.estimate.partitions import groups
from nnbridge.estimate.plans import estimate
from nnbridge.estimate.work import Work, encoded_bytes
from nnbridge.loading import source_graph
from nnbridge.source import SourceTensor
from tests.devices.test_source_profiles import chain, profile


def numbers(name: str = "ethos-u55-128") -> ArrayNumbers:
    cost = profile(name).cost
    assert cost is not None
    assert cost.array is not None
    return cost.array


def accepted(device: SourceProfile, path: Path) -> frozenset[int]:
    return frozenset(claim.operator.index for claim in device.claims(source_graph(path)) if claim.accepted)


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
    work = Work("conv", (1, 48, 48, 16), 96, (3, 3), 1, ((1, 48, 48, 96),), weight_bytes=1536, encoded_bytes=1536)
    waited, hidden = (operation_cycles(work, numbers(), slack=slack).cycles for slack in (0.0, 1e6))
    # 1,536 bytes of weights and 160 of biases and scales at a byte per cycle, 64 cycles until the first.
    assert waited - hidden == 1536 + 160 + 64


def test_a_rice_code_takes_the_parameter_that_needs_least() -> None:
    # Symbols 1 0 2 6: 2 + 1 + 3 + 7 bits with a parameter of 0, 2 + 2 + 3 + 5 with 1, 3 + 3 + 3 + 4 with 2.
    tensor = SourceTensor(0, "w", "INT8", 8, (4,), read=lambda: np.array([-1, 0, 1, 3], np.int8))
    assert encoded_bytes(tensor) == 2


@pytest.mark.parametrize("configuration", ["ethos-u55-128", "ethos-u65-256"])
def test_published_networks_are_near_velas_cycles_and_memory(shared: Path, configuration: str) -> None:
    oracle = json.loads(gzip.decompress((shared / "reference" / "devices" / "vela-open.json.gz").read_bytes()))
    device, cycles, peaks = profile(configuration), [], []
    assert device.cost is not None
    for file, configurations in oracle["files"].items():
        summary = configurations[f"{configuration}/regor"].get("summary") or {}
        if not summary.get("total_cycles"):
            continue
        graph = source_graph(shared / file)
        parts = [partition_estimate(graph, group, device.cost) for group in groups(graph, accepted(device, shared / file))]
        cycles.append(abs(sum(o.cycles for p in parts for o in p.operators) / summary["total_cycles"] - 1))
        peaks.append(abs(max(p.peak_bytes for p in parts) / summary["memory_peak"]["Sram"] - 1))
    assert median(cycles) <= 0.02
    assert sorted(cycles)[-3] <= 0.12
    assert median(peaks) <= 0.02


def test_nothing_is_estimated_without_numbers(tmp_path: Path) -> None:
    graph = source_graph(chain(tmp_path, "RELU"))
    with pytest.raises(InputError, match="nothing is estimated without"):
        estimate(graph, {0}, "edgetpu", profile("edgetpu").cost, "pixel3-4-threads")
    with pytest.raises(InputError, match="a CPU whose rates are known"):
        estimate(graph, {0}, "ethos-u55-128", profile("ethos-u55-128").cost, "unknown")


def test_a_call_that_costs_more_than_it_saves_does_not_pay(tmp_path: Path) -> None:
    graph = source_graph(chain(tmp_path, "RELU"))
    found = estimate(graph, {0}, "hexagon", profile("hexagon").cost, "pixel3-4-threads")
    assert found.best.cut.options == ()
    assert found.us > 1800 > found.cpu_us


def test_groups_are_as_few_as_dependences_allow(tmp_path: Path) -> None:
    graph = source_graph(chain(tmp_path, "RELU", "TANH", "SIN", "RELU"))
    assert [group.operators for group in groups(graph, {0, 1, 3})] == [(0, 1), (3,)]


def test_latencies_give_their_own_rates_back() -> None:
    macs, moved = [10**6, 10**8, 10**7], [10**5, 10**6, 10**6]
    each = sum(max(m / 1e11, b / 2e9) for m, b in zip(macs, moved, strict=True))
    made = [Measured(str(k), [k * m for m in macs], [k * b for b in moved], 1 + 1e3 * k * each) for k in range(1, 9)]
    found = calibrate(made)
    assert found.call_us == pytest.approx(1000, rel=0.1)
    assert found.worst_error < 0.1
    with pytest.raises(InputError, match="at least 5 networks"):
        calibrate(made[:4])


OPTIONS = st.lists(st.tuples(st.integers(-50, 50), st.integers(0, 40), st.integers(0, 40)), max_size=10)


@given(OPTIONS, st.one_of(st.none(), st.integers(0, 150)), st.booleans())
def test_the_best_cut_is_the_best_of_all(drawn: list[tuple[int, int, int]], limit: int | None, paired: bool) -> None:
    options = [Option(n // 2 if paired else n, (n,), g, w + p, p) for n, (g, w, p) in enumerate(drawn)]
    found, best = best_cut(options, limit), exhaustive(options, limit)
    assert math.isclose(found.gain_us, best.gain_us)
    assert limit is None or memory(found.options) <= limit


def test_the_largest_groups_need_not_be_the_best() -> None:
    options = [Option(0, (0, 1, 2), -5.0, 10), Option(1, (3, 4), 7.0, 10)]
    assert largest(options, 1).gain_us == -5
    assert best_cut(options).gain_us == 7


def test_devices_without_a_cost_model_are_listed_with_the_others() -> None:
    assert {d.name for d in devices.shipped_at_source() if d.cost is None} >= {"edgetpu", "xnnpack", "ethos-u85-256"}
