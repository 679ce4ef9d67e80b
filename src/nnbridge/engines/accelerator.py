"""LiteRT's GPU accelerator (ML Drift) from the installed wheel, asked about a file and run; in a separate process only, which
some files end and some never leave."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from nnbridge.engines.native import logged
from nnbridge.engines.vulkan import VulkanDriver, vulkan_driver
from nnbridge.errors import InputError, PackageError, Reason, Why, first_line
from nnbridge.model import Array
from nnbridge.records import dataclass

TITLE = "LiteRT's GPU accelerator"
BROKEN_SHADER = "a shader does not compile: its outputs are zeros"
"""In the note on a file that is taken, and not computed."""
_PACKAGE = "ai_edge_litert"
_LIBRARY = "libLiteRtWebGpuAccelerator.so"
_PREFIX = re.compile(r"^[EWIF]\d{4} [\d:.]+ +\d+ |^ERROR: ")
_LISTED = "Following operations are not supported"
_COUNTED = re.compile(r"(\d+) operations will run on the GPU, and the remaining (\d+)")
_SPEAKS = re.compile(r"^[A-Z_0-9]+: |[Ee]rror|not supported|mismatch|[Ff]ailed|exceed")
_SILENT = re.compile(r"registry|compiler_plugin|dispatch|[Ll]oad|npu_|OpenCL|^(INFO|WARNING):")
_BROKEN = re.compile(r"Failed to build program|Validation error|Error while parsing WGSL")
_UNTYPED = ("int16", "uint16", "int64", "uint64", "float16", "float64", "complex64")
"""Types that the wheel hands neither in nor out."""
_PLACE = re.compile(r"^(ERROR: )?\[[^\]]*:\d+\]")


def unavailable() -> Reason | None:
    """The first thing that is missing for the accelerator to run here; None if nothing is. Nothing is loaded."""
    spec = find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return Reason("ai-edge-litert (pip install ai-edge-litert)", "not installed", operand="litert-gpu")
    if not any((Path(folder) / _LIBRARY).exists() for folder in spec.submodule_search_locations):
        return Reason(f"a wheel of ai-edge-litert with {_LIBRARY} (2.3.0 has it)", "one without", operand="litert-gpu")
    driver = vulkan_driver()
    return driver if isinstance(driver, Reason) else None


@dataclass(frozen=True)
class AcceleratorLog:
    """The accelerator's words while it compiled a file or ran it."""

    reasons: tuple[str, ...] = ()
    """Refused operators with why, and errors; each line once."""
    on_gpu: int | None = None
    on_cpu: int | None = None
    """Operators on either side, where some are refused."""
    broken: str = ""
    """The error of a shader that does not compile: what it computes stays zero."""

    @classmethod
    def read(cls, text: str) -> AcceleratorLog:
        """From what was written to the standard error."""
        found: dict[str, None] = {}
        listed, counts = False, None
        for line in (_PREFIX.sub("", one).strip() for one in text.splitlines()):
            counts = _COUNTED.search(line) or counts
            listed = listed and not line.startswith(("INFO:", "WARNING:")) and _COUNTED.search(line) is None
            if line and (listed or (_SPEAKS.search(line) and not _SILENT.search(line))) and not _COUNTED.search(line):
                found.setdefault(line[:300])
            listed = listed or line.startswith(_LISTED)
            found.pop(next((one for one in found if one.startswith(_LISTED)), ""), None)
        broken = next((line for line in found if _BROKEN.search(line)), "")
        on_gpu, on_cpu = (None, None) if counts is None else (int(counts[1]), int(counts[2]))
        return cls(tuple(found), on_gpu, on_cpu, broken)


@dataclass(frozen=True)
class AcceleratorVerdict:
    """The accelerator's word on a file."""

    whole: bool
    """It takes every operator."""
    reasons: tuple[str, ...] = ()
    on_gpu: int | None = None
    on_cpu: int | None = None
    broken: str = ""


@dataclass(frozen=True)
class _LoadedSignature:
    signature: str
    number: int
    inputs: dict[int, str]
    outputs: dict[int, str]


