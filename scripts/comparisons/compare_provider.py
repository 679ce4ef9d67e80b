"""Compare the provider in stock ONNX Runtime with `nnbridge run` and `nnbridge plan --mapping provider`, for files of a folder.

python scripts/comparisons/compare_provider.py models
python scripts/comparisons/compare_provider.py folder --devices nnapi-reference nnapi-sample_all --dimension batch=1

One row for each file and device. ONNX Runtime's own optimiser changes a graph before a provider sees it; a session without the
provider saves that graph, and the saved file is what nnbridge plans and runs. ``nodes``: those that the session placed on the
provider, which must be those that the plan has, without the ones that the converter computes. ``bits``: the partitions whose
outputs are bit for bit those of `nnbridge run` of the same part of the saved file, cut out by the onnx package, on what ONNX
Runtime passed to them. ``whole``: whether the file's outputs are those of `nnbridge run`, or the greatest difference. Open
dimensions are fixed as ``--dimension`` says, others to 1, or 512 where ONNX Runtime does not run that.
Exit status 0 only if nodes, bits and outputs agree in every row.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import Array, compare_each, difference, folder_parser, one_line_errors

from nnbridge import Compilation, Execution, NnbridgeError, provider
from nnbridge.converters import ConversionOptions
from nnbridge.converters.delegation import refusal_of, taken
from nnbridge.converters.mapping import MappingKind
from nnbridge.devices import CPU_NAME, device
from nnbridge.devices.device import Device
from nnbridge.devices.samples import SAMPLE_DRIVERS
from nnbridge.engines import AUTO, host_for
from nnbridge.errors import Stage
from nnbridge.file import ModelFile
from nnbridge.plan import plan
from nnbridge.provider.session import ProviderKernel
from nnbridge.provider.source import NAMES
from nnbridge.target import Target
from nnbridge_onnx.read.reader import read

DEVICES = [CPU_NAME, *(driver.name for driver in SAMPLE_DRIVERS)]
HEAD = f"{'file':<42} {'device':<24} {'nodes':>9} {'partitions':>10} {'bits':>7}  {'whole':<22} verdict"
TYPES = {"tensor(float)": "float32", "tensor(float16)": "float16", "tensor(double)": "float64", "tensor(bool)": "bool"}
INSERTED = "InsertedPrecisionFreeCast_"
COMPUTED = ("folded", "dead")
SIZES = (1, 512)
"""Sizes of open dimensions that are tried."""
NUMBERS = (100, 2)
"""Drawn whole numbers are below this, or below that where ONNX Runtime refuses them: words of a small vocabulary."""
OPTIONS = ConversionOptions(mapping="provider")


@dataclass
class Run:
    """A partition's inputs and outputs in a session, by the names of its values."""

    inputs: dict[str, Array]
    outputs: dict[str, Array]


@contextmanager
def recorded_runs() -> Iterator[list[Run]]:
    """Record the provider's partitions that are computed in this process from now on."""
    runs: list[Run] = []
    compute = ProviderKernel.compute

    def recorded(kernel: ProviderKernel, read: Callable[[int], Array]) -> list[Array]:
        inputs = {name: read(i).copy() for name, i in zip(kernel.part.inputs, kernel.inputs, strict=True)}
        outputs = compute(kernel, read)
        runs.append(Run(inputs, dict(zip(kernel.outputs, outputs, strict=True))))
        return outputs

    with patch.object(ProviderKernel, "compute", recorded):
        yield runs


@dataclass(frozen=True)
class File:
    """A model file as ONNX Runtime and as nnbridge have it."""

    path: Path
    seen: Path
    """The file as a provider sees it."""
    feeds: dict[str, Array]
    dimensions: dict[str, int]
    planned: frozenset[str]
    """Names of the nodes that the plan has for NNAPI."""
    computed: frozenset[str]
    """Names of the nodes that the converter computes, or leaves out."""
    nodes: int
    fails: bool
    """The plan says that runs fail."""

    def session(self, options: Any) -> Any:
        """A session with the dimensions fixed."""
        import onnxruntime as ort

        options.log_severity_level = 4
        for name, size in self.dimensions.items():
            options.add_free_dimension_override_by_name(name, size)
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        return ort.InferenceSession(str(self.path), options, enable_fallback=0)


