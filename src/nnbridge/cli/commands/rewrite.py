"""``nnbridge rewrite``: an advised rewrite as a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
import numpy as np

from nnbridge.cli.arguments import check_outputs
from nnbridge.cli.options import (
    MODEL,
    WRITTEN,
    device_options,
    file_of,
    finished,
    model_options,
    of_comparison,
    option,
    target_of,
    tell_host,
)
from nnbridge.cli.output import echo, json_option, print_json, progress
from nnbridge.cli.sections import command
from nnbridge.errors import InputError, Reason, RefusalError

if TYPE_CHECKING:
    from nnbridge.compare.metrics import Metrics
    from nnbridge.model import Array
    from nnbridge.routes import RouteVerdict
    from nnbridge.runtime.compilation import Compilation


@command(short_help="Apply a suggestion of plan --advice to a file.")
@MODEL
@option("--advice", "number", type=click.IntRange(min=1), required=True, metavar="N", help="The number in plan --advice.")
@option("-o", "--output", type=WRITTEN, required=True, help="The file to write: in the model's format, or .nnapi.")
@of_comparison(
    "--inputs", type=click.IntRange(min=1), default=10, metavar="N", help="Random inputs whose outputs must stay bit-equal."
)
@of_comparison("--inexact", is_flag=True, help="Write an edit that changes outputs, such as another stride, or their rounding.")
@device_options
@model_options
@json_option
def rewrite(model: Path, number: int, output: Path, inputs: int, inexact: bool, as_json: bool, **options: Any) -> None:
    """Apply a suggestion of plan --advice, with the same options, to a file.

    Both files first run on random inputs; nothing is written unless all outputs are equal bit for bit. Edits that change outputs
    need --inexact, and their effect is measured; edits that may round differently need it only if a bit differs.

    \b
    Examples:
      nnbridge plan model.tflite --device arm-nn-21.11 --advice
      nnbridge rewrite model.tflite --device arm-nn-21.11 --advice 1 -o better.tflite
      nnbridge rewrite model.onnx --device arm-nn-21.11 --advice 1 -o better.onnx --inputs 1000
    """
    from nnbridge import storage
    from nnbridge.advice import advise, different_outputs
    from nnbridge.converters.edits import Answers
    from nnbridge.storage.atomic import atomic_write, written_together
    from nnbridge.storage.temporary import TemporaryFolder

    check_outputs({"--output": output})
    if output.suffix.lower() not in (model.suffix.lower(), storage.SUFFIX):
        raise InputError(Reason(f"a {model.suffix} or {storage.SUFFIX} file", str(output), operand="--output"))
    found = advise(file_of(model, options), target_of(options)).advice
    if number > len(found):
        rule = f"a number from 1 to {len(found)}" if found else "a model and device with advice (nnbridge plan --advice lists it)"
        raise InputError(Reason(rule, str(number) if found else "none", operand="--advice"))
    advice = found[number - 1]
    edit = advice.edit
    if edit is None:
        raise InputError(Reason("the number of a rewrite", f"a setting: {advice.text}", operand="--advice"))
    if edit.answers is Answers.CALIBRATE:
        raise InputError(Reason("an edit that needs no data", f"scales to be calibrated: {advice.text}", operand="--advice"))
    if edit.answers is Answers.CHANGE and not inexact:
        raise InputError(Reason("an edit that does not change outputs, or --inexact", f"one that does: {advice.text}"))
    inputs = inputs if advice.before.loads else 0
    exact, measured = edit.answers is Answers.SAME or not inexact, cast("dict[str, Metrics]", {})
    with TemporaryFolder() as folder, progress("Comparing", inputs, as_json) as advance:
        edited = Path(folder) / model.name
        content = edit.content()
        content.write(edited)
        # Of a file that TFLite refuses nothing runs on NNAPI: both files run there, so that their sums are rounded alike.
        refused = advice.before.standing or (edit.answers is Answers.SAME and not edit.keys)
        run = _FileRuns({**options, "mapping": "wide"} if refused else options)

        def counted(path: Path, seed: int) -> Mapping[str, Array]:
            advance(int(path == edited))
            return run(path, seed)

        different = ""
        if exact:
            different = different_outputs(counted, model, edited, range(inputs))
        else:
            measured = _deviations(counted, model, edited, inputs)
        run.tell_host()
        if different:
            anyway = "; add --inexact to write the file anyway" if edit.answers is Answers.ROUND else ""
            raise InputError(Reason(f"not bit-exact: outputs differ in {different}{anyway}", operand="--advice"))
        if output.suffix.lower() == storage.SUFFIX != model.suffix.lower():
            storage.save(file_of(edited, options).model, output)
        else:
            with written_together():
                content.write(output, opened=atomic_write)
    proven = f"outputs equal bit for bit on {inputs} random inputs" if exact else _in_words(measured, inputs)
    if not advice.before.loads:
        proven = "not compared with the original, which the app's runtime does not load"
    proofs = _proofs(model, output, options) if output.suffix.lower() == ".tflite" else {}
    data = {"model": str(model), "output": str(output), "inputs": inputs if exact or measured else 0, **advice.as_dict()}
    data |= {"exact": exact, "deviations": {name: one.as_dict() for name, one in measured.items()}}
    _show(data, f"{output}: {advice.text}; {proven}", proofs, as_json)


def _show(data: dict[str, Any], line: str, proofs: Mapping[str, Mapping[str, RouteVerdict]], as_json: bool) -> None:
    if as_json:
        proof = {device: {side: one.as_dict() for side, one in sides.items()} for device, sides in proofs.items()}
        print_json("rewrite", {**data, "proof": proof})
        return
    echo(line)
    for device, sides in proofs.items():
        words = (f"{side} {one.word}{f' ({one.why})' if one.why else ''}" for side, one in sides.items())
        echo(f"{device}, asked whether its outputs are right: {', '.join(words)}")


def _proofs(model: Path, output: Path, options: Mapping[str, Any]) -> dict[str, dict[str, RouteVerdict]]:
    """The verdicts of the devices' own engines on the file before and after, for those that are installed."""
    from nnbridge.compare.references import REFERENCE_RUNTIMES
    from nnbridge.routes import ENGINES, proof

    names = [device.name for device in target_of(options).devices if not isinstance(device, str)]
    asked = [name for name in names if name in ENGINES and REFERENCE_RUNTIMES[ENGINES[name]].absent() is None]
    return {name: {"before": proof(model, name), "after": proof(output, name)} for name in asked}


