"""Compare the delegate in stock LiteRT with `nnbridge run` and `plan --disallow-nnapi-cpu`, for every file of a folder.

python scripts/comparisons/compare_delegate.py models
python scripts/comparisons/compare_delegate.py folder --devices nnapi-reference nnapi-sample_all
python scripts/comparisons/compare_delegate.py models --runtime tflite_runtime.interpreter --kernels xnnpack --json rows.json

One row for each file and device. ``nodes`` and ``partitions`` are those that the interpreter handed over, which must be those
that the plan of the same file has for the device: the operators that Android's delegate maps and the device accepts, in the
largest three partitions. ``bits``: the partitions whose outputs are bit for bit those of the same operators of the converted
file, run by nnbridge alone on what the interpreter passed to them. ``whole``: whether the file's outputs are bit for bit those
of `nnbridge run --disallow-nnapi-cpu`, or the greatest difference. TFLite computes the other nodes by the kernels that it has by
default (XNNPACK), or by those of ``--kernels``, for which run has `--host`. ``--own-host`` compares with nnbridge's own host in
place of LiteRT's kernels: nodes that TFLite computes otherwise are listed with their causes then (docs/layers.md), each verified
alone on TFLite's own values. ``--nnapi-cpu``: the program allows NNAPI's CPU beside each driver (`disallow_nnapi_cpu` false),
outputs are those of `nnbridge run --device NAME` without another option, and ``nodes`` those that the file's plan maps, of the
three largest partitions. ``--json`` writes rows with who computed each node.
Exit status 0 only if nodes, partitions, bits and outputs agree in every row; with ``--own-host`` outputs may differ where each
difference has a cause, under reference kernels only by recurrent operators, which have none.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import Array, compare_each, difference, folder_parser, one_line_errors

from nnbridge import Compilation, Execution, NnbridgeError, delegate
from nnbridge.compare import seeded_samples
from nnbridge.compare.layers import compare_layers
from nnbridge.compare.litert import LiteRT
from nnbridge.compare.tensors import tensors_of
from nnbridge.converters.delegation import Part, refusal_of
from nnbridge.converters.inspection import Mapped
from nnbridge.delegate.interpreter import InterpreterContext
from nnbridge.delegate.kernel import DelegateKernel
from nnbridge.devices import CPU_NAME, cpu, device
from nnbridge.devices.device import Device
from nnbridge.devices.samples import SAMPLE_DRIVERS
from nnbridge.engines import AUTO, OWN, host_for
from nnbridge.errors import Stage, Why
from nnbridge.file import ModelFile
from nnbridge.model import Model
from nnbridge.plan import draft
from nnbridge.runtime.partition_limits import TFLITE_DEFAULT, delegated_partitions
from nnbridge.runtime.partitioner import extract
from nnbridge.storage.atomic import atomic_write
from nnbridge.target import Fallback, Target
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
    """Record the delegate's partitions that are computed in this process from now on."""
    runs: list[Run] = []
    invoke = DelegateKernel.invoke

    def recorded(kernel: DelegateKernel, context: InterpreterContext, places: Any) -> None:
        part, nodes = kernel.part, {o.source.index for o in kernel.part.model.main.operations if o.source is not None}
        run = Run(tuple(sorted(nodes)), part, {t: bytes(context.buffer(t)) for t in part.inputs})
        invoke(kernel, context, places)
        run.outputs = {t: bytes(context.buffer(t)) for t in part.outputs[: len(part.outputs) - part.variables]}
        runs.append(run)

    with patch.object(DelegateKernel, "invoke", recorded):
        yield runs


@dataclass(frozen=True)
class File:
    """A model file as LiteRT has it."""

    path: Path
    interpreter: Callable[..., Any]
    """Creates an interpreter with TFLite's own kernels."""
    kernels: str
    inputs: tuple[Array, ...]
    runtime: Any
    own_host: bool
    nnapi_cpu: bool

    def converted(self, target: Device) -> Converted:
        """As nnbridge has it for a device."""
        name = OWN if self.own_host else HOST_NAMES[self.kernels]
        found = draft(
            ModelFile(self.path).with_(allow_dynamic_dimensions=bool(self.allowed)),
            Target((target,), fallback=Fallback.CPU if self.nnapi_cpu else Fallback.APP, host=name),
        )
        return Converted(found.model, found.mapped, target, host_for(name, found.file), self.nnapi_cpu)

    @cached_property
    def allowed(self) -> dict[str, object]:
        """The delegate's option for files of open dimensions, and for those that TFLite refuses without it."""
        refused = any(reason.kind is Why.DYNAMIC_GRAPH for one in ModelFile(self.path).mapped for reason in one.reasons)
        return {"allow_dynamic_dimensions": True} if refused or any(d < 0 for s in signatures(self) for d in s) else {}

    def delegate(self, target: Device) -> Any:
        """The delegate for a device: the one target, or an installed one beside NNAPI's CPU."""
        options = self.allowed
        if not self.nnapi_cpu:
            return delegate.load(target.name, runtime=self.runtime, **options)
        return delegate.load(runtime=self.runtime, nnbridge_devices=target.name, disallow_nnapi_cpu=False, **options)


