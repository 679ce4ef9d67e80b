#!/usr/bin/env python3
"""Make the small models committed in ``models/``: a digit classifier as TFLite and ONNX, with reference outputs.

One convolutional network of about 3,000 parameters is trained on scikit-learn's bundled digits (1,797 real images of
8x8 pixels, of which 360 are held out) and written from the same weights as

* TFLite: float32, float16 weights, dynamic range, full integer int8 and full integer uint8;
* ONNX: float32, and statically quantised in QDQ form.

Beside each model go the outputs of its reference runtime for 64 held-out images: LiteRT's reference kernels for TFLite,
ONNX Runtime's CPU provider for ONNX. ``models/README.md`` describes the files.

The packages it needs are not those of nnbridge itself; give them an environment of their own::

    python3 -m venv make-models
    make-models/bin/pip install tensorflow-cpu scikit-learn onnx onnxruntime ai-edge-litert tflite numpy
    make-models/bin/python scripts/make_models.py

Seeds are fixed and TensorFlow's operations deterministic, so the same package versions on the same kind of processor
give the same files; elsewhere, weights may differ in their last bits and the files with them. Every file is written
whole or not at all.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

# Read by TensorFlow when it is imported, which is inside the functions that need it.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

Array = npt.NDArray[Any]
Weights = dict[str, Array]
Ranges = dict[str, tuple[float, float]]
Observe = Callable[[str, Any], Any]

MODELS = Path(__file__).resolve().parent.parent / "models"
HELD_OUT = 360
REFERENCED = 64
CALIBRATION = 300
BRIGHTEST = 16  # Pixels of the digits are whole numbers from 0 to 16.
INPUT, OUTPUT = "image", "probabilities"

SHAPES: dict[str, tuple[int, ...]] = {
    "conv": (3, 3, 1, 8),  # height, width, channels in, channels out
    "depthwise": (3, 3, 8, 1),
    "project": (1, 1, 8, 8),
    "mix": (1, 1, 16, 16),
    "classify": (256, 10),
}
"""The trained layers, in TensorFlow's layout; each has a bias as well, named ``<layer>_bias``."""

EXAMPLES = """\
examples:
  make everything in models/ again:
      python scripts/make_models.py
  make it somewhere else, training for longer with another seed:
      python scripts/make_models.py --output build/models --epochs 120 --seed 7
  only look: print the table for the files that are there, and compare the stored reference
  outputs with those of the runtimes installed now (needs neither TensorFlow nor scikit-learn):
      python scripts/make_models.py --check
"""


@dataclass(frozen=True)
class Data:
    """The digits, as whole numbers from 0 to 16, split into training and held-out images."""

    train_images: Array
    train_labels: Array
    test_images: Array
    test_labels: Array


@dataclass(frozen=True)
class Port:
    """A model's input or output as the runtime gives it: name, shape, element type, and scale and zero point if quantised."""

    name: str
    shape: tuple[int, ...]
    dtype: npt.DTypeLike
    scale: float = 0.0
    zero_point: int = 0

    def quantise(self, values: Array) -> Array:
        """Real values as this port takes them."""
        if not self.scale:
            return values.astype(self.dtype)
        limits = np.iinfo(np.dtype(self.dtype))
        whole = np.rint(values.astype(np.float64) / self.scale) + self.zero_point
        taken: Array = np.clip(whole, limits.min, limits.max).astype(self.dtype)
        return taken

    def __str__(self) -> str:
        text = f"{np.dtype(self.dtype)} [{', '.join(map(str, self.shape))}]"
        return f"{text} (scale {self.scale:.9g}, zero point {self.zero_point})" if self.scale else text


# --- Data and training -------------------------------------------------------------------------------------------------