class Accelerator:
    """A file, compiled for the GPU: whole, else with the CPU for what is refused."""

    name = "litert-gpu"
    title = TITLE

    def __init__(self, path: Path, signature: str = "", *, float32: bool = False) -> None:
        """``float32``: enforce float32; else float16 where the driver has it. InputError where nothing runs on the GPU."""
        self._path, self._driver = path, _loaded_driver()
        compiled, _ = logged(partial(_compiler, path, float32))
        if isinstance(compiled, Exception):
            raise PackageError.needed("LiteRT with CompiledModel", "ai-edge-litert", compiled, "litert-gpu") from compiled
        found, log = logged(partial(compiled, cpu=False))
        self.verdict = _verdict(found, log)
        if not self.verdict.whole and self.verdict.on_gpu:
            found, _ = logged(partial(compiled, cpu=True))
        if isinstance(found, Exception):
            why = "; ".join(self.verdict.reasons)
            raise InputError(Reason(f"a file that {TITLE} takes", why, file=str(path), kind=Why.OPERATOR))
        self._model: Any = found
        self._asked = signature
        self._last: list[Array] = []

    @cached_property
    def _interface(self) -> _LoadedSignature:
        """Names and places of inputs and outputs; a ValueError where they are no UTF-8, which is raised when it runs."""
        model, asked = self._model, self._asked
        number = model.get_signature_index(asked) if asked else 0
        return _LoadedSignature(asked or next(iter(model.get_signature_list())), number, *_graph(self._path))

    def notes(self) -> list[str]:
        """Sentences on what ran elsewhere, and on what is known to be wrong."""
        found, verdict = [], self.verdict
        if not verdict.whole:
            why = "; ".join(verdict.reasons)
            found.append(
                f"{TITLE} left {verdict.on_cpu} of {(verdict.on_gpu or 0) + (verdict.on_cpu or 0)} operators to the CPU: {why}"
            )
        if verdict.broken:
            found.append(f"{TITLE} takes the file, and {BROKEN_SHADER} ({verdict.broken})")
        return found

    def lacks_float16(self) -> bool:
        """True where the driver has float32 only: SwiftShader, which computes in it whatever is asked for."""
        return "swiftshader" in self._driver.name.lower()

    def reset(self) -> None:
        """There is nothing to reset: files with states are not loaded."""

    def tensors(self) -> tuple[dict[tuple[int, str], Array], dict[tuple[int, int, str], Array]]:
        """The outputs of the last run by subgraph and name: the accelerator shows nothing on the way."""
        return {
            (0, name): value
            for name, value in zip(self._interface.outputs.values() if self._last else (), self._last, strict=False)
        }, {}

    def run(self, inputs: Mapping[str, Array]) -> list[Array] | dict[str, Array]:
        """Outputs in the file's order, those of a signature by name; inputs in the file's order or by name."""
        try:
            found, log = logged(lambda: self._run(inputs))
            if isinstance(found, Exception):
                raise found
            self._last = list(found.values()) if isinstance(found, dict) else found
        except (RuntimeError, ValueError, TypeError, KeyError) as error:
            words = "; ".join(AcceleratorLog.read(log).reasons) or _words(error)
            raise InputError(Reason(f"inputs that {TITLE} runs", words, operand="reference litert-gpu")) from error
        return found

    def _run(self, inputs: Mapping[str, Array]) -> list[Array] | dict[str, Array]:
        model, interface = self._model, self._interface
        key, number = interface.signature, interface.number
        read, written = model.get_input_tensor_details(key), model.get_output_tensor_details(key)
        same = {detail["index"] for detail in read.values()} & {detail["index"] for detail in written.values()}
        odd = next((d["dtype"] for d in (*read.values(), *written.values()) if d["dtype"] in _UNTYPED), None)
        if same or odd:
            why = f"{odd} inputs or outputs, which LiteRT's Python does not hand over" if odd else "an output that is an input"
            raise ValueError(why)
        names = model.get_signature_by_index(number)
        in_file = _in_order(read, interface.inputs)
        values = dict(inputs) if self._asked else dict(zip(in_file, inputs.values(), strict=True))
        self._resize(read, values, names["inputs"])
        buffers, results = model.create_input_buffers(number), model.create_output_buffers(number)
        for buffer, name in zip(buffers, names["inputs"], strict=True):
            value = np.ascontiguousarray(values[name])
            buffer.write(value.view(np.bool_) if value.dtype == np.bool_ else value)
        model.run_by_index(number, buffers, results)
        written = model.get_output_tensor_details(key)
        found = {name: _read(buffer, written[name]) for buffer, name in zip(results, names["outputs"], strict=True)}
        return found if self._asked else [found[name] for name in _in_order(written, interface.outputs)]

    def _resize(self, details: Mapping[str, Any], values: Mapping[str, Array], names: Sequence[str]) -> None:
        for number, name in enumerate(names):
            shape = values[name].shape
            if tuple(details[name]["shape"]) != shape:
                self._model.resize_input_tensor(number, list(shape), self._interface.number)


