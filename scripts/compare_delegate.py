"""Compare the delegate in stock LiteRT with `nnbridge run` and `nnbridge plan --mapping delegate`, for every file of a folder.

python scripts/compare_delegate.py models
python scripts/compare_delegate.py folder --devices nnapi-reference nnapi-sample_all
python scripts/compare_delegate.py models --runtime tflite_runtime.interpreter --why

One row for each file and device. ``nodes`` and ``partitions`` are those that the interpreter handed over, which must be those
that the plan of the same file has for the device: the operators that Android's delegate maps and the device accepts, in the
largest three partitions. ``bits``: the partitions whose outputs are bit for bit those of the same operators of the converted
file, run by nnbridge alone on what the interpreter passed to them. ``whole``: whether the file's outputs are those of
`nnbridge run --mapping delegate`; where TFLite computes nodes itself, the greatest difference is shown instead. ``--why`` adds
the operators that TFLite computed otherwise, with their causes (docs/layers.md), each verified alone on TFLite's own values.
Exit status 0 only if nodes, partitions and bits agree in every row, outputs wherever nnbridge computes all nodes, and with
``--why`` every difference has causes.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from script_support import Array, compare_each, difference, folder_parser, one_line_errors

from nnbridge import Compilation, Execution, NnbridgeError, delegate
from nnbridge.compare import seeded_samples
from nnbridge.compare.layers import compare_layers
from nnbridge.compare.references import LiteRT
from nnbridge.compare.tensors import tensors_of
from nnbridge.converters import ConversionOptions
from nnbridge.converters.delegation import Part
from nnbridge.converters.inspection import Mapped
from nnbridge.delegate.interpreter import Context
from nnbridge.delegate.kernel import Kernel
from nnbridge.devices import CPU_NAME, cpu, device
from nnbridge.devices.device import Device
from nnbridge.devices.samples import SAMPLE_DRIVERS
from nnbridge.loading import load_with_report
from nnbridge.model import Model
from nnbridge.runtime.partition_limits import TFLITE_DEFAULT, delegated_partitions
from nnbridge.runtime.partitioner import extract
from nnbridge.types import WRITTEN, Lifetime

DEVICES = [CPU_NAME, *(driver.name for driver in SAMPLE_DRIVERS)]
HEAD = f"{'file':<42} {'device':<24} {'nodes':>9} {'partitions':>10} {'bits':>7}  {'whole':<22} verdict"


@dataclass
class Run:
    """A partition's inputs and outputs in the interpreter, by tensor."""

    nodes: tuple[int, ...]
    part: Part
    inputs: dict[int, bytes]
    outputs: dict[int, bytes] = field(default_factory=dict)


@contextmanager
def recorded_runs() -> Iterator[list[Run]]:
    """What the delegate's partitions compute in this process from now on."""
    runs: list[Run] = []
    invoke = Kernel.invoke

    def recorded(kernel: Kernel, context: Context, places: Any) -> None:
        part, nodes = kernel.part, {o.source.index for o in kernel.part.model.main.operations if o.source is not None}
        run = Run(tuple(sorted(nodes)), part, {t: bytes(context.buffer(t)) for t in part.inputs})
        invoke(kernel, context, places)
        run.outputs = {t: bytes(context.buffer(t)) for t in part.outputs[: len(part.outputs) - part.variables]}
        runs.append(run)

    with patch.object(Kernel, "invoke", recorded):
        yield runs


@dataclass(frozen=True)
class File:
    """A model file as LiteRT and as nnbridge have it."""

    path: Path
    interpreter: Callable[..., Any]
    """Creates an interpreter with TFLite's own reference kernels."""
    model: Model
    operators: int
    inputs: tuple[Array, ...]
    mapped: tuple[Mapped, ...]
    runtime: Any


