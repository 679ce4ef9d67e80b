"""``nnbridge reduce``: the smallest model that still shows what is wrong."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnbridge.cli.arguments import check_outputs, parse_preparation
from nnbridge.cli.options import MODEL, WRITTEN, input_options, model_options, of_comparison, option
from nnbridge.cli.output import INTERRUPTED, echo, json_option, print_blocks, print_json, progress, working
from nnbridge.cli.searching import of_search, required_devices, search_of, search_options, searched_samples
from nnbridge.cli.sections import command
from nnbridge.engines import REFERENCES
from nnbridge.errors import InputError, Reason
from nnbridge.target import Fallback

if TYPE_CHECKING:
    from nnbridge.reduction.outside import Runtime
    from nnbridge.reduction.symptoms import Predicate, Search

WHAT = "any"
_SUFFIXES = (".nnapi", ".npz", ".json.gz")
_PREDICATE = """What must hold: any (all but slow), fails, falls-back, differs, slow; or your own script (.py) or command, which
gets the paths of a candidate (.nnapi) and its inputs (.npz), in place of {model} and {inputs} or as its last arguments, and
exits with 0 if it holds."""
_REFERENCE = f"""A runtime whose outputs are correct: {", ".join(REFERENCES)}. Parts are files of whole operators with their own
shapes and values; without --device, NNAPI's CPU is searched."""
_OUTPUT = "The files' path without suffix. Default: MODEL-reduced."


@command(short_help="Find the smallest model that still shows an error.")
@MODEL
@option("--predicate", metavar="WORD|FILE.py|COMMAND", default=WHAT, help=_PREDICATE)
@option("-o", "--output", type=WRITTEN, metavar="STEM", help=_OUTPUT)
@of_search("--simplify/--no-simplify", default=True, help="Also try smaller shapes and simpler values.")
@of_comparison("--against", metavar="DEVICE", help="The device whose outputs are correct. Default: NNAPI's CPU.")
@of_comparison("--reference", values=REFERENCES, metavar="NAME", help=_REFERENCE)
@input_options
@search_options
@model_options
@json_option
def reduce(
    model: Path,
    predicate: str,
    output: Path | None,
    against: str | None,
    reference: str | None,
    inputs: tuple[str, ...],
    labels: Path | None,
    seeds: str,
    simplify: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Find the smallest part of a model for which a predicate holds, on the values that reach it in the whole model.

    It writes STEM.nnapi, its inputs and correct outputs (STEM.npz), a case for vts (STEM.json.gz), and a part of the source
    file, and tries each of them. Exit status 0 if the saved model shows the fault, 1 if the whole model does not, 130 after
    Ctrl-C.

    \b
    Examples:
      nnbridge reduce model.tflite --device my_module:MINE -o found/model
      nnbridge reduce model.onnx --device my_module:MINE --predicate differs --rtol 1e-3
      nnbridge reduce model.tflite --reference litert --input photo.png
      nnbridge reduce model.tflite --predicate still_wrong.py
      nnbridge reduce model.nnapi --predicate "my-tool --model {model} --inputs {inputs}"
    """
    from nnbridge.compare.references import reference as reference_runtime
    from nnbridge.compare.tensors import DeviceReference
    from nnbridge.devices import CPU_NAME
    from nnbridge.devices.evidence import evidence_lines, evidences
    from nnbridge.reduction import SYMPTOMS, Whole
    from nnbridge.reduction import reduce as reduced
    from nnbridge.reduction.outside import WholeFile, answers
    from nnbridge.reduction.saving import Saver
    from nnbridge.reduction.symptoms import DIFFERS, by_command, symptom_of
    from nnbridge.report.search import search_tables

    how, options = parse_preparation(**options)
    if reference is not None and (against is not None or predicate not in (WHAT, DIFFERS)):
        raise click.UsageError("--reference compares outputs: it excludes --against and every --predicate but differs.")
    stem = output or Path(f"{model.name.split('.')[0]}-reduced")
    if not stem.name:
        raise InputError(Reason("a path that files' names begin with", f"the folder {str(stem)!r}", operand="--output"))
    for suffix in (*_SUFFIXES, model.suffix):
        check_outputs({"--output": stem.with_name(stem.name + suffix)})
    kinds = (predicate,) if predicate in SYMPTOMS else None
    own = predicate not in (WHAT, *SYMPTOMS)
    # Any part of the model may be tried: what is not on the device runs on NNAPI's CPU.
    with search_of(model, kinds, against or CPU_NAME, options, Fallback.CPU) as (search, planned):
        runtime_of = partial(reference_runtime, reference) if reference is not None else None
        holds = by_command(predicate, options["timeout"]) if own else _symptom(search, runtime_of)
        asked, loaded = planned.file.asked, planned.model
        runtime = DeviceReference(loaded, search.reference)
        if runtime_of is not None:
            runtime_of(model)  # refuses a file of another format
            simplify = False
        for sample in searched_samples(planned, runtime, inputs, labels, how, seeds):
            whole = (
                Whole.of(loaded, sample.inputs, search.reference)
                if runtime_of is None
                else WholeFile.read(model, asked, loaded, sample.inputs, search.reference)
            )
            with progress("Runs", 4 * len(loaded.main.operations).bit_length(), as_json) as advance:
                found = reduced(whole, holds, advance, simplify=simplify)
            if found.symptom is not None or found.interrupted:
                break
        if found.symptom is not None:
            stem.parent.mkdir(parents=True, exist_ok=True)
        with working("Saving"):
            saver = Saver(stem, holds, search, whole, model, asked)
            if runtime_of is not None and found.symptom is not None:
                expected = answers(runtime_of, found.candidate)
                shows = partial(symptom_of, search, expected=expected, drivers=search.drivers)
                saver = replace(saver, predicate=shows, expected=expected)
            saved = saver.save(found)
        known = evidences(search.drivers)
    if as_json:
        files = [file.as_dict() for file in saved]
        data = {**found.as_dict(), "model": str(model), "files": files, "predicate": predicate if own else ""}
        print_json("reduce", {**data, "evidence": [each.as_dict() for each in known]})
    else:
        print_blocks([*search_tables(found, "What is left"), *evidence_lines(known)])
        if found.simplified:
            echo(f"simplified: {', '.join(found.simplified)}")
        for file in saved:
            echo(str(file))
    sys.exit(INTERRUPTED if found.interrupted else 0 if any(file.shows for file in saved) else 1)


def _symptom(search: Search, runtime_of: Runtime | None) -> Predicate:
    """The symptom of the searched devices, compared with a runtime's outputs or with the reference device's."""
    from nnbridge.reduction.outside import beside
    from nnbridge.reduction.symptoms import on_devices

    if runtime_of is not None:
        return beside(runtime_of, search)
    required_devices(search.drivers)
    return on_devices(search)