def _read(buffer: Any, detail: Mapping[str, Any]) -> Array:
    shape, dtype = tuple(map(int, detail["shape"])), np.dtype(detail["dtype"])
    return np.array(buffer.read(int(np.prod(shape, dtype=np.int64)), dtype.type)).reshape(shape)


def _graph(path: Path) -> tuple[dict[int, str], dict[int, str]]:
    """The tensors that are the inputs and outputs of the file's graph, in its order, with their names."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(str(path), experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
    sides = interpreter.get_input_details(), interpreter.get_output_details()
    inputs, outputs = ({int(detail["index"]): str(detail["name"]) for detail in side} for side in sides)
    return inputs, outputs


def _in_order(details: Mapping[str, Any], tensors: Mapping[int, str]) -> list[str]:
    """Names of a signature in the order of the file's graph."""
    places = {tensor: place for place, tensor in enumerate(tensors)}
    return sorted(details, key=lambda name: places[details[name]["index"]])


class _CompilesForGpu(Protocol):
    def __call__(self, *, cpu: bool) -> Any: ...


def _compiler(path: Path, float32: bool) -> _CompilesForGpu:
    """A function that compiles a file for the GPU, with the CPU for what that refuses or without."""
    from ai_edge_litert.compiled_model import CompiledModel
    from ai_edge_litert.environment import Environment
    from ai_edge_litert.hardware_accelerator import HardwareAccelerator
    from ai_edge_litert.options import GpuOptions, Options

    gpu, environment = GpuOptions(enforce_f32=float32), Environment.create()

    def compiled(*, cpu: bool) -> Any:
        kinds = HardwareAccelerator.GPU | HardwareAccelerator.CPU if cpu else HardwareAccelerator.GPU
        options = Options(hardware_accelerators=kinds, gpu_options=gpu)
        return CompiledModel.from_file(str(path), options=options, environment=environment)

    return compiled


def ask(path: Path, float32: bool = True) -> AcceleratorVerdict:
    """The verdict on a file; for :class:`~nnbridge.apart.Apart`, as what it does to a process is part of it."""
    return Accelerator(path, float32=float32).verdict


def opened(path: Path, signature: str, preserve: bool, float32: bool) -> Accelerator:
    """The reference, with every argument by its place; it shows no tensors on the way."""
    return Accelerator(path, signature, float32=float32)


def _loaded_driver() -> VulkanDriver:
    missing = unavailable()
    driver = vulkan_driver()
    if missing is not None or isinstance(driver, Reason):
        raise InputError(missing or driver)  # type: ignore[arg-type]  # one of both is a reason
    driver.load()
    return driver


def _verdict(found: Any, log: str) -> AcceleratorVerdict:
    words = AcceleratorLog.read(log)
    failed = isinstance(found, Exception)
    whole = not failed and bool(found.is_fully_accelerated())
    reasons = words.reasons or ((_words(found),) if failed else ())
    return AcceleratorVerdict(whole, () if whole else reasons, words.on_gpu, words.on_cpu, words.broken)


def _words(error: Exception) -> str:
    """An error's lines without the places in LiteRT's source."""
    lines = (_PLACE.sub("", line.strip(" └")).strip() for line in str(error).splitlines())
    return "; ".join(filter(None, lines)) or first_line(error)
