"""The numbers of a cost model, as a device's data sheet states them (docs/estimates.md has the formulas)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from nnbridge.records import dataclass


@dataclass(frozen=True)
class Band:
    """Factors actual / estimated between which 90 % of the held-out residuals lie, and where they were measured."""

    network: float
    """The network's: its time is within a factor of this, both ways."""
    networks: int
    """Held-out networks; 90 % needs nine at least."""
    oracle: str
    """What the estimates were compared with. The band is of this, not of a chip."""
    kinds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """By kind, the 5 and 95 % quantiles; a kind that is not listed has too few, and a factor of 3 each way."""

    UNKNOWN = (1 / 3, 3.0)

    def of(self, kind: str) -> tuple[float, float]:
        """The band of one kind of operator."""
        return self.kinds.get(kind, self.UNKNOWN)


@dataclass(frozen=True)
class PartitionCost:
    """The cost of each execution of a partition beside its operators."""

    call_us: float = 0.0
    copy_gbps: float = 0.0
    """Bytes of inputs and outputs per nanosecond; 0: nothing is copied."""


@dataclass(frozen=True)
class ArrayNumbers:
    """An array of multipliers that walks over its output in granules. Cycles and bytes per cycle."""

    clock_mhz: float
    granule: tuple[int, int, int]
    """Rows, columns and channels of the output of one step."""
    step_cycles: float
    """Cycles of one granule and step."""
    depth: int
    """Bytes of input channels in one step."""
    kernel_step: tuple[int, int]
    """Or: kernel elements and input channels in one step; kernel elements of a depthwise convolution."""
    weight_floor: float
    """Least cycles of a column of granules and a step: what the weight decoder needs."""
    elementwise: Mapping[str, float] = field(hash=False)
    """Cycles per element: ``add``, ``mul``, ``other``, ``pool``, ``table``, and all passes of ``softmax``."""
    bandwidth: Mapping[str, float] = field(hash=False)
    """Bytes per cycle: ``maps`` and ``weights``."""
    latency: float
    """Cycles before the first byte of a block's input arrives and after its last one leaves, together."""
    weight_latency: float
    """Cycles before the first byte of weights arrives."""
    burst: int
    """Bytes of a transfer of maps; shorter ones take as long."""
    weight_burst: int
    """Bytes of a transfer from the weights' memory."""
    banks: int
    """Of the array's own memory, 1,024 bytes each."""
    bank_granules: tuple[int, int, int, int]
    """Banks are allotted in these numbers: for inputs, 32-bit inputs, 32-bit and 40-bit accumulators."""
    stalls: tuple[int, int]
    """Cycles of a step of one granule that waits for the one before: 32-bit and 40-bit accumulators."""
    pool_step_cycles: float = 0.0
    """Cycles of one granule and element of a pool; 0: ``step_cycles`` for each byte."""
    channel_multiple: int = 1
    """Maps between operators of one partition are stored with channels in multiples of this."""
    cores: int = 1
    compressed_weights: bool = False
    """Weights are stored in a Rice code."""
    scale_bytes: int = 0
    """Bytes of bias and scale for each output channel, stored with the weights."""
    passes: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Steps of composed operators, each at the cost of one ``latency``: ``softmax``, ``lstm``."""
    on_chip: int = 0
    """Bytes of memory for maps; 0: not stated."""


@dataclass(frozen=True)
class RateNumbers:
    """The small form: multiply-adds and bytes per second, fitted to published latencies."""

    macs_per_second: float
    bytes_per_second: float


@dataclass(frozen=True)
class Cost:
    """A profile's cost model. Without an array and without rates, estimates are refused."""

    source: str
    array: ArrayNumbers | None = None
    rates: RateNumbers | None = None
    partition: PartitionCost = PartitionCost()
    band: Band | None = None
