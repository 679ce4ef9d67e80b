"""Make the small models in ``models/`` again: a digit classifier as TFLite and ONNX, with reference outputs.

    python scripts/models/make_models.py                                       make everything in models/
    python scripts/models/make_models.py --output build/models --epochs 120    make it elsewhere, with longer training
    python scripts/models/make_models.py --check                               describe the files and run them again

``--check`` compares the stored reference outputs with those of the runtimes installed; it needs neither TensorFlow nor
scikit-learn.

One convolutional network of about 3,000 parameters is trained on scikit-learn's bundled digits (1,797 real images of
8x8 pixels, of which 360 are held out) and written from the same weights as

* TFLite: float32, float16 weights, dynamic range, full integer int8 and full integer uint8;
* ONNX: float32, and statically quantised in QDQ form.

Beside each model go the outputs of its reference runtime for 64 held-out images: LiteRT's reference kernels for TFLite,
ONNX Runtime's CPU provider for ONNX. ``models/README.md`` describes the files.

It needs packages that nnbridge does not; give them an environment of their own::

    python3 -m venv make-models
    make-models/bin/pip install tensorflow-cpu scikit-learn -e '.[onnx,litert,onnxruntime]'
    make-models/bin/python scripts/models/make_models.py

Seeds are fixed and TensorFlow's operations deterministic, so the same package versions on the same kind of processor
give the same files; elsewhere, weights may differ in their last bits. Every file is written whole or not at all.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import MODELS, RUNTIMES, Array, argument_parser, one_line_errors

from nnbridge.compare import load_arrays
from nnbridge.compare.references import reference
from nnbridge.converters import ConversionOptions
from nnbridge.converters.inspection import TensorInfo
from nnbridge.file import ModelFile
from nnbridge.storage.atomic import atomic_write

# Read by TensorFlow when it is imported, which is inside the functions that need it.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

Weights = dict[str, Array]
Ranges = dict[str, tuple[float, float]]
Observe = Callable[[str, Any], Any]

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


@dataclass(frozen=True)
class Data:
    """The digits, as whole numbers from 0 to 16, split into training and held-out images."""

    train_images: Array
    train_labels: Array
    test_images: Array
    test_labels: Array


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
    """Images as the network reads them: float32 from 0 to 1, shape [n, 8, 8, 1]."""
    values: Array = images[..., np.newaxis].astype(np.float32) / np.float32(BRIGHTEST)
    return values


def same(name: str, value: Any) -> Any:
    """The observer that changes nothing."""
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
    # Pooling and concatenation retain their inputs' range, so that quantised models need no rescaling here.
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
    """Training images for the ranges of quantisation."""
    return scaled(data.train_images[:CALIBRATION])


def tflite_files(weights: Weights, data: Data) -> dict[str, bytes]:
    """File name → TFLite model, all from the same weights."""
    import tensorflow as tf

    def predict(image: Any) -> dict[str, Any]:
        constants = {name: tf.constant(value) for name, value in weights.items()}
        return {OUTPUT: tf.nn.softmax(logits(constants, image))}

    signature = [tf.TensorSpec([1, 8, 8, 1], tf.float32, name=INPUT)]
    network = tf.function(predict, input_signature=signature).get_concrete_function()
    holder = tf.Module()  # The converter saves it; the network has its weights as constants.

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
        """Optimize.DEFAULT alone: large kernels as int8, activations quantised at run time."""

    def float16(converter: Any) -> None:
        converter.target_spec.supported_types = [tf.float16]

    def int8(converter: Any) -> None:
        converter.representative_dataset = samples
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = tf.int8
        # NNAPI's convolutions may have a scale per channel, its FULLY_CONNECTED may not.
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

    def conv(name: str, source: str, output: str, size: int, **attributes: Any) -> Any:
        inputs = [source, f"{name}_kernel", f"{name}_bias"]
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
        source, target = Path(folder) / "float32.onnx", Path(folder) / "qdq.onnx"
        source.write_bytes(model)
        quantize_static(
            source,
            target,
            Reader(),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
            per_channel=False,
        )
        return {"digits_float32.onnx": model, "digits_qdq.onnx": target.read_bytes()}


# --- Reference runtimes ------------------------------------------------------------------------------------------------


def model_inputs(path: Path, images: Array) -> Array:
    """Images (0 to 16) as a model reads them, one sample after another: [n, *input shape]."""
    (port,) = ModelFile(path, ConversionOptions()).inspection.inputs
    values = scaled(images).reshape(len(images), *(port.shape or ()))
    if not port.scale:
        return values
    dtype = np.dtype(port.type.lower())
    limits = np.iinfo(dtype)
    whole = np.rint(values.astype(np.float64) / port.scale) + port.zero_point
    return np.clip(whole, limits.min, limits.max).astype(dtype)


def reference_outputs(path: Path, inputs: Array) -> Array:
    """The reference runtime's output for every input: [n, *output shape]."""
    (port,) = ModelFile(path, ConversionOptions()).inspection.inputs
    runtime = reference(RUNTIMES[path.suffix], path)
    outputs = []
    for value in inputs:
        (output,) = runtime.run({port.name: value})
        outputs.append(output)
    return np.stack(outputs)


