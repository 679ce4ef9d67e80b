"""Networks of plain torch, exported to ONNX, on nnbridge and on ONNX Runtime.

    python -m venv torch-models
    torch-models/bin/pip install torch onnxscript onnxruntime sympy rich -e '.[onnx]'
    torch-models/bin/python scripts/comparisons/torch_models.py [NETWORK ...]

Each network is written by torch's exporter and by its older one as float32, and quantised by ONNX Runtime's quantize_static
(QDQ, int8 weights by channel, uint8 activations, seeded calibration data). It is converted, run on NNAPI's CPU and the host for
some seeds, and compared with ONNX Runtime: float32 within 1e-4 of the output's range; of quantised files, 99.9 % of the elements
within 1 step of the last quantisation before the output. ONNX Runtime runs quantised files as written; its fused operators
differ from that (column "itself": the share of elements by more than a step). Whole numbers that a quantised file derives from
such elements must be those that ONNX Runtime derives from the same elements. MobileNetV2 and ResNet18 must run on NNAPI whole,
without transposes between their convolutions, and in as many steps on each sample driver as the same network as a TFLite file
(``networks/tflite_twins.py``). Exit status 1 if anything fails.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import Array, argument_parser, finished, folder_of_keep, one_line_errors, operations_by_place

from nnbridge import Compilation, Execution, Model, load
from nnbridge.compare import RELATIVE_TOLERANCE
from nnbridge.compare.onnx_runtime import OnnxRuntime
from nnbridge.converters import ConversionOptions
from nnbridge.devices import drivers
from nnbridge.types import OperationCode

with one_line_errors("onnxscript sympy '.[torch,test]'"):
    import onnx
    import onnx.utils
    import onnxruntime
    from networks.in_torch import NETWORKS, Network, export
    from networks.tflite_twins import PLAIN, twin
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

SEEDS = (100, 101, 102)
CALIBRATION = range(8)
SHARE_OFF = 0.001
"""Share of a quantised file's elements that may be more than one step off."""