def load_data(seed: int) -> Data:
    """scikit-learn's digits with a stratified held-out split."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    images, labels = digits.images.astype(np.uint8), digits.target.astype(np.uint8)
    train_images, test_images, train_labels, test_labels = train_test_split(
        images, labels, test_size=HELD_OUT, stratify=labels, random_state=seed
    )
    return Data(train_images, train_labels, test_images, test_labels)


def scaled(images: Array) -> Array:
    """Images as the network takes them: float32 from 0 to 1, shape [n, 8, 8, 1]."""
    values: Array = images[..., np.newaxis].astype(np.float32) / np.float32(BRIGHTEST)
    return values


def same(name: str, value: Any) -> Any:
    """The observer that leaves everything as it is."""
    return value


def logits(weights: dict[str, Any], image: Any, observe: Observe = same) -> Any:
    """The network up to its softmax, in TensorFlow.

    ``observe`` sees the input, each kernel and each activation by name, and may replace it: calibration records ranges
    with it, and the uint8 export quantises with it.
    """
    import tensorflow as tf

    def kernel(name: str) -> Any:
        return observe(f"{name}_kernel", weights[name])

    def biased(name: str, value: Any) -> Any:
        return tf.nn.bias_add(value, weights[f"{name}_bias"])

    image = observe("image", image)
    first = tf.nn.conv2d(image, kernel("conv"), 1, "SAME")
    first = observe("conv", tf.nn.relu(biased("conv", first)))
    deep = tf.nn.depthwise_conv2d(first, kernel("depthwise"), [1, 1, 1, 1], "SAME")
    deep = observe("depthwise", tf.nn.relu6(biased("depthwise", deep)))
    deep = observe("project", biased("project", tf.nn.conv2d(deep, kernel("project"), 1, "SAME")))
    total = observe("add", tf.nn.relu(tf.add(first, deep)))
    highest = tf.nn.max_pool2d(total, 2, 2, "VALID")
    average = tf.nn.avg_pool2d(total, 2, 2, "VALID")
    # Pooling and concatenation keep their inputs' range, so that quantised models need no rescaling here.
    both = observe("concat", tf.concat([highest, average], 3))
    mixed = observe("mix", tf.nn.relu(biased("mix", tf.nn.conv2d(both, kernel("mix"), 1, "SAME"))))
    flat = tf.reshape(mixed, [image.shape[0] or -1, SHAPES["classify"][0]])
    return observe("classify", biased("classify", tf.matmul(flat, kernel("classify"))))


def train(data: Data, seed: int, epochs: int, batch: int = 32, rate: float = 4e-3, noise: float = 0.08) -> Weights:
    """Trained weights, in TensorFlow's layout: Adam, a falling learning rate, a little weight decay, noisy images.

    The settings were chosen on validation images taken from the training images; the held-out ones had no part in it.
    """
    import tensorflow as tf

    tf.config.experimental.enable_op_determinism()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.random.set_seed(seed)
    rng = np.random.default_rng(seed)
    variables: dict[str, Any] = {}
    for name, shape in SHAPES.items():
        fan_in = int(np.prod(shape[:2] if name == "depthwise" else shape[:-1]))
        variables[name] = tf.Variable(rng.normal(0, np.sqrt(2 / fan_in), shape).astype(np.float32))
        variables[f"{name}_bias"] = tf.Variable(np.zeros(shape[2] if name == "depthwise" else shape[-1], np.float32))
    trained = list(variables.values())
    steps = epochs * -(-len(data.train_images) // batch)
    optimiser = tf.keras.optimizers.Adam(tf.keras.optimizers.schedules.CosineDecay(rate, steps))
    optimiser.build(trained)

    def step(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            answers = logits(variables, images)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=answers))
            decay = tf.add_n([tf.nn.l2_loss(variables[name]) for name in SHAPES])
            total = loss + 1e-3 * decay
        optimiser.apply_gradients(zip(tape.gradient(total, trained), trained, strict=True))
        return loss

    compiled = tf.function(step, reduce_retracing=True)
    images, labels = scaled(data.train_images), data.train_labels.astype(np.int32)
    for epoch in range(epochs):
        order = rng.permutation(len(images))
        losses = []
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            noisy = np.clip(images[chosen] + rng.normal(0, noise, images[chosen].shape), 0, 1).astype(np.float32)
            losses.append(float(compiled(tf.constant(noisy), tf.constant(labels[chosen]))))
        if (epoch + 1) % 10 == 0 or epoch + 1 == epochs:
            print(f"epoch {epoch + 1:3d} of {epochs}: training loss {np.mean(losses):.4f}", flush=True)
    return {name: variable.numpy() for name, variable in variables.items()}


# --- TFLite ------------------------------------------------------------------------------------------------------------


def calibration_images(data: Data) -> Array:
    """Training images that quantisation takes its ranges from."""
    return scaled(data.train_images[:CALIBRATION])


def tflite_files(weights: Weights, data: Data) -> dict[str, bytes]:
    """File name → TFLite model, all from the same weights."""
    import tensorflow as tf

    def predict(image: Any) -> dict[str, Any]:
        constants = {name: tf.constant(value) for name, value in weights.items()}
        return {OUTPUT: tf.nn.softmax(logits(constants, image))}

    signature = [tf.TensorSpec([1, 8, 8, 1], tf.float32, name=INPUT)]
    network = tf.function(predict, input_signature=signature).get_concrete_function()
    holder = tf.Module()  # What the converter saves; the network has its weights as constants.

    def samples() -> Iterator[list[Array]]:
        for image in calibration_images(data):
            yield [image[np.newaxis]]

    def convert(adjust: Callable[[Any], None] | None = None) -> bytes:
        converter = tf.lite.TFLiteConverter.from_concrete_functions([network], holder)
        if adjust is not None:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
            adjust(converter)
        model: bytes = converter.convert()
        return model

    def dynamic(converter: Any) -> None:
        """Optimize.DEFAULT alone: large enough kernels as int8, activations quantised as the model runs."""

    def float16(converter: Any) -> None:
        converter.target_spec.supported_types = [tf.float16]

    def int8(converter: Any) -> None:
        converter.representative_dataset = samples
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = tf.int8
        # NNAPI's convolutions take a scale per channel, its FULLY_CONNECTED does not.
        converter._experimental_disable_per_channel_quantization_for_dense_layers = True

    return {
        "digits_float32.tflite": convert(),
        "digits_float16.tflite": convert(float16),
        "digits_dynamic.tflite": convert(dynamic),
        "digits_int8.tflite": convert(int8),
        "digits_uint8.tflite": tflite_uint8(weights, calibrate(weights, calibration_images(data))),
    }


def calibrate(weights: Weights, images: Array) -> Ranges:
    """The range of every observed tensor over some images, always with zero in it."""
    import tensorflow as tf

    ranges: Ranges = {}

    def record(name: str, value: Any) -> Any:
        ranges[name] = (min(0.0, float(np.min(value))), max(0.0, float(np.max(value))))
        return value

    logits({name: tf.constant(value) for name, value in weights.items()}, tf.constant(images), record)
    ranges["image"] = (0.0, 1.0)
    ranges["concat"] = ranges["add"]
    return ranges


def tflite_uint8(weights: Weights, ranges: Ranges) -> bytes:
    """A model whose activations and kernels all are uint8 with one scale and zero point per tensor.

    TensorFlow's post-training quantiser knows only int8 inside a model and puts QUANTIZE at both ends for uint8 callers.
    The older converter still writes uint8 throughout for a graph with explicit (fake) quantisation.
    """
    import tensorflow as tf

    graph = tf.Graph()
    with graph.as_default():

        def quantise(name: str, value: Any) -> Any:
            low, high = ranges[name]
            return tf.quantization.fake_quant_with_min_max_args(value, low, high, num_bits=8, name=f"quantise_{name}")

        image = tf.compat.v1.placeholder(tf.float32, [1, 8, 8, 1], name=INPUT)
        constants = {name: tf.constant(value) for name, value in weights.items()}
        output = tf.nn.softmax(logits(constants, image, quantise), name=OUTPUT)
        converter = tf.compat.v1.lite.TFLiteConverter(graph.as_graph_def(), [image], [output])
        converter.inference_type = converter.inference_input_type = converter.inference_output_type = tf.uint8
        converter.quantized_input_stats = {INPUT: (0.0, 255.0)}  # zero point, 1 / scale
        model: bytes = converter.convert()
    return model


# --- ONNX --------------------------------------------------------------------------------------------------------------


def onnx_float32(weights: Weights) -> Any:
    """The network as an ONNX model: the same weights in ONNX's layouts, NCHW, batch of one."""
    from onnx import TensorProto, checker, helper, numpy_helper

    # [height, width, in, out] → [out, in, height, width]; a depthwise kernel's channels become its outputs.
    kernels = {name: weights[name].transpose(3, 2, 0, 1) for name in ("conv", "project", "mix")}
    kernels["depthwise"] = weights["depthwise"].transpose(2, 3, 0, 1)
    # The fully connected layer's inputs were flattened as [height, width, channel], here as [channel, height, width].
    kernels["classify"] = weights["classify"].reshape(4, 4, 16, 10).transpose(3, 2, 0, 1).reshape(10, 256)
    constants = [numpy_helper.from_array(np.ascontiguousarray(kernels[name]), f"{name}_kernel") for name in SHAPES]
    constants += [numpy_helper.from_array(weights[f"{name}_bias"], f"{name}_bias") for name in SHAPES]
    constants += [numpy_helper.from_array(np.float32(value), name) for name, value in (("zero", 0), ("six", 6))]

    def node(kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> Any:
        return helper.make_node(kind, list(inputs), [output], name=f"{output}_node", **attributes)

    def conv(name: str, given: str, output: str, size: int, **attributes: Any) -> Any:
        inputs = [given, f"{name}_kernel", f"{name}_bias"]
        return node("Conv", inputs, output, kernel_shape=[size, size], pads=[size // 2] * 4, **attributes)

    halve = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [
        conv("conv", INPUT, "conv_sum", 3),
        node("Relu", ["conv_sum"], "conv"),
        conv("depthwise", "conv", "depthwise_sum", 3, group=8),
        node("Clip", ["depthwise_sum", "zero", "six"], "depthwise"),
        conv("project", "depthwise", "project", 1),
        node("Add", ["conv", "project"], "add_sum"),
        node("Relu", ["add_sum"], "add"),
        node("MaxPool", ["add"], "highest", **halve),
        node("AveragePool", ["add"], "average", **halve),
        node("Concat", ["highest", "average"], "concat", axis=1),
        conv("mix", "concat", "mix_sum", 1),
        node("Relu", ["mix_sum"], "mix"),
        node("Flatten", ["mix"], "flat", axis=1),
        node("Gemm", ["flat", "classify_kernel", "classify_bias"], "classify", transB=1),
        node("Softmax", ["classify"], OUTPUT, axis=-1),
    ]
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, [1, 1, 8, 8])],
        [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, [1, 10])],
        constants,
    )
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name="nnbridge make_models.py")
    checker.check_model(model, full_check=True)
    return model