def opened(path: Path, folder: Path, chosen: dict[str, int]) -> File | str:
    """The file with drawn inputs, or why ONNX Runtime does not run it."""
    import onnx

    path = uniquely_named(path, folder)
    for size, numbers in product(SIZES, NUMBERS):
        dimensions = {d: chosen.get(d, size) for d in open_dimensions(path)}
        try:
            seen, feeds = saved(path, folder, dimensions, numbers)
            break
        except Exception as error:  # whatever ONNX Runtime raises
            refused = f"ONNX Runtime does not run the file: {error}".splitlines()[0][:120]
    else:
        return refused
    try:
        _, mapped = ModelFile(seen, OPTIONS).converted
        figures = plan(ModelFile(seen, OPTIONS), Target()).summary
    except NnbridgeError as error:
        return f"nnbridge run refuses the file: {error}"
    if figures.handed_over + figures.merged != sum(map(taken, mapped)):
        return f"the plan's figures ({figures.handed_over} + {figures.merged} merged) are not those of what the provider takes"
    names = [node.name for node in onnx.load(str(seen), load_external_data=False).graph.node]
    if len(set(names)) < len(names):
        return "ONNX Runtime's graph has nodes of the same name"
    # An operator that the importer writes out in others has several outcomes, under its own name.
    outcomes: dict[str, set[str]] = {}
    for node, mapping in zip(read(seen, OPTIONS).nodes, mapped, strict=True):
        # What fails when it runs is the provider's node all the same.
        kind = MappingKind.PROVIDER if taken(mapping) else MappingKind(mapping.mapping)
        outcomes.setdefault(node.name, set()).add(str(kind.value))
    ours = {name: found for name, found in outcomes.items() if found <= {"provider", *COMPUTED}}
    planned = frozenset(name for name, found in ours.items() if "provider" in found)
    failure = refusal_of(mapped, OPTIONS.mapping)
    fails = failure is not None and failure.stage is Stage.RUNNING
    return File(path, seen, feeds, dimensions, planned, frozenset(ours) - planned, len(names), fails)


def uniquely_named(path: Path, folder: Path) -> Path:
    """The file, or a copy in which each node has a name of its own: a session reports placements by names."""
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    names = [node.name for node in model.graph.node]
    if all(names) and len(set(names)) == len(names):
        return path
    for i, node in enumerate(model.graph.node):
        node.name = f"{i} {node.op_type}"
    copy = folder / f"named {path.name}"
    onnx.save(model, str(copy))
    return copy


def saved(path: Path, folder: Path, dimensions: dict[str, int], numbers: int) -> tuple[Path, dict[str, Array]]:
    """The file as a provider sees it, which a session on the CPU saves and runs, and inputs for it."""
    import onnx
    import onnxruntime as ort

    seen = folder / f"seen {path.name}"
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(seen)
    for name, size in dimensions.items():
        options.add_free_dimension_override_by_name(name, size)
    rng = np.random.default_rng(0)
    plain = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feeds = {i.name: drawn(rng, i.shape, i.type, numbers) for i in plain.get_inputs()}
    plain.run(None, feeds)
    model = onnx.load(str(seen), load_external_data=False)
    if model.ir_version < 4:
        # In a part, constants are no inputs.
        names = {tensor.name for tensor in model.graph.initializer}
        inputs = [value for value in model.graph.input if value.name not in names]
        del model.graph.input[:]
        model.graph.input.extend(inputs)
        model.ir_version = 8
    # Behind the providers, ONNX Runtime inserts casts for float16, which its CPU lacks.
    nodes = [node for node in model.graph.node if not node.name.startswith(INSERTED)]
    if len(nodes) < len(model.graph.node):
        for node in nodes:
            node.input[:] = [name.removeprefix(INSERTED) for name in node.input]
            node.output[:] = [name.removeprefix(INSERTED) for name in node.output]
        values = [value for value in model.graph.value_info if not value.name.startswith(INSERTED)]
        del model.graph.node[:], model.graph.value_info[:]
        model.graph.node.extend(nodes)
        model.graph.value_info.extend(values)
    if not any(tensor.external_data for tensor in model.graph.initializer):
        onnx.save(model, str(seen))
    return seen, feeds


def open_dimensions(path: Path) -> list[str]:
    """The names of a file's open dimensions."""
    import onnx

    graph = onnx.load(str(path), load_external_data=False).graph
    return sorted({d.dim_param for value in graph.input for d in value.type.tensor_type.shape.dim if d.dim_param})


def drawn(rng: np.random.Generator, shape: list[int | str | None], kind: str, numbers: int) -> Array:
    """Random numbers of an element type, whole ones below ``numbers``."""
    dims = [d if isinstance(d, int) else 1 for d in shape]
    dtype = np.dtype(TYPES.get(kind) or kind.removeprefix("tensor(").removesuffix(")"))
    if dtype.kind == "f":
        return rng.standard_normal(dims).astype(dtype)
    return rng.integers(0, 2 if dtype.kind == "b" else numbers, dims).astype(dtype)


