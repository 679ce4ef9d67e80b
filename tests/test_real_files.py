"""Every published model of the shared folder: against its own runtime, on every sample driver, saved and read again."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from nnbridge import storage
from nnbridge.compare import compare, fallbacks_of, seeded_inputs, seeded_samples
from nnbridge.compare.explanation import AMPLIFIED, with_causes
from nnbridge.compare.references import reference
from nnbridge.converters import ConversionOptions
from nnbridge.devices import Device, device
from nnbridge.devices.device import Performance, uniform_capabilities
from nnbridge.devices.samples import SAMPLE_DRIVERS, SampleDriver
from nnbridge.errors import InputError
from nnbridge.file import load
from nnbridge.model import Location, Model, Operand
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.execution import Execution
from tests.conftest import shared_folder

NOT_LOADED = ("person_detect",)
"""Files that their own runtime does not load: tests/tflite/test_micro.py."""
SIZED_BY_INPUTS = ("seanet_transpose_conv1_int16",)
"""Files that both refuse for random inputs: tests/tflite/test_host.py has others."""
SHAPES = {"silero_vad_16k_op15": {"input": (1, 512), "state": (2, 1, 128)}}
"""Files with unspecified dimensions → dimensions that fit together."""
RUNTIMES = {".tflite": "litert", ".onnx": "onnxruntime"}
FILES = sorted(p for p in (shared_folder() / "models").rglob("*") if p.suffix in RUNTIMES)
RUNNING = [p for p in FILES if p.stem not in (*NOT_LOADED, *SIZED_BY_INPUTS)]
_ABSENT = pytest.mark.skip(reason="needs published models, which are not part of the repository (NNBRIDGE_SHARED)")
each_file = pytest.mark.parametrize(
    "path", RUNNING or [pytest.param(None, marks=_ABSENT)], ids=lambda p: "none" if p is None else p.name
)


@cache
def _model(path: Path) -> Model:
    return load(path, ConversionOptions(shapes=SHAPES.get(path.stem, {})))


@cache
def _answers(path: Path) -> dict[str, np.ndarray]:
    return _run(_model(path), [])[0]


def _run(model: Model, chosen: list[Device]) -> tuple[dict[str, np.ndarray], set[str]]:
    """Outputs for seed 0, and the kinds of place that computed them; asserts that nothing fell back."""
    compilation = Compilation.create(model, chosen)
    plan = compilation.finish()
    execution = Execution(compilation)
    answers = dict(execution.run(seeded_inputs(model, 0)))
    assert fallbacks_of(execution) == []
    return answers, {plan.devices[step.device].kind for step in plan.steps}


def _same(path: Path, found: dict[str, np.ndarray]) -> None:
    """Bit equality with the answers without a driver. Where those come of a model whose open dimensions have become known, which
    a driver's plan and a saved model do not have, sums have another order."""
    answers, rounding = _answers(path), 0.0 if _model(path).resolution is None else 1e-6
    assert found.keys() == answers.keys()
    for name, value in found.items():
        np.testing.assert_allclose(value, answers[name], rtol=rounding, atol=0, err_msg=name, strict=True)


@each_file
def test_file_agrees_with_its_runtime(path: Path) -> None:
    model = _model(path)
    compilation = Compilation.create(model, [])
    compilation.finish()
    try:
        runtime = reference(RUNTIMES[path.suffix], path)
    except InputError as error:
        pytest.skip(str(error))
    samples = [*seeded_samples(model, runtime, [0])]
    result = compare(compilation, runtime.name, samples)
    if not result.passed:  # XNNPACK adds in another order than the reference kernels, which do not load every file.
        result = with_causes(result, compilation, path, samples)
        assert [cause.kind for cause in result.causes] == [AMPLIFIED], result.as_dict()
    assert result.fallbacks == ()


@pytest.mark.parametrize("driver", SAMPLE_DRIVERS, ids=lambda d: d.name.removeprefix("nnapi-sample_"))
@each_file
def test_drivers_answer_as_the_cpu_does(path: Path, driver: SampleDriver) -> None:
    model = _model(path)
    # With a relative execution time below the CPU's it runs all that it claims.
    favoured = replace(driver, figures=uniform_capabilities(Performance(0.5, 0.5)))
    answers, kinds = _run(model, [favoured])
    _same(path, answers)
    claimed = any(support is True for support in favoured.supported_operations(model))
    assert ("device" in kinds) == claimed


@each_file
def test_low_power_gives_the_same_answers(path: Path) -> None:
    compilation = Compilation.create(_model(path), [device("nnapi-sample_float_slow"), device("nnapi-sample_minimal")])
    compilation.set_preference(0)
    compilation.finish()
    _same(path, dict(Execution(compilation).run(seeded_inputs(compilation.model, 0))))


def _unplaced(operand: Operand) -> Operand:
    return replace(operand, location=Location())


@each_file
def test_saved_model_is_the_same_in_every_field(path: Path, tmp_path: Path) -> None:
    model, saved = _model(path), tmp_path / "model.nnapi"
    storage.save(model, saved)
    loaded = storage.load(saved)
    assert (loaded.name, loaded.relaxed, loaded.extensions) == (model.name, model.relaxed, model.extensions)
    assert len(loaded.referenced) == len(model.referenced)
    for ours, theirs in zip(model.subgraphs(), loaded.subgraphs(), strict=True):
        assert theirs.operations == ours.operations
        assert (theirs.inputs, theirs.outputs) == (ours.inputs, ours.outputs)
        assert [_unplaced(o) for o in theirs.operands] == [_unplaced(o) for o in ours.operands]
        constants = [(a, b) for a, b in zip(ours.operands, theirs.operands, strict=True) if a.is_constant]
        assert all(bytes(model.bytes_of(a)) == bytes(loaded.bytes_of(b)) for a, b in constants)
    _same(path, _run(loaded, [])[0])