def _deviations(run: Callable[[Path, int], Mapping[str, Array]], model: Path, edited: Path, inputs: int) -> dict[str, Metrics]:
    """The difference that an edit makes to each output; none where the files cannot be compared on random inputs."""
    from nnbridge.compare.metrics import Metrics

    found: dict[str, Metrics] = {}
    try:
        for seed in range(inputs):
            before, after = run(model, seed), run(edited, seed)
            for (name, one), other in zip(before.items(), after.values(), strict=True):
                if one.shape != other.shape or one.dtype != other.dtype:
                    return {}
                finite = (np.isfinite(one) & np.isfinite(other)).ravel()
                found.setdefault(name, Metrics()).add(other.ravel()[finite], one.ravel()[finite])
    except (RefusalError, ValueError):
        return {}  # such as an edited file whose inputs have other dimensions
    return found


def _in_words(measured: Mapping[str, Metrics], inputs: int) -> str:
    if not measured:
        return "outputs change; by how much was not measured"
    each = (f"{name}: {_size(one)}" for name, one in measured.items())
    return f"outputs change on {inputs} random inputs: {'; '.join(each)}"


def _size(one: Metrics) -> str:
    signal = "" if one.sqnr is None else f", {one.sqnr:.1f} dB below the signal"
    return "not measured" if one.rmse is None else f"RMSE {one.rmse:.3g}{' steps' if one.steps else ''}{signal}"


class _FileRuns:
    """Runs of files on NNAPI's CPU and the host, each file compiled once."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._compiled: dict[Path, Compilation] = {}

    def __call__(self, path: Path, seed: int) -> Mapping[str, Array]:
        from nnbridge.compare import seeded_inputs
        from nnbridge.runtime.execution import Execution

        if path not in self._compiled:
            target = target_of(self._options).with_(devices=(), fallback=None, cache_dir=None)
            self._compiled[path] = finished(file_of(path, self._options), target).compilation
        compilation = self._compiled[path]
        return Execution(compilation).run(seeded_inputs(compilation.model, seed))

    def tell_host(self) -> None:
        """Say who computed what stays on the host in each file, where that is open."""
        for compilation in self._compiled.values():
            tell_host(compilation, self._options["host"])