@dataclass(frozen=True)
class Node:
    """The engine that computes an operator of a file; ``cause``: why TFLite's result differs from the host's, if it does."""

    node: int
    operator: str
    computed_by: str
    cause: str = ""


@dataclass(frozen=True)
class Converted:
    """A file for a device: what the device does not get is the host's, or that of NNAPI's CPU beside the device."""

    model: Model
    mapped: tuple[Mapped, ...]
    target: Device
    host: tuple[Device, ...]
    nnapi_cpu: bool

    def operators(self) -> list[Mapped]:
        """Those of the main graph."""
        return [one for one in self.mapped if one.subgraph == 0]

    def compiled(self) -> Compilation:
        """For the device and the host, as `nnbridge run` compiles."""
        compilation = self.created(self.model, *self.host)
        if self.nnapi_cpu:
            compilation.set_max_partitions(TFLITE_DEFAULT)
        compilation.finish()
        return compilation

    def created(self, model: Model, *host: Device) -> Compilation:
        """The compilation of a model, or a part of it."""
        return (Compilation.create if self.nnapi_cpu else Compilation.create_for_devices)(model, [self.target, *host])

    def planned(self) -> list[tuple[int, ...]]:
        """The nodes of each partition that NNAPI gets: of many the largest."""
        operations = self.model.main.operations
        groups = delegated_partitions(self.model.main, [o.mapping == "delegate" for o in operations])
        nodes = [tuple(sorted({s.index for i in group if (s := operations[i].source) is not None})) for group in groups]
        return sorted(sorted(nodes, key=lambda members: -len(members))[:TFLITE_DEFAULT])


KERNELS = {"reference": "BUILTIN_REF", "optimised": "BUILTIN_WITHOUT_DEFAULT_DELEGATES", "xnnpack": "BUILTIN"}
"""Sets of TFLite's kernels, by nnbridge's names for them."""
HOST_NAMES = {"reference": "litert-reference", "optimised": "litert-plain", "xnnpack": AUTO}
"""Sets of TFLite's kernels → the host of `nnbridge run` that computes with them; by default it is that of a program."""
ROWS: list[dict[str, Any]] = []


def opened(path: Path, runtime: Any, kernels: str, own_host: bool, nnapi_cpu: bool) -> File | str:
    """The file with drawn inputs, or why TFLite does not run it."""
    resolver = getattr(runtime.OpResolverType, KERNELS[kernels])
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
    file = File(path, interpreter, kernels, inputs, runtime, own_host, nnapi_cpu)
    try:
        file.converted(cpu())
    except NnbridgeError as error:
        return f"nnbridge run refuses the file: {error.reason.rule}"
    return file


def causes(file: File, ours: Converted) -> dict[int, str]:
    """The causes of differences between TFLite's operators and those of the host: index → cause."""
    reference = LiteRT(file.path, kernels=file.kernels, preserve=True)
    samples = seeded_samples(ours.model, reference, [0])
    found = compare_layers(ours.compiled(), reference.name, samples, tensors_of(reference), mapped=ours.mapped)
    wrong = [layer for layer in found.layers if layer.own is not None and layer.own.mismatches]
    return {int(layer.operator.split()[0]): layer.why or "NO CAUSE" for layer in wrong}


def nodes_of(file: File, ours: Converted, handed: set[int], equal: bool) -> list[Node]:
    """The engine of each operator; causes only where the outputs are not ``equal``."""
    why = {} if equal or not file.own_host else causes(file, ours)
    return [
        Node(one.index, one.operator, ours.target.name)
        if one.index in handed
        else Node(one.index, one.operator, f"tflite {file.kernels}", why.get(one.index, ""))
        for one in ours.operators()
    ]


def drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Random numbers of an element type."""
    if dtype.kind in "fc":
        return rng.standard_normal(shape).astype(dtype)
    limits = (0, 2) if dtype.kind == "b" else (0, 100) if dtype.itemsize > 1 else (np.iinfo(dtype).min, np.iinfo(dtype).max + 1)
    return rng.integers(*limits, shape).astype(dtype)


def same_bits(run: Run, converted: Converted) -> bool:
    """Run the operators of a partition as the converted file has them, on the inputs that the interpreter passed."""
    model = converted.model
    main, ours = model.main, run.part.model.main
    members = [o for o in main.operations if o.source is not None and o.source.index in run.nodes]
    written = {i for o in members for i in o.outputs}
    read = dict.fromkeys(i for o in members for i in o.inputs if i not in written)
    inputs = [i for i in read if main.operands[i].lifetime in (*WRITTEN, Lifetime.SUBGRAPH_INPUT)]
    names = {main.operands[i].name: i for i in written}
    passed_by_name = {ours.operands[i].name: run.inputs[t] for i, t in zip(ours.inputs, run.part.inputs, strict=True)}
    answers = {ours.operands[i].name: run.outputs[t] for i, t in zip(ours.outputs, run.part.outputs, strict=True)}
    part = extract(model, members, inputs, [names[name] for name in answers])
    compilation = converted.created(part)
    compilation.finish()
    execution = Execution(compilation)
    for k, i in enumerate(inputs):
        execution.set_input_buffer(k, passed_by_name[main.operands[i].name])
    buffers = [bytearray(len(answer)) for answer in answers.values()]
    for k, buffer in enumerate(buffers):
        execution.set_output(k, buffer)
    execution.compute()
    return all(buffer == answer for buffer, answer in zip(buffers, answers.values(), strict=True))


def row(file: File, target: Device) -> tuple[str, bool]:
    """A file on a device: figures, and whether all agrees."""
    try:
        interpreter = file.interpreter(experimental_delegates=[file.delegate(target)])
        interpreter.allocate_tensors()
        with recorded_runs() as runs:
            for d, array in zip(interpreter.get_input_details(), file.inputs, strict=True):
                interpreter.set_tensor(d["index"], array)
            interpreter.invoke()
    except (RuntimeError, ValueError) as error:
        refusal = refusal_of(file.converted(target).mapped)
        if refusal is not None and refusal.stage is Stage.BUILDING and "ANEURALNETWORKS_BAD_DATA" in str(error):
            return f"no interpreter, as planned: {refusal.reason}", True
        return f"FAIL: {error}".splitlines()[0], False
    theirs = [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]
    converted = file.converted(target)
    ours = list(Execution(converted.compiled()).run(file.inputs).values())
    expected, found = converted.planned(), sorted(run.nodes for run in runs)
    bits = [same_bits(run, converted) for run in runs]
    equal = all(a.tobytes() == b.tobytes() for a, b in zip(theirs, ours, strict=True))
    handed = {node for nodes in found for node in nodes}
    nodes = nodes_of(file, converted, handed, equal)
    others = Counter(f"{node.cause} {node.operator}" for node in nodes if node.cause)
    passed = expected == found and all(bits) and (equal or bool(others)) and not any("NO CAUSE" in text for text in others)
    if file.own_host and file.kernels == "reference":
        passed &= all("LSTM" in node.operator or "RNN" in node.operator for node in nodes if node.cause)
    figures = f"{len(handed):>4}/{len(nodes):<4} {len(found):>10} {sum(bits):>3}/{len(bits):<3}"
    whole = "equal" if equal else f"off by {max(map(difference, theirs, ours)):.3g}"
    explained = ", ".join(f"{text} {count}" for text, count in others.items())
    verdict = f"{'ok' if passed else 'FAIL'} {explained}" if expected == found else f"FAIL: the plan has {expected}"
    ROWS.append({"file": file.path.name, "device": target.name, "passed": passed, "whole": whole, "nodes": [*map(asdict, nodes)]})
    return f"{figures}  {whole:<22} {verdict}".rstrip(), passed


def signatures(file: File) -> list[tuple[int, ...]]:
    """The dimensions of the inputs with -1 where the file leaves them open."""
    interpreter = file.interpreter()
    return [tuple(map(int, d["shape_signature"])) for d in interpreter.get_input_details()]


def main() -> int:
    parser = folder_parser(DEVICES)
    parser.add_argument("--runtime", default="ai_edge_litert.interpreter", help="the module with TFLite's Interpreter")
    parser.add_argument("--kernels", choices=list(KERNELS), default="xnnpack", help="what computes the nodes that stay")
    parser.add_argument("--own-host", action="store_true", help="compare with nnbridge's own host")
    parser.add_argument("--nnapi-cpu", action="store_true", help="NNAPI's CPU beside the device (disallow_nnapi_cpu false)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="rows with who computed each node")
    options = parser.parse_args()
    runtime = import_module(options.runtime)
    files = sorted(p for p in options.folder.glob("*.tflite") if options.only in p.name)
    print(HEAD)
    status = compare_each(
        files,
        # Beside nothing but NNAPI's CPU, Android's delegate hands nothing over.
        [name for name in options.devices if not options.nnapi_cpu or name != CPU_NAME],
        lambda path: opened(path, runtime, options.kernels, options.own_host, options.nnapi_cpu),
        lambda file, name: row(file, device(name)),
        NnbridgeError,
    )
    if options.json:
        with atomic_write(options.json, 0o644) as file:
            file.write(json.dumps(ROWS, indent=1).encode() + b"\n")
    return status


if __name__ == "__main__":
    with one_line_errors("'.[delegate,litert]'"):
        sys.exit(main())
