"""Whole networks on compiled programs against the reference kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nnbridge import load
from nnbridge.cpu.compiled.instructions import InstructionSet
from nnbridge.cpu.compiled.planning import plan
from tests.compiled.hybrid import Hybrid, candidates, reference
from tests.compiled.models import assert_same

QUANTISED = ["mobilenet_v2_1.0_224_quant", "kws_ref_model", "micro_speech_quantized", "ssd_mobilenet_v1_quant_postprocess"]
REAL = ["mobilenet_v1_0.25_224_float", "ultraface_rfb_320", "hello_world_float"]


def images(rng: np.random.Generator, dims: tuple[int, ...], dtype: np.dtype) -> list[np.ndarray]:
    """Noise, and blocks of one colour, whose sums are far from zero."""
    made = []
    for block in (1, 16):
        coarse = tuple(-(-d // block) if 0 < axis < 3 and len(dims) == 4 else d for axis, d in enumerate(dims))
        values = rng.integers(0, 256, coarse)
        for axis in (1, 2) if len(dims) == 4 else ():
            values = values.repeat(block, axis)[tuple(slice(d) for d in dims)]
        made.append((values / 127.5 - 1).astype(dtype) if dtype == np.float32 else values.astype(np.uint8).view(dtype))
    return made


@pytest.mark.parametrize("name", QUANTISED)
def test_quantised_networks_are_equal_bit_for_bit(real_models: Path, isa: InstructionSet, name: str) -> None:
    hybrid = Hybrid(load(real_models / f"{name}.tflite"), isa)
    x = hybrid.plan.programs[0].inputs[0]
    arg = next(arg for c in hybrid.calls for i, arg in zip(c.inputs, c.call.args, strict=True) if i == x)
    for image in images(np.random.default_rng(0), arg.dims, np.dtype(arg.dtype)):
        for expected, found in zip(hybrid.reference([image]), hybrid.run([image]), strict=True):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", REAL)
def test_real_networks_are_close(real_models: Path, isa: InstructionSet, name: str) -> None:
    hybrid = Hybrid(load(real_models / f"{name}.tflite"), isa)
    assert not hybrid.plan.left
    dims = hybrid.calls[0].call.args[0].dims
    for image in images(np.random.default_rng(0), dims, np.dtype(np.float32)):
        for expected, found in zip(hybrid.reference([image]), hybrid.run([image]), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-5)


def test_a_per_channel_network_is_equal_bit_for_bit(real_models: Path, isa: InstructionSet) -> None:
    """Up to the operation of a host extension that stands in the middle of the file."""
    model = load(real_models / "tf2_mobilenet_v2_1.0_224_ptq.tflite")
    found = candidates(model)
    (program, *_) = plan(found, model.main.outputs, isa).programs
    assert len(program.operations) >= 64
    image = images(np.random.default_rng(0), (1, 224, 224, 3), np.dtype(np.uint8))[1]
    outputs = [np.zeros(shape, dtype) for shape, dtype in program.shapes]
    program.run([image], outputs)
    values = {program.inputs[0]: image}
    for index in program.operations:
        candidate = found[index]
        values.update(zip(candidate.outputs, reference(candidate, values), strict=True))
    assert outputs
    for i, output in zip(program.outputs, outputs, strict=True):
        np.testing.assert_array_equal(output, values[i])


def test_threads_do_not_change_answers(real_models: Path) -> None:
    hybrid = Hybrid(load(real_models / "mobilenet_v1_0.25_224_float.tflite"))
    (program,) = hybrid.plan.programs
    image = images(np.random.default_rng(0), (1, 224, 224, 3), np.dtype(np.float32))[0]
    answers = []
    for threads in (1, 2, 3):
        out = np.zeros(*program.shapes[0])
        program.run([image], [out], threads)
        answers.append(out)
    assert_same(answers[1], answers[0])
    np.testing.assert_array_equal(answers[1], answers[0])
    np.testing.assert_array_equal(answers[2], answers[0])