def onnx_files(weights: Weights, data: Data) -> dict[str, bytes]:
    """File name → ONNX model: float32, and quantised (int8, one scale per tensor) with QuantizeLinear/DequantizeLinear."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    model = onnx_float32(weights).SerializeToString()
    images = iter(calibration_images(data).transpose(0, 3, 1, 2)[:, np.newaxis])

    class Reader(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime has no annotations
        """Training images, one by one."""

        def get_next(self) -> dict[str, Array] | None:
            image = next(images, None)
            return None if image is None else {INPUT: image}

    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder) / "float32.onnx", Path(folder) / "qdq.onnx"
        given.write_bytes(model)
        quantize_static(
            given,
            made,
            Reader(),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
            per_channel=False,
        )
        quantised = made.read_bytes()
    return {"digits_float32.onnx": model, "digits_qdq.onnx": quantised}


# --- Reference runtimes ------------------------------------------------------------------------------------------------


class LiteRT:
    """A TFLite model on LiteRT's reference kernels, one thread."""

    runtime = "litert"

    def __init__(self, path: Path) -> None:
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        self._interpreter = Interpreter(
            model_path=str(path), experimental_op_resolver_type=OpResolverType.BUILTIN_REF, num_threads=1
        )
        self._interpreter.allocate_tensors()
        self.input = self._port(self._interpreter.get_input_details())
        self.output = self._port(self._interpreter.get_output_details())

    @staticmethod
    def _port(details: Sequence[dict[str, Any]]) -> Port:
        (detail,) = details
        scale, zero_point = detail["quantization"]
        return Port(detail["name"], tuple(map(int, detail["shape"])), detail["dtype"], float(scale), int(zero_point))

    def run(self, value: Array) -> Array:
        self._interpreter.set_tensor(self._interpreter.get_input_details()[0]["index"], value)
        self._interpreter.invoke()
        return np.array(self._interpreter.get_tensor(self._interpreter.get_output_details()[0]["index"]))


