"""Time models on nnbridge's tiers beside LiteRT's kernels or ONNX Runtime, all taking turns in one run.

    python scripts/benchmarks/benchmark.py mobilenet_v2_1.0_224_quant.tflite --rounds 15
    python scripts/benchmarks/benchmark.py FOLDER --threads 2 --write docs/performance.md

Of a folder every TFLite and ONNX file below it is measured; what a file's own runtime does not run is left out, with the reason.
Of dimensions that a file leaves open the first of an input is 1, others the first of ``SIDES`` that its runtime runs.
Prints medians in milliseconds, ratios with their geometric means by group, and conversion with preparation beside the peers' own.
Below stands what takes the time where the compiled tier is not as fast as is asked of it.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import argument_parser, milliseconds, one_line_errors

from nnbridge import Compilation, InputError, Reason, load
from nnbridge.bench.contenders import LITERT, ONNXRUNTIME, runs
from nnbridge.bench.contenders import OURS as TIERS
from nnbridge.bench.measure import Bench, first_answers, measure
from nnbridge.bench.profiling import OperationTime, profile
from nnbridge.compare import seeded_inputs
from nnbridge.compare.samples import named_inputs
from nnbridge.converters import ConversionOptions
from nnbridge.cpu import compiled
from nnbridge.model import Array, Model, known
from nnbridge.platforms import available_cores
from nnbridge.report.bench import by_operation
from nnbridge.report.doctor import installed_version
from nnbridge.report.terminal import Table, show
from nnbridge.storage.atomic import atomic_write
from nnbridge.types import TYPE_FACTS, OperandCode

with one_line_errors():
    import threadpoolctl  # noqa: F401 - without it NumPy's BLAS computes on as many threads as it likes

OURS, PLAIN = "nnbridge compiled", "LiteRT plain"
XNNPACK = next(iter(LITERT))
MEBIBYTE = 2**20
_BYTES = (OperandCode.TENSOR_QUANT8_ASYMM, OperandCode.TENSOR_QUANT8_ASYMM_SIGNED)


@dataclass(frozen=True)
class Measured:
    """One file's figures."""

    name: str
    quantised: bool
    bench: Bench
    preparing: float
    """Milliseconds of conversion and preparation."""
    loading: float
    """Milliseconds until LiteRT's interpreter, or ONNX Runtime's session, is ready."""

    least: bool = False
    """Compare least times in place of medians."""

    def time(self, contender: str, threads: int) -> float | None:
        """A contender's milliseconds."""
        return self.bench.time(contender, threads, self.least)

    @property
    def peer(self) -> str:
        """The runtime that the compiled tier is compared with."""
        return _peer_of(Path(self.name))

    def ratio(self, threads: int, ours: str = OURS, peer: str = "") -> float | None:
        """Our median by a peer's."""
        mine, theirs = self.time(ours, threads), self.time(peer or self.peer, threads)
        return None if mine is None or theirs is None else mine / theirs


@dataclass(frozen=True)
class Group:
    """Files of one kind, and what is required of them."""

    name: str
    contains: Callable[[Measured], bool]
    limit: float
    ours: str = OURS
    peer: str = ""


def _peer_time(file: Measured) -> float:
    return file.time(file.peer, 1) or 0.0


def _long(file: Measured) -> bool:
    return file.peer == XNNPACK and _peer_time(file) > 1


GROUPS = (
    Group("quantised TFLite above 1 ms, by XNNPACK", lambda f: _long(f) and f.quantised, 0.6),
    Group("float TFLite above 1 ms, by XNNPACK", lambda f: _long(f) and not f.quantised, 0.95),
    Group("TFLite below 1 ms, by XNNPACK", lambda f: f.peer == XNNPACK and not _long(f), 1.5),
    Group("ONNX, by ONNX Runtime", lambda f: f.peer == ONNXRUNTIME, 0.8),
    Group("reference tier above 1 ms, by LiteRT's plain kernels", _long, 2.0, "nnbridge reference", PLAIN),
)
"""Files above 1 ms are those that take XNNPACK longer on one thread."""


def main() -> None:
    """Measure and print."""
    parser = argument_parser()
    parser.add_argument("paths", nargs="+", type=Path, metavar="MODEL|FOLDER")
    parser.add_argument("--threads", type=int, default=1, help="measure on so many threads as well as on one (default 1)")
    parser.add_argument("--rounds", type=int, default=50, help="runs of each contender at most (default 50)")
    parser.add_argument("--seconds", type=float, default=8.0, help="time for a file's runs at a number of threads (default 8)")
    parser.add_argument("--least", action="store_true", help="compare least times, as is right on a busy machine, not medians")
    parser.add_argument("--first", action="store_true", help="measure fresh processes as well: first result and memory")
    parser.add_argument("--quick", action="store_true", help="only the compiled tier beside XNNPACK or ONNX Runtime")
    parser.add_argument("--write", type=Path, metavar="FILE.md", help="write the tables as a page, dated and with the machine")
    options = parser.parse_args()
    console, notes = Console(), Console(stderr=True)
    files, left = [], []
    for path in _files(options.paths):
        notes.print(path.name)
        try:
            files.append(_measured(path, options))
        except Exception as error:
            if path in options.paths:
                raise
            left.append(f"{path.name}: {str(error).replace(str(path), '').strip()}".splitlines()[0])
    blocks = list(_blocks(files, left, sorted({1, options.threads})))
    show(blocks, console)
    if options.write is not None:
        with atomic_write(options.write) as file:
            file.write(_page(blocks).encode())