def reference_path(path: Path) -> Path:
    """The file of a model's stored reference outputs."""
    return path.with_name(f"{path.stem}.{RUNTIMES[path.suffix]}.npz")


# --- Files and the table -----------------------------------------------------------------------------------------------


def write(path: Path, content: bytes) -> None:
    """Write a file whole, or leave what was there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path, 0o644) as file:
        file.write(content)


def npz(**arrays: Array) -> bytes:
    """Arrays as a compressed .npz; the same arrays give the same bytes."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]  # any array might be the flag allow_pickle, for all mypy knows
    return buffer.getvalue()


def described(port: TensorInfo) -> str:
    """Element type, shape and quantisation."""
    type = {"FLOAT": "float32"}.get(port.type, port.type.lower())
    text = f"{type} [{', '.join(map(str, port.shape or ()))}]"
    return f"{text} (scale {port.scale:.9g}, zero point {port.zero_point})" if port.scale else text


def table(folder: Path, check: bool = False) -> list[str]:
    """The files' sizes, accuracies and operators, as Markdown; with ``check``, stored reference outputs are run again."""
    test = load_arrays(folder / "digits_test.npz")
    images, labels = test["images"], test["labels"]
    lines = [
        f"| model | bytes | input | output | correct of {len(images)} | operators |",
        "| --- | ---: | --- | --- | ---: | --- |",
    ]
    notes = []
    for path in sorted([*folder.glob("*.tflite"), *folder.glob("*.onnx")], key=lambda p: (p.suffix != ".tflite", p.name)):
        found = ModelFile(path, ConversionOptions()).inspection
        outputs = reference_outputs(path, model_inputs(path, images))
        correct = int(np.sum(outputs.reshape(len(images), -1).argmax(1) == labels))
        counted = ", ".join(f"{name} x{n}" if n > 1 else name for name, n in found.operators.items())
        size, share = path.stat().st_size, f"{correct} ({correct / len(images):.2%})"
        ports = f"{described(found.inputs[0])} | {described(found.outputs[0])}"
        lines.append(f"| {path.name} | {size:,} | {ports} | {share} | {counted} |")
        if check:
            notes.append(difference(path))
    total = sum(path.stat().st_size for path in folder.glob("digits_*"))
    return [*lines, "", f"{total:,} bytes in all, test images and reference outputs included.", *notes]


def difference(model: Path) -> str:
    """The largest difference of stored reference outputs from a new run."""
    path = reference_path(model)
    if not path.exists():
        return f"{path.name}: missing"
    arrays = {name.partition(":")[0]: array for name, array in load_arrays(path).items()}
    again = reference_outputs(model, arrays["input"])
    largest = float(np.max(np.abs(again.astype(np.float64) - arrays["output"].astype(np.float64))))
    return f"{path.name}: {len(again)} samples, largest difference from a new run {largest:g}"


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
        inputs, found = model_inputs(path, images), ModelFile(path, ConversionOptions()).inspection
        stored = {f"input:{found.inputs[0].name}": inputs, f"output:{found.outputs[0].name}": reference_outputs(path, inputs)}
        write(reference_path(path), npz(**stored, labels=labels))


def main() -> None:
    """Make or check the models; print a table of them."""
    parser = argument_parser()
    parser.add_argument("-o", "--output", type=Path, default=MODELS, metavar="DIR", help="folder of the files (default: models/)")
    parser.add_argument("--epochs", type=int, default=60, metavar="N", help="passes over the training images (default: 60)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the split and the training (default: 0)")
    parser.add_argument("--check", action="store_true", help="make nothing: describe the files there and run them again")
    options = parser.parse_args()
    if options.epochs < 1:
        parser.error("--epochs must be at least 1")
    start = time.monotonic()
    if not options.check:
        make(options.output, options.seed, options.epochs)
    print("\n".join(table(options.output, options.check)))
    print(f"{time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    with one_line_errors("tensorflow-cpu scikit-learn '.[onnx,litert,onnxruntime]'"):
        main()