class Calibration(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime has no annotations
    """Seeded inputs for calibration."""

    def __init__(self, network: Network) -> None:
        self._left = iter([arrays(network, seed) for seed in CALIBRATION])

    def get_next(self) -> dict[str, Array] | None:
        """The next inputs, None at the end."""
        return next(self._left, None)


def arrays(network: Network, seed: int) -> dict[str, Array]:
    """Inputs by name."""
    return {name: tensor.numpy() for name, tensor in zip(network.inputs, network.example(seed), strict=True)}


# -- the files -----------------------------------------------------------------------------------------------------------


def float32(network: Network, folder: Path) -> Path:
    """Exported by torch's exporter."""
    path = folder / f"{network.name}.onnx"
    export(network, path, by_dynamo=True)
    return path


def older(network: Network, folder: Path) -> Path:
    """Exported by torch's older exporter."""
    path = folder / f"{network.name}.older.onnx"
    export(network, path, by_dynamo=False)
    return path


def quantised(network: Network, folder: Path) -> Path:
    """Statically quantised, from the older exporter's file."""
    prepared, path = folder / f"{network.name}.prepared.onnx", folder / f"{network.name}.qdq.onnx"
    quant_pre_process(str(older(network, folder)), str(prepared))
    quantize_static(
        str(prepared), str(path), Calibration(network), quant_format=QuantFormat.QDQ, per_channel=True,
        activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8, op_types_to_quantize=network.quantised or None,
    )  # fmt: skip
    return path


VARIANTS: dict[str, Callable[[Network, Path], Path]] = {"float32": float32, "float32, older": older, "QDQ": quantised}


# -- comparing -----------------------------------------------------------------------------------------------------------


def last_step(model: onnx.ModelProto, output: str) -> float | None:
    """The scale of the last DequantizeLinear of computed values before an output."""
    producers = {name: node for node in model.graph.node for name in node.output}
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    names, seen = [output], set()
    while names:
        node = producers.get(names.pop(0))
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if node.op_type == "DequantizeLinear" and node.input[0] not in constants and node.input[1] in constants:
            return float(onnx.numpy_helper.to_array(constants[node.input[1]]).max())
        names.extend(node.input)
    return None


@dataclass
class Difference:
    """All outputs of a file over all seeds."""

    largest: float = 0.0
    """In shares of an output's range, in steps for quantised files."""
    off: int = 0
    """Floating elements beyond the tolerance."""
    count: int = 0
    equal: bool = True
    """Shapes and whole numbers are equal."""

    def add(self, found: Array, expected: Array, step: float | None) -> None:
        """One output of one seed; ``step`` is the last quantisation's, None for float32 files."""
        if found.shape != expected.shape or expected.dtype.kind != "f":
            self.equal &= np.array_equal(found, expected)
            return
        difference = np.abs(found.astype(np.float64) - expected.astype(np.float64))
        unit = float(np.ptp(expected)) if step is None else step
        allowed = RELATIVE_TOLERANCE if step is None else 1.001  # multiples of the step are rounded to float32
        scaled = difference / unit
        self.count += expected.size
        self.largest = max(self.largest, float(scaled.max()))
        self.off += int(np.count_nonzero(~(scaled <= allowed)))

    @property
    def share(self) -> float:
        """Share of the elements that are off."""
        return self.off / max(self.count, 1)

    def passed(self, allowed: float) -> bool:
        """True if few enough elements are off."""
        return self.equal and self.count > 0 and self.share <= allowed


@dataclass(frozen=True)
class Outcome:
    """The result for one file, on NNAPI's CPU and the host, against ONNX Runtime."""

    compilation: Compilation
    difference: Difference
    itself: Difference | None
    """ONNX Runtime with its fused operators against itself, for quantised files."""

    @property
    def passed(self) -> bool:
        """True if the file agrees."""
        return self.difference.passed(0.0 if self.itself is None else SHARE_OFF)


def _derived(file: onnx.ModelProto, answers: Mapping[str, Array], expected: Sequence[Array]) -> list[Array]:
    """The expected outputs; ONNX Runtime computes whole numbers among them from the floating outputs in ``answers``."""
    known = {name: answer for name, answer in answers.items() if answer.dtype.kind == "f"}
    outputs = list(expected)
    for i, output in enumerate(file.graph.output):
        if expected[i].dtype.kind != "f":
            part = onnx.utils.Extractor(file).extract_model(list(known), [output.name])
            session = onnxruntime.InferenceSession(part.SerializeToString(), providers=["CPUExecutionProvider"])
            outputs[i] = session.run(None, known)[0]
    return outputs


def compared(network: Network, path: Path) -> Outcome:
    """Run a file on nnbridge and on ONNX Runtime."""
    compilation = finished(load(path))
    file = onnx.load(str(path))
    steps = [last_step(file, output.name) for output in file.graph.output]
    quantised = any(step is not None for step in steps)
    written, fused = OnnxRuntime(path, as_written=True), OnnxRuntime(path)
    difference, itself = Difference(), Difference()
    for seed in SEEDS:
        inputs = arrays(network, seed)
        expected = written.run(inputs) if quantised else fused.run(inputs)
        answers = Execution(compilation).run(inputs)
        if quantised:
            expected = _derived(file, answers, expected)
        for total, outputs in ((difference, answers.values()), (itself, fused.run(inputs))):
            for output, reference, step in zip(outputs, expected, steps, strict=True):
                total.add(output, reference, step)
    return Outcome(compilation, difference, itself if quantised else None)


# -- the tables ----------------------------------------------------------------------------------------------------------


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, padding=0)
    for heading in headings:
        table.add_column(heading, no_wrap=True)
    return table


def places(compilation: Compilation) -> tuple[int, int]:
    """The number of operations on NNAPI, and on the host."""
    counts = operations_by_place(compilation)
    return counts.total() - counts["host"], counts["host"]


def transposes(model: Model) -> int:
    """The number of TRANSPOSEs in a model."""
    return sum(operation.type == OperationCode.TRANSPOSE for operation in model.main.operations)


def inner_transposes(model: Model) -> int:
    """The number of them between the first and the last convolution."""
    codes = [operation.type for operation in model.main.operations]
    convolutions = (OperationCode.CONV_2D, OperationCode.DEPTHWISE_CONV_2D, OperationCode.GROUPED_CONV_2D)
    at = [i for i, code in enumerate(codes) if code in convolutions]
    return codes[at[0] : at[-1]].count(OperationCode.TRANSPOSE)


