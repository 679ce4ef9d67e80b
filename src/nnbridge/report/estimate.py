"""Estimates as tables and JSON: each figure with its band and where it comes from."""

from __future__ import annotations

from typing import Any

from nnbridge.devices.source_profiles import BoundDevice
from nnbridge.estimate import ESTIMATE_CPU
from nnbridge.estimate.cut import Cut
from nnbridge.estimate.network import OperatorEstimate, PartitionEstimate
from nnbridge.estimate.numbers import Band, Cost
from nnbridge.estimate.plans import Choice, Estimate, estimate
from nnbridge.report.terminal import Table, counted

LEAST_FOR_A_BAND = 9
"""Held-out networks without which no band of 90 % can be stated."""
NOT_THE_CHIP = "of the estimates or measurements that it was fitted to, not a measurement of your chip"


def estimate_on(device: BoundDevice, cpu: str = ESTIMATE_CPU, memory: int | None = None) -> Estimate:
    """The estimate of a device's file; InputError where the device has no cost model."""
    accepted = {claim.operator.index for claim in device.claims if claim.accepted}
    return estimate(device.graph, accepted, device.name, device.profile.cost, cpu, memory)


def estimate_as_dict(found: Estimate) -> dict[str, Any]:
    """``cpu_us``: everything on the CPU; ``choices``: the CPU only, TFLite's rules, the best cut; ``partitions`` one by one;
    ``arena_bytes``: one memory for all values, those of the CPU included."""
    return {
        "device": found.device,
        "source": found.cost.source,
        "band": _band(found.cost.band),
        "cpu": {"name": found.cpu, "source": found.cpu_cost.source, "us": found.cpu_us, "band": _band(found.cpu_cost.band)},
        "call_us": found.cost.partition.call_us,
        "partitions": [_partition(n, each) for n, each in enumerate(found.partitions)],
        "device_us": sum(each.us for each in found.partitions),
        "device_cycles": sum(o.cycles for each in found.partitions for o in each.operators),
        "peak_bytes": max((each.peak_bytes for each in found.partitions), default=0),
        "arena_bytes": found.arena_bytes,
        "weight_bytes": sum(each.weight_bytes for each in found.partitions),
        "memory_limit": found.limit,
        "choices": [_choice(each, found.cpu_us) for each in found.choices],
        "pays": found.best.cut.gain_us > 0,
        "no_formula": list(found.unknown),
    }


def _band(band: Band | None) -> dict[str, Any] | None:
    if band is None:
        return None
    if band.networks < LEAST_FOR_A_BAND:
        return {"networks": band.networks, "oracle": band.oracle, "factor": None, "why": "not enough networks to state a band"}
    return {"factor": band.network, "share": 0.9, "networks": band.networks, "oracle": band.oracle, "of": NOT_THE_CHIP}


def _partition(number: int, partition: PartitionEstimate) -> dict[str, Any]:
    return {
        "partition": number,
        "us": partition.us,
        "call_us": partition.call_us,
        "copy_us": partition.copy_us,
        "peak_bytes": partition.peak_bytes,
        "weight_bytes": partition.weight_bytes,
        "operators": [_operator(each) for each in partition.operators],
    }


def _operator(found: OperatorEstimate) -> dict[str, Any]:
    entry: dict[str, Any] = {"index": found.index, "operator": found.operator}
    if not found.kind:
        return {**entry, "us": None, "note": found.note}
    low, high = found.band
    entry |= {"kind": found.kind, "us": found.us, "low_us": found.us * low, "high_us": found.us * high}
    entry |= {"cycles": found.cycles, "macs": found.macs}
    return {**entry, "note": found.note} if found.note else entry


def _choice(choice: Choice, cpu_us: float) -> dict[str, Any]:
    return {
        "choice": choice.name,
        "us": choice.us,
        "gain_us": choice.cut.gain_us,
        "speed_up": cpu_us / choice.us if choice.us > 0 else None,
        "bytes": choice.cut.bytes,
        "partitions": [{"partition": o.group, "operators": list(o.operators), "gain_us": o.gain_us} for o in choice.cut.options],
    }


