"""Estimates: cycles beside Vela's, memory, the best cut beside all choices, refusals where nothing is known."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnbridge import devices
from nnbridge.devices.source_profiles import SourceProfile
from nnbridge.errors import InputError
from nnbridge.estimate.calibration import Measured, calibrate
from nnbridge.estimate.cut import Option, best_cut, exhaustive, largest, memory
from nnbridge.estimate.cycles import operation_cycles
from nnbridge.estimate.network import partition_estimate
from nnbridge.estimate.numbers import ArrayNumbers
from nnbridge.estimate.partitions import groups
from nnbridge.estimate.plans import estimate
from nnbridge.estimate.work import Work
from nnbridge.loading import source_graph
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
    assert 4800 < operation_cycles(work, numbers()) < 6000
    # Vela 5.2.0: 5,944, of kws_ref_model's operator 2.
    assert operation_cycles(work, numbers()) == pytest.approx(5944, rel=0.02)


def test_an_addition_takes_cycles_per_stored_element() -> None:
    work = Work("elementwise", (1, 80, 60, 24), 1, (1, 1), 1, form="add")
    assert operation_cycles(work, numbers()) == 80 * 60 * 32 * 1.5  # Vela 5.2.0: 230,400


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
    assert median(cycles) <= 0.035
    assert sorted(cycles)[-2] <= 0.13
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
