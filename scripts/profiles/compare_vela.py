"""Put TFLite operators and networks to Arm's Vela and to nnbridge's Ethos-U profiles: places, cycles and memory side by side.

VELA is the command of the package `ethos-u-vela`, which whoever runs this installs in an environment of its own. Exit
status 1 if an operator is placed otherwise.

Examples:
  python scripts/profiles/compare_vela.py VELA --device ethos-u55-128 --operators 2000
  python scripts/profiles/compare_vela.py VELA --device ethos-u85-256 --operators 3000 --kinds comparison,logical,select
  python scripts/profiles/compare_vela.py VELA --device ethos-u65-256 --networks 30 --seed 200
  python scripts/profiles/compare_vela.py VELA --device ethos-u55-128 --files FOLDER/*.tflite
"""

from __future__ import annotations

import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import argument_parser, one_line_errors

with one_line_errors():
    from vela.oracle import Oracle, run
    from vela.random_operators import DRAWS, OTHERS, operators
    from vela.random_quantised import network

    from nnbridge import devices
    from nnbridge.devices.source_profiles import SourceProfile
    from nnbridge.estimate.network import PartitionEstimate, arena_bytes, partition_estimate
    from nnbridge.estimate.partitions import groups
    from nnbridge.file import ModelFile

PER_FILE = 8
"""Operators of a file: one that breaks TFLite's own rules refuses the whole file."""
BATCH = 64
"""Files that are written at once."""


def networks(count: int, seed: int, folder: Path) -> Iterator[Path]:
    """Files of random networks."""
    return (network(number).write(folder / f"network{number}.tflite") for number in range(seed, seed + count))


def one_by_one(device: SourceProfile, kinds: Sequence[str], count: int, seed: int, vela: Path, folder: Path) -> Counter[str]:
    """Random operators: several to a file, and each of a file that Vela refuses or fails on in a file of its own."""
    found: Counter[str] = Counter()
    waiting = [range(first, min(first + PER_FILE, seed + count)) for first in range(seed, seed + count, PER_FILE)]
    while waiting:
        batch, waiting = waiting[:BATCH], waiting[BATCH:]
        files = [_written(seeds, kinds, folder) for seeds in batch]
        for seeds, path, oracle in zip(batch, files, run(vela, files, device.name, folder), strict=True):
            if oracle.error and len(seeds) > 1:
                waiting += [range(each, each + 1) for each in seeds]
            else:
                found += placed(path, device, oracle)
            path.unlink()
    return found


def _written(seeds: range, kinds: Sequence[str], folder: Path) -> Path:
    file, inputs, outputs = operators(seeds, kinds)
    return file.write(folder / f"operators{seeds[0]}.tflite", inputs, outputs)


def placed(path: Path, device: SourceProfile, oracle: Oracle) -> Counter[str]:
    """Agreements and disagreements of one file, each of which is printed; a file on which Vela crashed is counted apart."""
    claims = device.claims(ModelFile(path).source_graph)
    if oracle.crashed:
        certain = [claim for claim in claims if claim.accepted and not claim.uncertain]
        for claim in certain:
            print(f"{path.name} {claim.operator.label}: Vela ends by a signal, here NPU without a doubt")
        return Counter({"Vela crashes": len(claims), "of these not marked": len(certain)})
    found: Counter[str] = Counter()
    for claim in claims:
        on_cpu = bool(oracle.error) or claim.operator.index in oracle.on_cpu
        found["agree" if on_cpu != claim.accepted else "differ"] += 1
        if on_cpu == claim.accepted:
            answer = oracle.error.strip()[-300:] or ("CPU" if on_cpu else "NPU")
            print(f"{path.name} {claim.operator.label}: Vela {answer}, here {claim.reason or 'NPU'}")
    return found