def computed(path: Path, feeds: dict[str, Array], target: Device) -> dict[str, Array]:
    """The outputs of ``nnbridge run --mapping provider --device``, by name."""
    model, _ = ModelFile(path, OPTIONS).converted
    compilation = Compilation.create(model, [target, *host_for(AUTO, ModelFile(path, OPTIONS))])
    compilation.finish()
    operands = [model.main.operands[i] for i in model.main.inputs]
    answers = Execution(compilation).run([feeds[str(o.name)].reshape(feeds[str(o.name)].shape or (1,)) for o in operands])
    return dict(answers)


def same_bits(run: Run, file: File, target: Device) -> bool:
    """Run the part of the saved file between the same values, on the inputs that ONNX Runtime passed."""
    import onnx
    from onnx import helper

    part, typed = file.seen.with_name("part.onnx"), onnx.load(str(file.seen))
    # The package infers no types of what nodes of other domains compute.
    kinds = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in (run.inputs | run.outputs).items()}
    shapes = {name: array.shape for name, array in (run.inputs | run.outputs).items()}
    known = {value.name for value in (*typed.graph.value_info, *typed.graph.input, *typed.graph.output)}
    typed.graph.value_info.extend(helper.make_tensor_value_info(n, kinds[n], shapes[n]) for n in kinds if n not in known)
    onnx.save(onnx.utils.Extractor(typed).extract_model(list(run.inputs), list(run.outputs)), str(part))
    answers = computed(part, run.inputs, target)
    return all(bits(array, answers[name]) for name, array in run.outputs.items())


def bits(a: Array, b: Array) -> bool:
    """True if two outputs are the same bit for bit; NNAPI may hold numbers of the same value in another type."""
    return a.size == b.size and a.tobytes() == np.ascontiguousarray(b.astype(a.dtype, copy=False)).tobytes()


def row(file: File, target: Device) -> tuple[str, bool]:
    """A file on a device: figures, and whether all agrees."""
    session = file.session(provider.session_options(target.name))
    groups = [g for g in session.get_provider_graph_assignment_info() if g.ep_name == NAMES[0]]
    claimed = {node.name for group in groups for node in group.get_nodes()}
    if file.fails:
        return failing(session, file, claimed, len(groups))
    with recorded_runs() as runs:
        theirs = dict(zip((o.name for o in session.get_outputs()), session.run(None, file.feeds), strict=True))
    ours = computed(file.seen, file.feeds, target)
    missing, more = file.planned - claimed, claimed - file.planned - file.computed
    same = [same_bits(run, file, target) for run in runs]
    equal = all(bits(array, ours[name]) for name, array in theirs.items())
    passed = not missing and not more and all(same) and equal
    figures = f"{len(claimed):>4}/{file.nodes:<4} {len(groups):>10} {sum(same):>3}/{len(same):<3}"
    whole = "equal" if equal else f"off by {max(difference(a, ours[n]) for n, a in theirs.items()):.3g}"
    faults = [f"{what} {', '.join(sorted(names)[:4])}" for what, names in (("without", missing), ("with", more)) if names]
    verdict = "ok" if passed else f"FAIL {'; '.join(faults)}"
    return f"{figures}  {whole:<22} {verdict}", passed


def failing(session: Any, file: File, claimed: set[str], groups: int) -> tuple[str, bool]:
    """The row of a file of which the plan says that runs fail: the session's does, with the same nodes on the provider."""
    figures = f"{len(claimed):>4}/{file.nodes:<4} {groups:>10} {'-':>7}  {'':<22}"
    if file.planned - claimed or claimed - file.planned - file.computed:
        return f"{figures} FAIL other nodes", False
    try:
        session.run(None, file.feeds)
    except Exception as error:  # ONNX Runtime's errors have no common class
        return f"{figures} ok: fails as planned: {str(error).rpartition('Status Message: ')[2][:80]}", True
    return f"{figures} FAIL runs, where the plan says that it fails", False


def main() -> int:
    parser = folder_parser(DEVICES)
    parser.add_argument("--dimension", nargs="+", default=[], metavar="NAME=SIZE", help="sizes of open dimensions")
    options = parser.parse_args()
    chosen = {name: int(size) for name, _, size in (text.partition("=") for text in options.dimension)}
    files = sorted(p for p in options.folder.glob("*.onnx") if options.only in p.name)
    print(HEAD)
    with tempfile.TemporaryDirectory() as folder:
        return compare_each(
            files,
            options.devices,
            lambda path: opened(path, Path(folder), chosen),
            lambda file, name: row(file, device(name)),
            Exception,  # ONNX Runtime's errors have no common class
        )


if __name__ == "__main__":
    with one_line_errors("'.[provider,onnxruntime]'"):
        sys.exit(main())