def partitions(model: Model) -> list[int]:
    """Steps of the plan for each sample driver with NNAPI's CPU behind it."""
    return [len(finished(model, [driver]).plan.steps) for driver in drivers()]


def all_networks(chosen: Sequence[Network], folder: Path, console: Console) -> bool:
    """The table of all networks; True if all agree."""
    title = "Operations by place; the largest difference from ONNX Runtime in steps or shares of an output's range"
    table = _table(title, "network", "variant", "NNAPI", "host", "transposes", "largest", "off", "itself", "pass")
    passed = True
    for network in chosen:
        for variant, write in VARIANTS.items():
            with quiet():
                path = write(network, folder)
            outcome = compared(network, path)
            passed &= outcome.passed
            difference, itself = outcome.difference, outcome.itself
            largest = f"{difference.largest:.1e}" if itself is None else f"{difference.largest:.0f} steps"
            counts = (*places(outcome.compilation), transposes(outcome.compilation.model))
            shares = (f"{100 * difference.share:.3f} %", "" if itself is None else f"{100 * itself.share:.3f} %")
            table.add_row(network.name, variant, *map(str, counts), largest, *shares, "yes" if outcome.passed else "NO")
    console.print(table)
    return passed


def plain_networks(chosen: Sequence[Network], folder: Path, console: Console) -> bool:
    """The table of plain CNNs and their TFLite twins; True if all agree."""
    names = [driver.name.removeprefix("nnapi-sample_") for driver in drivers()]
    title = "Plain CNNs: transposes between convolutions, difference from the TFLite twin, steps on each driver as ONNX / TFLite"
    table = _table(title, "network", "layout", "NNAPI", "host", "between", "twin", *names, "pass")
    passed = True
    for network, layout, model, other in _twins(chosen, folder):
        compilation = finished(model)
        inputs = arrays(network, SEEDS[0])
        (answer,) = Execution(compilation).run(inputs).values()
        image = inputs["image"] if layout == "nhwc" else inputs["image"].transpose(0, 2, 3, 1)
        (expected,) = Execution(finished(other)).run([np.ascontiguousarray(image)]).values()
        difference = float(np.abs(answer - expected).max() / np.ptp(expected))
        (nnapi, host), inner = places(compilation), inner_transposes(model)
        pairs = list(zip(partitions(model), partitions(other), strict=True))
        good = host == 0 and inner == 0 and difference <= RELATIVE_TOLERANCE and all(a == b for a, b in pairs)
        passed &= good
        figures = (nnapi, host, inner, f"{difference:.1e}", *(f"{a}/{b}" for a, b in pairs))
        table.add_row(network.name, layout, *map(str, figures), "yes" if good else "NO")
    console.print(table)
    return passed


def _twins(chosen: Sequence[Network], folder: Path) -> Iterator[tuple[Network, str, Model, Model]]:
    """Plain CNNs in both layouts, each with its twin: of the same input for nhwc, of one with channels last for nchw."""
    for network in chosen:
        if network.name not in PLAIN:
            continue
        with quiet():
            path = float32(network, folder)
        for layout in ("nhwc", "nchw"):
            other = twin(network, folder / f"{network.name}.{layout}.tflite", channels_first=layout == "nhwc")
            yield network, layout, load(path, ConversionOptions(layout=layout)), load(other)


@contextmanager
def quiet() -> Iterator[None]:
    """Without the messages of exporters and quantisation."""
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def main() -> None:
    """Print the tables."""
    known = {network.name: network for network in NETWORKS}
    parser = argument_parser()
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"of {', '.join(known)}; all by default")
    parser.add_argument("--keep", type=Path, help="a folder to leave the files in")
    options = parser.parse_args()
    unknown = [name for name in options.networks if name not in known]
    if unknown:
        parser.error(f"expected one of {', '.join(known)}, found {unknown[0]}")
    chosen = [known[name] for name in options.networks or known]
    console = Console()
    with folder_of_keep(options.keep) as folder:
        agreed = all_networks(chosen, folder, console)
        plain = plain_networks(chosen, folder, console)
    sys.exit(0 if agreed and plain else 1)


if __name__ == "__main__":
    main()