def opened(path: Path, runtime: Any) -> File | str:
    """The file with drawn inputs, or why TFLite does not run it."""
    resolver = runtime.OpResolverType.BUILTIN_REF
    interpreter = partial(runtime.Interpreter, str(path), experimental_op_resolver_type=resolver)
    rng = np.random.default_rng(0)
    try:
        plain = interpreter()
        plain.allocate_tensors()
        inputs = tuple(drawn(rng, tuple(map(int, d["shape"])), np.dtype(d["dtype"])) for d in plain.get_input_details())
        for d, array in zip(plain.get_input_details(), inputs, strict=True):
            plain.set_tensor(d["index"], array)
        plain.invoke()
    except (RuntimeError, ValueError) as error:
        return f"LiteRT does not run the file: {error}".splitlines()[0][:100]
    try:
        model, mapped = load_with_report(path, ConversionOptions(mapping="delegate"))
    except NnbridgeError as error:
        return f"nnbridge run refuses the file: {error.reason.rule}"
    return File(path, interpreter, model, sum(m.subgraph == 0 for m in mapped), inputs, tuple(mapped), runtime)


def causes(file: File, handed: set[int]) -> str:
    """Why operators that TFLite computed differ on NNAPI's CPU and the host: cause, how many, and of which operators."""
    if CAUSES.get(file.path) is None:
        reference = LiteRT(file.path, preserve=True)
        samples = seeded_samples(file.model, reference, [0])
        found = compare_layers(compiled(file.model, cpu()), reference.name, samples, tensors_of(reference), mapped=file.mapped)
        wrong = [layer for layer in found.layers if layer.own is not None and layer.own.mismatches]
        CAUSES[file.path] = [(*layer.operator.split()[:2], layer.why or "NO CAUSE") for layer in wrong]
    counted = Counter((why, name) for index, name, why in CAUSES[file.path] if int(index) not in handed)
    return ", ".join(f"{why} {name} {count}" for (why, name), count in counted.items()) or "NO CAUSE"


CAUSES: dict[Path, list[tuple[str, ...]]] = {}
"""Operators of a file with an error of their own: index, name, cause."""


def drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Random numbers of an element type."""
    if dtype.kind in "fc":
        return rng.standard_normal(shape).astype(dtype)
    limits = (0, 2) if dtype.kind == "b" else (0, 100) if dtype.itemsize > 1 else (np.iinfo(dtype).min, np.iinfo(dtype).max + 1)
    return rng.integers(*limits, shape).astype(dtype)


def planned(model: Model, target: Device) -> list[tuple[int, ...]]:
    """The nodes of each partition that the plan hands to a device."""
    main, plan = model.main, compiled(model, target).plan
    sources = [operation.source for operation in main.operations]
    accepted = [
        main.operations[p.operation].mapping == "delegate" and any(a.device == target.name and a.supported for a in p.answers)
        for p in plan.placements
    ]
    # An operator of which the device refuses an operation stays where it is as a whole.
    left = {source for source, taken in zip(sources, accepted, strict=True) if not taken}
    groups = delegated_partitions(main, [taken and source not in left for source, taken in zip(sources, accepted, strict=True)])
    nodes = [tuple(sorted({source.index for i in group if (source := sources[i]) is not None})) for group in groups]
    return sorted(sorted(nodes, key=len, reverse=True)[:TFLITE_DEFAULT])


def compiled(model: Model, target: Device) -> Compilation:
    """As ``nnbridge run --device`` and ``nnbridge plan --device`` do it."""
    compilation = Compilation.create(model, [target])
    compilation.set_max_partitions(TFLITE_DEFAULT)
    compilation.finish()
    return compilation


def same_bits(run: Run, model: Model, target: Device) -> bool:
    """Run the operators of a partition as the converted file has them, on the inputs that the interpreter passed."""
    main, ours = model.main, run.part.model.main
    members = [o for o in main.operations if o.source is not None and o.source.index in run.nodes]
    written = {i for o in members for i in o.outputs}
    read = dict.fromkeys(i for o in members for i in o.inputs if i not in written)
    inputs = [i for i in read if main.operands[i].lifetime in (*WRITTEN, Lifetime.SUBGRAPH_INPUT)]
    names = {main.operands[i].name: i for i in written}
    passed_by_name = {ours.operands[i].name: run.inputs[t] for i, t in zip(ours.inputs, run.part.inputs, strict=True)}
    answers = {ours.operands[i].name: run.outputs[t] for i, t in zip(ours.outputs, run.part.outputs, strict=True)}
    part = extract(model, members, inputs, [names[name] for name in answers])
    compilation = Compilation.create_for_devices(part, [target])
    compilation.finish()
    execution = Execution(compilation)
    for k, i in enumerate(inputs):
        execution.set_input_buffer(k, passed_by_name[main.operands[i].name])
    buffers = [bytearray(len(answer)) for answer in answers.values()]
    for k, buffer in enumerate(buffers):
        execution.set_output(k, buffer)
    execution.compute()
    return all(buffer == answer for buffer, answer in zip(buffers, answers.values(), strict=True))


def row(file: File, target: Device, why: bool) -> tuple[str, bool]:
    """A file on a device: figures, and whether all agrees."""
    options = {"allow_dynamic_dimensions": True} if any(d < 0 for s in signatures(file) for d in s) else {}
    try:
        interpreter = file.interpreter(experimental_delegates=[delegate.load(target.name, runtime=file.runtime, **options)])
        interpreter.allocate_tensors()
        with recorded_runs() as runs:
            for d, array in zip(interpreter.get_input_details(), file.inputs, strict=True):
                interpreter.set_tensor(d["index"], array)
            interpreter.invoke()
    except (RuntimeError, ValueError) as error:
        if not str(error):
            return "refused, as on Android: tensors of dynamic dimensions", True
        return f"FAIL: {error}".splitlines()[0], False
    theirs = [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]
    ours = list(Execution(compiled(file.model, target)).run(file.inputs).values())
    expected, found = planned(file.model, target), sorted(run.nodes for run in runs)
    bits = [same_bits(run, file.model, target) for run in runs]
    equal = all(a.tobytes() == b.tobytes() for a, b in zip(theirs, ours, strict=True))
    alone = sum(map(len, found)) == file.operators
    nodes = sum(map(len, found))
    planned_so = expected == found
    passed = planned_so and all(bits) and (equal or not alone)
    figures = f"{nodes:>4}/{file.operators:<4} {len(found):>10} {sum(bits):>3}/{len(bits):<3}"
    whole = "equal" if equal else f"off by {max(map(difference, theirs, ours)):.3g}"
    explained = causes(file, {n for nodes in found for n in nodes}) if why and not equal and not alone else ""
    passed &= "NO CAUSE" not in explained
    verdict = f"ok {explained}" if passed else f"FAIL: the plan has {expected}" if not planned_so else f"FAIL {explained}"
    return f"{figures}  {whole:<22} {verdict}".rstrip(), passed


def signatures(file: File) -> list[tuple[int, ...]]:
    """The dimensions of the inputs with -1 where the file leaves them open."""
    interpreter = file.interpreter()
    return [tuple(map(int, d["shape_signature"])) for d in interpreter.get_input_details()]


def main() -> int:
    parser = folder_parser(DEVICES)
    parser.add_argument("--runtime", default="ai_edge_litert.interpreter", help="the module with TFLite's Interpreter")
    parser.add_argument("--why", action="store_true", help="causes of differences")
    options = parser.parse_args()
    runtime = import_module(options.runtime)
    files = sorted(p for p in options.folder.glob("*.tflite") if options.only in p.name)
    print(HEAD)
    return compare_each(
        files,
        options.devices,
        lambda path: opened(path, runtime),
        lambda file, name: row(file, device(name), options.why),
        NnbridgeError,
    )


if __name__ == "__main__":
    with one_line_errors("'.[delegate,litert]'"):
        sys.exit(main())