def _files(paths: Sequence[Path]) -> list[Path]:
    found = []
    for path in paths:
        inside = sorted(p for p in path.rglob("*") if p.suffix in (".tflite", ".onnx")) if path.is_dir() else [path]
        if not inside:
            raise InputError(Reason("TFLite or ONNX files", "none", operand=str(path)))
        found += inside
    return found


def _measured(path: Path, options: argparse.Namespace) -> Measured:
    # Dimensions that a file leaves open are those of the inputs, as a phone's runtimes have them.
    shapes, inputs = _sized(path, load(path))
    conversion = ConversionOptions(shapes=shapes)
    model = load(path, conversion)

    def prepare() -> None:
        Compilation.create(load(path, conversion), [], kernels="compiled", threads=1).finish()

    prepare()  # the cache of kernels is filled
    typical = min if options.least else statistics.median
    preparing = typical([milliseconds(prepare) for _ in range(5)])
    loading = typical([milliseconds(lambda: _load_peer(path)) for _ in range(5)])
    counts, tiers = sorted({1, options.threads}), ("compiled",) if options.quick else TIERS
    found = measure(path, model, inputs, counts, options.rounds, options.seconds, tiers, options.quick)
    first = first_answers(path) if options.first else {}
    alone = Compilation.create(model, [], threads=1)
    alone.finish()
    found = Bench(found.latencies, found.missing, profile(alone, inputs), first)
    return Measured(path.name, _quantised(model), found, preparing, loading, options.least)


SIDES = (224, 512, 16, 1)
"""Open sizes in the order in which they are tried: of an image, of sound, of a short text; of what takes one element only."""


def _sized(path: Path, model: Model) -> tuple[dict[str, tuple[int, ...]], dict[str, Array]]:
    """Shapes of the inputs that leave dimensions open, and inputs that the file's runtime runs.

    The last ones that were tried if it runs none. Inputs of known dimensions, a scalar for instance, may have another rank in the
    file: they have no shape here.
    """
    peer, found = _peer_of(path), list(_sizes(model))
    for shapes in found:
        inputs = seeded_inputs(load(path, ConversionOptions(shapes=shapes)) if shapes else model, 0)
        if len(found) == 1 or runs(path, inputs, peer):
            break
    return shapes, inputs


def _sizes(model: Model) -> Iterator[dict[str, tuple[int, ...]]]:
    """Sizes of all open dimensions; the first of an input, its batch, is 1, and so are the other inputs' in every second one."""
    named = {name: operand.dims for name, operand in named_inputs(model).items() if not known(operand.dims)}
    seen = []
    for side in SIDES if named else (1,):
        for few in (False, True):
            sizes = {}
            for number, (name, dims) in enumerate(named.items()):
                inner = 1 if few and number else side
                sizes[name] = tuple(d or (inner if k else 1) for k, d in enumerate(dims))
            if sizes not in seen:
                seen.append(sizes)
                yield sizes


def _peer_of(path: Path) -> str:
    """The runtime that the compiled tier is compared with."""
    return ONNXRUNTIME if path.suffix == ".onnx" else XNNPACK


def _load_peer(path: Path) -> None:
    """The loading work of the file's own runtime, before it can run the model."""
    if path.suffix == ".tflite":
        from ai_edge_litert.interpreter import Interpreter

        Interpreter(str(path)).allocate_tensors()
    else:
        from onnxruntime import InferenceSession

        InferenceSession(str(path), providers=["CPUExecutionProvider"])


def _quantised(model: Model) -> bool:
    """True if most of what is computed on the way are bytes."""
    main = model.main
    values = [main.operands[i] for operation in main.operations for i in operation.outputs]
    tensors = [operand.type for operand in values if operand.type in TYPE_FACTS and operand.is_tensor]
    return 2 * sum(code in _BYTES for code in tensors) > len(tensors)


# -- tables --------------------------------------------------------------------------------------------------------------


def _blocks(files: Sequence[Measured], left: Sequence[str], threads: Sequence[int]) -> Iterator[Table | str]:
    for count in threads:
        yield _latencies(files, count)
    yield _means(files, threads)
    yield from _preparation(files)
    slow = [row for file in files if (row := _slow(file))]
    if slow:
        columns = ("file", "ratio", "asked", "where the time goes, one thread")
        yield Table("Files above what is asked of their group", columns, slow)
    for line in left:
        yield f"not measured: {line}"
    for file in files:
        for name, why in file.bench.missing.items():
            yield f"{file.name}: {name} does not run it: {why}"