class OnnxRuntime:
    """An ONNX model on ONNX Runtime's CPU provider, one thread."""

    runtime = "onnxruntime"

    def __init__(self, path: Path) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        (given,), (made,) = self._session.get_inputs(), self._session.get_outputs()
        self.input = Port(given.name, tuple(given.shape), np.float32)
        self.output = Port(made.name, tuple(made.shape), np.float32)

    def run(self, value: Array) -> Array:
        return np.asarray(self._session.run(None, {self.input.name: value})[0])


def reference(path: Path) -> LiteRT | OnnxRuntime:
    """The reference runtime for a model file."""
    return LiteRT(path) if path.suffix == ".tflite" else OnnxRuntime(path)


def model_inputs(port: Port, images: Array) -> Array:
    """Images (0 to 16) exactly as a model takes them, one sample after another: [n, *input shape]."""
    return port.quantise(scaled(images).reshape(len(images), *port.shape))


def answers(model: LiteRT | OnnxRuntime, inputs: Array) -> Array:
    """A model's output for every input: [n, *output shape]."""
    return np.stack([model.run(value) for value in inputs])


def reference_path(path: Path, model: LiteRT | OnnxRuntime) -> Path:
    """Where a model's reference outputs are stored."""
    return path.with_name(f"{path.stem}.{model.runtime}.npz")