def estimate_tables(found: Estimate, full: bool = False) -> list[Table | str]:
    """Partitions, choices, then in sentences the band and the sources; with ``full`` each operator."""
    rows = [
        (
            str(n),
            counted(len(each.operators), "operator"),
            _time(each.us),
            _range(each.us, found.cost.band),
            _bytes(each.peak_bytes),
            _bytes(each.weight_bytes),
        )
        for n, each in enumerate(found.partitions)
    ]
    title = f"Estimate on {found.device}"
    tables: list[Table | str] = [Table(title, ("partition", "", "time", "90 %", "peak memory", "weights"), rows)]
    if full:
        listed = [_row(n, each) for n, partition in enumerate(found.partitions) for each in partition.operators]
        tables.append(Table("Operators", ("partition", "operator", "type", "time", "cycles", "90 %"), listed))
    limit = "" if found.limit is None else f" within {_bytes(found.limit)}"
    choices = [
        (each.name, _time(each.us), _signed(each.cut.gain_us), _bytes(each.cut.bytes), _of(each.cut)) for each in found.choices
    ]
    tables.append(Table(f"Choices{limit}", ("choice", "whole file", "gain", "memory", "partitions"), choices))
    return [*tables, *_sentences(found)]


def estimate_for_page(found: Estimate) -> dict[str, Any]:
    """Partitions and choices as :func:`estimate_tables` shows them, as JSON without operators."""
    data = estimate_as_dict(found)
    factor = (data["band"] or {}).get("factor")
    partitions = [
        {"operators": len(each["operators"]), **{key: each[key] for key in ("us", "peak_bytes", "weight_bytes")}}
        for each in data["partitions"]
    ]
    choices = [{**each, "partitions": len(each["partitions"])} for each in data["choices"]]
    kept = {key: data[key] for key in ("device", "cpu", "arena_bytes", "pays")}
    return {**kept, "factor": factor, "partitions": partitions, "choices": choices, "sentences": _sentences(found)}


def _sentences(found: Estimate) -> list[str]:
    pays = found.best.cut.gain_us > 0
    said = [
        f"Worth it: {_time(found.cpu_us - found.best.cut.gain_us)} with the best cut, {_time(found.cpu_us)} on the CPU only."
        if pays
        else "Delegation is not worth it: the CPU is fastest."
    ]
    said.append(f"All values in one memory, those of the CPU included: {_bytes(found.arena_bytes)}.")
    if found.unknown:
        said.append(f"No formula is known for {', '.join(found.unknown)}: their time is not included.")
    for name, cost in ((found.device, found.cost), (found.cpu, found.cpu_cost)):
        said.append(f"{name}: {_band_sentence(cost)} Source: {cost.source}.")
    if found.cost.partition.call_us == 0:
        said.append("The call of a partition is not known and counts as 0; measured ones are 0.1 to 0.4 ms (docs/estimates.md).")
    return said


def _band_sentence(cost: Cost) -> str:
    band = _band(cost.band)
    if band is None:
        return "no error is known."
    if band["factor"] is None:
        return f"{band['networks']} networks are not enough to state a band."
    measured = f"{band['networks']} held out; {band['oracle']}; {NOT_THE_CHIP}"
    return f"within a factor of {band['factor']:g} for 90 % of networks ({measured})."


def _row(number: int, found: OperatorEstimate) -> tuple[str, ...]:
    if not found.kind:
        return str(number), str(found.index), found.operator, "-", "-", found.note
    low, high = found.band
    within = found.note or f"{_time(found.us * low)} to {_time(found.us * high)}"
    return str(number), str(found.index), found.operator, _time(found.us), f"{found.cycles:,.0f}" if found.cycles else "-", within


def _of(cut: Cut) -> str:
    return ", ".join(f"{o.group} ({counted(len(o.operators), 'operator')})" for o in cut.options[:6]) + (
        f" and {len(cut.options) - 6} more" if len(cut.options) > 6 else ""
    )


def _range(us: float, band: Band | None) -> str:
    known = _band(band)
    if known is None or known["factor"] is None:
        return "-"
    return f"{_time(us / known['factor'])} to {_time(us * known['factor'])}"


def _signed(us: float) -> str:
    return f"-{_time(-us)}" if us < 0 else _time(us)


def _time(us: float) -> str:
    """Milliseconds, whatever the size: the values of a table can be compared."""
    return f"{us / 1e3:,.2f} ms" if abs(us) >= 100 else f"{us / 1e3:.4f} ms"


def _bytes(count: int) -> str:
    return f"{count / 2**20:.2f} MiB" if count >= 2**20 else f"{count / 2**10:.1f} KiB"