def _latencies(files: Sequence[Measured], threads: int) -> Table:
    contenders = (OURS, "nnbridge reference", *LITERT, ONNXRUNTIME)
    columns = ("file", "kind", *contenders, "ratio")
    rows = []
    for file in files:
        times = [f"{m:.4g}" if (m := file.time(name, threads)) is not None else "-" for name in contenders]
        ratio = file.ratio(threads)
        rows.append((file.name, "8-bit" if file.quantised else "float", *times, "-" if ratio is None else f"{ratio:.2f}"))
    times = "Least times" if any(file.least for file in files) else "Medians"
    title = f"{times} in ms on {threads} thread{'s' * (threads > 1)}; ratio: compiled by XNNPACK or ONNX Runtime"
    return Table(title, columns, rows)


def _means(files: Sequence[Measured], threads: Sequence[int]) -> Table:
    rows = []
    for group in GROUPS:
        inside = [file for file in files if group.contains(file)]
        means = []
        for count in threads:
            found = [ratio for file in inside if (ratio := file.ratio(count, group.ours, group.peer)) is not None]
            means += [f"{statistics.geometric_mean(found):.2f}", f"{max(found):.2f}"] if found else ["-", "-"]
        rows.append((group.name, str(len(inside)), *means, f"{group.limit:g}"))
    heads = [f"{what}, {count} thread{'s' * (count > 1)}" for count in threads for what in ("mean", "largest")]
    return Table("Geometric means of ratios", ("group", "files", *heads, "asked"), rows)


def _preparation(files: Sequence[Measured]) -> Iterator[Table]:
    rows = []
    for file in files:
        limit = 3 * file.loading + 30
        rows.append((file.name, f"{file.preparing:.1f}", f"{file.loading:.1f}", f"{limit:.0f}"))
    if rows:
        columns = ("file", "convert and prepare ms", "LiteRT or ONNX Runtime loads ms", "asked: 3 x + 30")
        yield Table("Preparation, kernels in the cache", columns, rows)
    rows = []
    for file in files:
        for name, parts in file.bench.first.items():
            peak, imports = parts.get("peak_bytes"), parts.get("imports_bytes")
            memory = (
                ("-", "-")
                if peak is None or imports is None
                else (f"{peak / MEBIBYTE:.0f}", f"{(peak - imports) / MEBIBYTE:.0f}")
            )
            rows.append((file.name, name, f"{parts['total']:.0f}", *memory))
    if rows:
        columns = ("file", "process", "first result ms", "peak MiB", "without imports")
        yield Table("First answers of fresh processes", columns, rows)


def _slow(file: Measured) -> tuple[str, str, str, str] | None:
    """A row for a file that is slower than its group's limit."""
    ratio, group = file.ratio(1), next(group for group in GROUPS if group.contains(file))
    if ratio is None or ratio <= group.limit or file.time(OURS, 1) is None:
        return None
    return file.name, f"{ratio:.2f}", f"{group.limit:g}", _shares(file.bench.operations)


def _shares(operations: Sequence[OperationTime]) -> str:
    total = sum(entry.microseconds for entry in operations)
    parts = by_operation(operations)[:5]
    named = [f"{name}{' (reference)' * (tier == 'reference')} {us / total:.0%}" for name, tier, _, us in parts]
    return ", ".join(named) or "no profile"


def _page(blocks: Sequence[Table | str]) -> str:
    """The tables in Markdown."""
    packages = ("numpy", "llvmlite", "ai-edge-litert", "onnxruntime")
    versions = ", ".join(f"{name} {installed_version(name) or 'not installed'}" for name in packages)
    forms = compiled.status().instructions or "no compiled kernels"
    lines = [
        "# Speed beside other runtimes",
        "",
        f"Written by `python scripts/benchmarks/benchmark.py {' '.join(_shown(argument) for argument in sys.argv[1:])}` on"
        f" {datetime.now(timezone.utc):%Y-%m-%d}: {_processor()}, {available_cores()} cores ({forms}), Python"
        f" {platform.python_version()}, {versions}.",
        "",
        "All contenders of a file take turns in one process, on arrays bound before, in an order that changes from round to",
        "round; each runs unmeasured for 3 ms first. Inputs are drawn as the model's description states; of dimensions that a",
        f"file leaves open an input's first is 1, others are the first of {', '.join(map(str, SIDES))} that its runtime runs.",
        "`nnbridge bench MODEL` measures one file, with its operations.",
    ]
    for block in blocks:
        if isinstance(block, str):
            lines += ["", block]
            continue
        lines += ["", f"## {block.title}", "", f"| {' | '.join(block.columns)} |", "|---" * len(block.columns) + "|"]
        lines += [f"| {' | '.join(map(str, row))} |" for row in block.rows]
    return "\n".join(lines) + "\n"


def _shown(argument: str) -> str:
    return "FOLDER" if Path(argument).is_dir() else Path(argument).name


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


if __name__ == "__main__":
    with one_line_errors():
        started = time.perf_counter()
        main()
        print(f"{time.perf_counter() - started:.0f} s", file=sys.stderr)