def operators(path: Path) -> list[str]:
    """Names of a model's operators, in the file's order."""
    if path.suffix == ".onnx":
        import onnx

        return [node.op_type for node in onnx.load(path).graph.node]
    import tflite

    names = {value: name for name, value in vars(tflite.BuiltinOperator).items() if isinstance(value, int)}
    model = tflite.Model.GetRootAs(path.read_bytes(), 0)
    graph = model.Subgraphs(0)
    codes = [model.OperatorCodes(graph.Operators(k).OpcodeIndex()) for k in range(graph.OperatorsLength())]
    return [names[max(code.BuiltinCode(), code.DeprecatedBuiltinCode())] for code in codes]


# --- Files and the table -----------------------------------------------------------------------------------------------


def write(path: Path, content: bytes) -> None:
    """Write a file whole: under another name first, then renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def npz(**arrays: Array) -> bytes:
    """Arrays as a compressed .npz; the same arrays give the same bytes."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]  # any array might be the flag allow_pickle, for all mypy knows
    return buffer.getvalue()


def table(folder: Path, check: bool = False) -> list[str]:
    """The files' sizes, accuracies and operators, as Markdown; with ``check``, stored reference outputs are run again."""
    with np.load(folder / "digits_test.npz", allow_pickle=False) as file:
        images, labels = file["images"], file["labels"]
    lines = [
        f"| model | bytes | input | output | correct of {len(images)} | operators |",
        "| --- | ---: | --- | --- | ---: | --- |",
    ]
    notes = []
    for path in sorted([*folder.glob("*.tflite"), *folder.glob("*.onnx")], key=lambda p: (p.suffix != ".tflite", p.name)):
        model = reference(path)
        made = answers(model, model_inputs(model.input, images))
        correct = int(np.sum(made.reshape(len(images), -1).argmax(1) == labels))
        counted = ", ".join(f"{name} x{n}" if n > 1 else name for name, n in Counter(operators(path)).items())
        size, share = path.stat().st_size, f"{correct} ({correct / len(images):.2%})"
        lines.append(f"| {path.name} | {size:,} | {model.input} | {model.output} | {share} | {counted} |")
        if check:
            notes.append(difference(reference_path(path, model), model))
    total = sum(path.stat().st_size for path in folder.glob("digits_*"))
    return [*lines, "", f"{total:,} bytes in all, test images and reference outputs included.", *notes]


def difference(path: Path, model: LiteRT | OnnxRuntime) -> str:
    """How far stored reference outputs are from what the runtime gives now."""
    if not path.exists():
        return f"{path.name}: missing"
    with np.load(path, allow_pickle=False) as file:
        inputs, stored = file[f"input:{model.input.name}"], file[f"output:{model.output.name}"]
    again = answers(model, inputs)
    largest = float(np.max(np.abs(again.astype(np.float64) - stored.astype(np.float64))))
    return f"{path.name}: {len(inputs)} samples, largest difference from a new run {largest:g}"


def make(folder: Path, seed: int, epochs: int) -> None:
    """Train, export and write everything."""
    data = load_data(seed)
    weights = train(data, seed, epochs)
    print(f"{sum(value.size for value in weights.values()):,} parameters trained; exporting", flush=True)
    files = {**tflite_files(weights, data), **onnx_files(weights, data)}
    write(folder / "digits_test.npz", npz(images=data.test_images, labels=data.test_labels))
    images, labels = data.test_images[:REFERENCED], data.test_labels[:REFERENCED]
    for name, content in files.items():
        path = folder / name
        write(path, content)
        model = reference(path)
        inputs = model_inputs(model.input, images)
        stored = {f"input:{model.input.name}": inputs, f"output:{model.output.name}": answers(model, inputs), "labels": labels}
        write(reference_path(path, model), npz(**stored))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Make the small digit models in models/ again: TFLite and ONNX, float and quantised, with the outputs "
        "of LiteRT and ONNX Runtime for held-out images.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-o", "--output", type=Path, default=MODELS, metavar="DIR", help="where the files go (default: models/)")
    parser.add_argument("--epochs", type=int, default=60, metavar="N", help="passes over the training images (default: 60)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the split and the training (default: 0)")
    parser.add_argument("--check", action="store_true", help="make nothing: describe the files there and run them again")
    options = parser.parse_args(arguments)
    if options.epochs < 1:
        parser.error("--epochs must be at least 1")
    start = time.monotonic()
    try:
        if not options.check:
            make(options.output, options.seed, options.epochs)
        lines = table(options.output, options.check)
    except ModuleNotFoundError as error:
        print(f"{error}; the first lines of this script say what to install", file=sys.stderr)
        return 1
    except FileNotFoundError as error:
        print(f"{error.filename}: not there", file=sys.stderr)
        return 1
    print("\n".join(lines))
    print(f"{time.monotonic() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
