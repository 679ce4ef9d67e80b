"""Make networks with TensorFlow, convert them with nnbridge, and compare with LiteRT's reference kernels.

pip install tensorflow ai-edge-litert -e .
python scripts/tensorflow_models.py
python scripts/tensorflow_models.py --networks resnet50 gru --variants int8 int16x8 --keep folder

Weights are random by a seed. Each network is written as float32, with float16 weights, with 8-bit weights (dynamic range),
as int8 throughout, and as int8 with int16 activations. A row tells how many operations went to NNAPI and to the host, the
largest difference (as a share of the reference's range, or in steps of integers), the share of elements that are not equal,
and the verdict. Exit status 0 only if every file that TensorFlow's converter makes agrees.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nnbridge import Compilation, NnbridgeError, load
from nnbridge.compare import RELATIVE_TO_RANGE, Comparison, compare, seeded_samples
from nnbridge.references import reference

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
import keras
import tensorflow as tf

layers = keras.layers
HEAD = f"{'network':<18} {'variant':<14} {'bytes':>10} {'NNAPI':>6} {'host':>5} {'max diff':>9} {'off':>7}  verdict"
CALIBRATION_SAMPLES = 8


def mobilenet_v3() -> Any:
    """MobileNetV3 small, 96x96."""
    return keras.applications.MobileNetV3Small((96, 96, 3), weights=None, classes=50, classifier_activation=None)


def efficientnet_lite() -> Any:
    """Inverted residuals without squeeze and excitation, ReLU6: what makes an EfficientNet a lite one."""

    def block(x: Any, channels: int, expansion: int, kernel: int, strides: int) -> Any:
        inside = _normalised(layers.Conv2D(x.shape[-1] * expansion, 1, use_bias=False)(x))
        inside = _normalised(layers.DepthwiseConv2D(kernel, strides, "same", use_bias=False)(inside))
        inside = layers.BatchNormalization()(layers.Conv2D(channels, 1, use_bias=False)(inside))
        return layers.Add()([x, inside]) if strides == 1 and x.shape[-1] == channels else inside

    image = keras.Input((96, 96, 3))
    x = _normalised(layers.Conv2D(16, 3, 2, "same", use_bias=False)(image))
    for channels, expansion, kernel, strides in (
        (16, 1, 3, 1),
        (24, 6, 3, 2),
        (24, 6, 3, 1),
        (40, 6, 5, 2),
        (40, 6, 5, 1),
        (80, 6, 3, 2),
    ):
        x = block(x, channels, expansion, kernel, strides)
    x = layers.GlobalAveragePooling2D()(_normalised(layers.Conv2D(160, 1, use_bias=False)(x)))
    return keras.Model(image, layers.Dense(50, activation="softmax")(x))


def _normalised(x: Any) -> Any:
    return layers.ReLU(6.0)(layers.BatchNormalization()(x))


def resnet50() -> Any:
    """ResNet50, 64x64."""
    return keras.applications.ResNet50(weights=None, input_shape=(64, 64, 3), classes=50, classifier_activation=None)


def transformer() -> Any:
    """Two encoder blocks of four heads over 16 steps."""
    steps = keras.Input((16, 24))
    x = layers.Dense(32)(steps)
    for _ in range(2):
        attended = layers.MultiHeadAttention(4, 8)(x, x)
        x = layers.LayerNormalization()(layers.Add()([x, attended]))
        inside = layers.Dense(32)(layers.Dense(64, activation="gelu")(x))
        x = layers.LayerNormalization()(layers.Add()([x, inside]))
    return keras.Model(steps, layers.Dense(10)(layers.GlobalAveragePooling1D()(x)))


def lstm() -> Any:
    """Two LSTM layers over 12 steps."""
    return _recurrent(layers.LSTM)


def gru() -> Any:
    """Two GRU layers over 12 steps."""
    return _recurrent(layers.GRU)


def _recurrent(layer: Any) -> Any:
    steps = keras.Input((12, 10))
    x = layer(20)(layer(24, return_sequences=True)(steps))
    return keras.Model(steps, layers.Dense(8)(x))


def unet() -> Any:
    """Three levels down and up, 64x64."""

    def twice(x: Any, channels: int) -> Any:
        for _ in range(2):
            x = layers.Conv2D(channels, 3, padding="same", activation="relu")(x)
        return x

    image = keras.Input((64, 64, 3))
    x, kept = image, []
    for channels in (8, 16, 32):
        x = twice(x, channels)
        kept.append(x)
        x = layers.MaxPooling2D()(x)
    x = twice(x, 64)
    for channels, other in zip((32, 16, 8), reversed(kept), strict=True):
        x = layers.Conv2DTranspose(channels, 2, 2, "same")(x)
        x = twice(layers.Concatenate()([x, other]), channels)
    return keras.Model(image, layers.Conv2D(3, 1, activation="sigmoid")(x))


NETWORKS: dict[str, Callable[[], Any]] = {
    f.__name__: f for f in (mobilenet_v3, efficientnet_lite, resnet50, transformer, lstm, gru, unet)
}
VARIANTS = ("float32", "float16", "dynamic range", "int8", "int16x8")


def randomise(network: Any, seed: int) -> None:
    """Statistics and offsets of normalisations, which start as zeros and ones, drawn at random."""
    rng = np.random.default_rng(seed)
    for weight in network.weights:
        if weight.name in ("gamma", "moving_variance"):
            weight.assign(rng.uniform(0.6, 1.4, weight.shape))
        elif weight.name in ("beta", "moving_mean", "bias"):
            weight.assign(np.asarray(weight) + rng.normal(0, 0.1, weight.shape))


def written(network: Any, variant: str, seed: int) -> bytes:
    """The network as a TFLite file, for a batch of one."""
    shape = (1, *network.input_shape[1:])
    one = keras.Input(batch_shape=shape)
    converter = tf.lite.TFLiteConverter.from_keras_model(keras.Model(one, network(one)))
    _choose(converter, variant, shape, seed)
    with contextlib.redirect_stdout(io.StringIO()):  # Keras prints what it exports.
        return bytes(converter.convert())


def _choose(converter: Any, variant: str, shape: tuple[int, ...], seed: int) -> None:
    if variant == "float32":
        return
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if variant == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if not variant.startswith("int"):
        return
    rng = np.random.default_rng(seed)
    calibration = [[rng.standard_normal(shape).astype(np.float32)] for _ in range(CALIBRATION_SAMPLES)]
    converter.representative_dataset = lambda: iter(calibration)
    sets = tf.lite.OpsSet
    wide = sets.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8
    converter.target_spec.supported_ops = [sets.TFLITE_BUILTINS_INT8 if variant == "int8" else wide]
    converter.inference_input_type = converter.inference_output_type = tf.int8 if variant == "int8" else tf.int16


@dataclass(frozen=True)
class Row:
    """One network in one variant."""

    network: str
    variant: str
    verdict: str
    agrees: bool
    bytes: int = 0
    nnapi: int = 0
    host: int = 0
    largest: str = ""
    off: float = 0.0

    def __str__(self) -> str:
        figures = f"{self.bytes:>10,} {self.nnapi:>6} {self.host:>5} {self.largest:>9} {self.off:>7.2%}"
        return f"{self.network:<18} {self.variant:<14} {figures}  {self.verdict}"


def checked(name: str, variant: str, path: Path, seeds: Sequence[int]) -> Row:
    """Convert a file with nnbridge and compare it with LiteRT."""
    size = path.stat().st_size
    try:
        compilation = Compilation.create(load(path), [])
        plan = compilation.finish()
        result = compare(compilation, "litert", seeded_samples(compilation.model, reference("litert", path), seeds))
    except NnbridgeError as error:
        return Row(name, variant, f"FAIL: {error}", False, size)
    kinds = [plan.device_of(i).kind for i in range(len(compilation.model.main.operations))]
    off = sum(o.mismatches for o in result.outputs) / max(1, sum(o.elements for o in result.outputs))
    verdict = (
        "pass" if result.passed else f"FAIL: {'; '.join(o.problem or f'{o.name} beyond {o.atol:.3g}' for o in result.outputs)}"
    )
    host = kinds.count("host")
    return Row(name, variant, verdict, result.passed, size, len(kinds) - host, host, _largest(result), off)


def _largest(result: Comparison) -> str:
    output = max(result.outputs, key=lambda o: o.max_abs_diff)
    if output.max_quant_diff is not None:
        return f"{output.max_quant_diff} st"
    return f"{output.max_abs_diff / (output.atol / RELATIVE_TO_RANGE or 1.0):.1e}"


def main() -> None:
    """Make, convert, compare; print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS), metavar="NAME", help=", ".join(NETWORKS)
    )
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS, metavar="NAME", help=", ".join(VARIANTS))
    parser.add_argument("--seed", type=int, default=0, help="of weights and calibration")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of the compared inputs")
    parser.add_argument("--keep", type=Path, help="a folder to leave the files in")
    options = parser.parse_args()
    started, failed, refused = time.monotonic(), 0, 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        print(HEAD)
        for name in options.networks:
            keras.utils.set_random_seed(options.seed)
            network = NETWORKS[name]()
            randomise(network, options.seed)
            for variant in options.variants:
                path = folder / f"{name}_{variant.replace(' ', '_')}.tflite"
                try:
                    path.write_bytes(written(network, variant, options.seed))
                except Exception as error:  # TensorFlow's converter raises what it likes.
                    print(f"{name:<18} {variant:<14} refused by TensorFlow's converter: {_reason(error)}", flush=True)
                    refused += 1
                    continue
                row = checked(name, variant, path, options.seeds)
                failed += not row.agrees
                print(row, flush=True)
    print(f"{failed} failed, {refused} refused by TensorFlow's converter, {time.monotonic() - started:.0f} s")
    sys.exit(1 if failed else 0)


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in lines if "error:" in line), lines[0] if lines else type(error).__name__)[:200]


if __name__ == "__main__":
    main()
