"""Networks built with TensorFlow, and their TFLite files, for ``tensorflow_models.py``."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
import keras
import tensorflow as tf
import tf_keras
from tensorflow.lite.python import schema_py_generated as schema
from tensorflow.lite.tools import flatbuffer_utils

layers = keras.layers
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
    """Two LSTM layers over 12 steps, each one operator."""
    return _recurrent(tf_keras, tf_keras.layers.LSTM)


def lstm_loop() -> Any:
    """Two LSTM layers over 12 steps, each a loop."""
    return _recurrent(keras, layers.LSTM)


def gru() -> Any:
    """Two GRU layers over 12 steps, each a loop."""
    return _recurrent(keras, layers.GRU)


def gru_unrolled() -> Any:
    """Two GRU layers over 12 steps, written out step by step."""
    return _recurrent(keras, layers.GRU, unroll=True)


def _recurrent(library: Any, layer: Any, **options: Any) -> Any:
    steps = library.Input((12, 10))
    x = layer(32, **options)(layer(40, return_sequences=True, **options)(steps))
    return library.Model(steps, library.layers.Dense(8)(x))


def unet() -> Any:
    """Three levels down and up, 64x64."""

    def twice(x: Any, channels: int) -> Any:
        for _ in range(2):
            x = layers.Conv2D(channels, 3, padding="same", activation="relu")(x)
        return x

    image = keras.Input((64, 64, 3))
    x, levels = image, []
    for channels in (8, 16, 32):
        x = twice(x, channels)
        levels.append(x)
        x = layers.MaxPooling2D()(x)
    x = twice(x, 64)
    for channels, other in zip((32, 16, 8), reversed(levels), strict=True):
        x = layers.Conv2DTranspose(channels, 2, 2, "same")(x)
        x = twice(layers.Concatenate()([x, other]), channels)
    return keras.Model(image, layers.Conv2D(3, 1, activation="sigmoid")(x))


NETWORKS: dict[str, Callable[[], Any]] = {
    build.__name__: build
    for build in (mobilenet_v3, efficientnet_lite, resnet50, transformer, lstm, lstm_loop, gru, gru_unrolled, unet)
}


def write(name: str, variant: str, seed: int, path: Path) -> None:
    """Write a network's variant, and beside it, for 8-bit weights alone, the file with its weights dequantised."""
    path.write_bytes(_written(_network(name, seed), variant, seed))
    if variant == "dynamic range":
        dequantise_weights(path, dequantised(path))


def dequantised(path: Path) -> Path:
    """The path of the file with dequantised weights."""
    return path.with_suffix(".float.tflite")


def dequantise_weights(source: Path, target: Path) -> None:
    """Write a file whose constant 8-bit weights are float32, except those that a DEQUANTIZE reads."""
    model = flatbuffer_utils.read_model(str(source))
    types = schema.TensorType
    for graph in model.subgraphs:
        for operator in graph.operators:
            if model.operatorCodes[operator.opcodeIndex].builtinCode == schema.BuiltinOperator.DEQUANTIZE:
                continue
            for tensor in (graph.tensors[i] for i in operator.inputs if i >= 0):
                data = model.buffers[tensor.buffer].data
                if tensor.type != types.INT8 or data is None or len(data) == 0:
                    continue
                quantisation = tensor.quantization
                scales = np.asarray(quantisation.scale, np.float32)
                along = [1] * len(tensor.shape)
                along[quantisation.quantizedDimension if scales.size > 1 else 0] = scales.size
                centred = np.asarray(data, np.uint8).view(np.int8).reshape(tensor.shape).astype(np.float32)
                real = (centred - np.float32(quantisation.zeroPoint[0])) * scales.reshape(along)
                model.buffers.append(schema.BufferT())
                model.buffers[-1].data = np.frombuffer(real.astype(np.float32).tobytes(), np.uint8)
                tensor.buffer, tensor.type, tensor.quantization = len(model.buffers) - 1, types.FLOAT32, None
    flatbuffer_utils.write_model(model, str(target))


@cache
def _network(name: str, seed: int) -> Any:
    keras.utils.set_random_seed(seed)
    network = NETWORKS[name]()
    _randomise(network, seed)
    return network


def _randomise(network: Any, seed: int) -> None:
    """Draw statistics and offsets of normalisations at random; they start as zeros and ones."""
    rng = np.random.default_rng(seed)
    for weight in network.weights:
        name = weight.name.rsplit("/")[-1].partition(":")[0]
        if name in ("gamma", "moving_variance"):
            weight.assign(rng.uniform(0.6, 1.4, weight.shape))
        elif name in ("beta", "moving_mean", "bias"):
            weight.assign(np.asarray(weight) + rng.normal(0, 0.1, weight.shape))


def _written(network: Any, variant: str, seed: int) -> bytes:
    """The network as a TFLite file, for a batch of one."""
    library = keras if isinstance(network, keras.Model) else tf_keras
    shape = (1, *network.input_shape[1:])
    one = library.Input(batch_shape=shape)
    converter = tf.lite.TFLiteConverter.from_keras_model(library.Model(one, network(one)))
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
    # Operators without a 16-bit form compute on floats.
    converter.target_spec.supported_ops = [sets.TFLITE_BUILTINS_INT8] if variant == "int8" else [wide, sets.TFLITE_BUILTINS]
    converter.inference_input_type = converter.inference_output_type = tf.int8 if variant == "int8" else tf.int16