def estimates(path: Path, device: SourceProfile) -> tuple[list[PartitionEstimate], int]:
    """The partitions of a file, and the bytes of all its values."""
    graph = ModelFile(path).source_graph
    accepted = frozenset(claim.operator.index for claim in device.claims(graph) if claim.accepted)
    assert device.cost is not None
    found = [partition_estimate(graph, group, device.cost) for group in groups(graph, accepted)]
    return found, arena_bytes(graph, found, device.cost)


def quantile(values: Sequence[float], share: float) -> float:
    """An order statistic."""
    return sorted(values)[min(len(values) - 1, math.ceil(share * len(values)) - 1)]


def errors(pairs: Sequence[tuple[Path, Oracle]], device: SourceProfile) -> None:
    """Prints each network, then medians and 90 %, and by kind the factors between which 90 % of the operators lie."""
    cycles, memory, kinds = [], [], defaultdict(list)
    for path, oracle in pairs:
        found, peak = estimates(path, device)
        total = sum(o.cycles for partition in found for o in partition.operators)
        if not oracle.total_cycles or not total:
            continue
        cycles.append(total / oracle.total_cycles - 1)
        memory.append(peak / oracle.sram_bytes - 1)
        print(f"{path.name}: {total:,.0f} cycles ({cycles[-1]:+.1%}), {peak:,} bytes ({memory[-1]:+.1%})")
        for each in (o for partition in found for o in partition.operators):
            if each.cycles and oracle.cycles.get(each.index):
                kinds[each.kind].append(oracle.cycles[each.index] / each.cycles)
    for what, found_errors in (("cycles", cycles), ("memory", memory)):
        sizes = [abs(error) for error in found_errors]
        print(f"{what}: {len(sizes)} networks, median {quantile(sizes, 0.5):.1%}, 90 % {quantile(sizes, 0.9):.1%}")
    place = min(len(cycles), math.ceil(0.9 * (len(cycles) + 1)))
    print(f"band: a factor of {math.exp(sorted(abs(math.log1p(e)) for e in cycles)[place - 1]):.2f} for 90 % of networks")
    for kind, factors in sorted(kinds.items()):
        if len(factors) >= 20:
            print(f"{kind} = [{quantile(factors, 0.05):.2f}, {quantile(factors, 0.95):.2f}]  # {len(factors)} operators")


def main() -> int:
    """Exit status 1 for an operator that is placed otherwise."""
    parser = argument_parser()
    parser.add_argument("vela", type=Path, metavar="VELA")
    parser.add_argument("--device", default="ethos-u55-128")
    parser.add_argument("--operators", type=int, default=0, metavar="N", help="random operators")
    parser.add_argument(
        "--kinds", default=",".join(DRAWS), metavar="NAMES", help=f"of operators; also {', '.join(OTHERS)} (default: %(default)s)"
    )
    parser.add_argument("--networks", type=int, default=0, metavar="N", help="random networks")
    parser.add_argument("--files", type=Path, nargs="*", default=[])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    kinds = options.kinds.split(",")
    if unknown := [kind for kind in kinds if kind not in {**DRAWS, **OTHERS}]:
        parser.error(f"--kinds: expected {', '.join((*DRAWS, *OTHERS))}, found {', '.join(unknown)}")
    device = devices.device(options.device)
    assert isinstance(device, SourceProfile)
    with TemporaryDirectory() as folder:
        vela, out = options.vela.resolve(), Path(folder)
        counts = one_by_one(device, kinds, options.operators, options.seed, vela, out)
        files = [*networks(options.networks, options.seed, out), *options.files]
        pairs = list(zip(files, run(vela, files, options.device, out), strict=True))
        for path, oracle in pairs:
            counts += placed(path, device, oracle)
        print(f"operators: {', '.join(f'{count} {what}' for what, count in counts.items())}")
        if pairs and device.cost is not None:
            errors([(path, oracle) for path, oracle in pairs if not oracle.error], device)
    return 1 if counts["differ"] else 0


if __name__ == "__main__":
    with one_line_errors():
        sys.exit(main())
