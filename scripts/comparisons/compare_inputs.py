"""Compare nnbridge's answers to pictures and sounds with LiteRT's, for TFLite files.

python scripts/comparisons/compare_inputs.py mobilenet_v2.tflite ssd.tflite --input cat.png street.jpg
python scripts/comparisons/compare_inputs.py deeplabv3.tflite --input cat.png --mean 127.5 --std 127.5
python scripts/comparisons/compare_inputs.py yamnet.tflite --input bell.wav --rate 16000

One row for each file, input and mapping: Android's, which `nnbridge run` has by default, and wide. ``delegate``: how many numbers
of `nnbridge run` differ from those of LiteRT's interpreter with nnbridge's delegate: LiteRT on a phone with NNAPI. ``reference``:
how many differ from LiteRT's reference kernels, without NNAPI. ``answer``: whether the printed answers (five classes, boxes,
mask, points) are LiteRT's, and the causes of what differs. Exit status 0 only if no number differs from LiteRT with the
delegate, and every difference from LiteRT alone is within tolerance or has a cause.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import product
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import Array, argument_parser, one_line_errors

from nnbridge import Compilation, Execution, Model, delegate
from nnbridge.compare import Sample, compare
from nnbridge.compare.explanation import with_causes
from nnbridge.compare.litert import LiteRT
from nnbridge.compare.samples import named_inputs, outputs_in_model, sign_flipped
from nnbridge.converters import ConversionOptions
from nnbridge.devices.device import Device
from nnbridge.engines import AUTO, host_for
from nnbridge.file import ModelFile, load
from nnbridge.inputs import Dataset, Preparation
from nnbridge.report.answers import answers

HEAD = f"{'file':<38} {'input':<18} {'mapping':<8} {'delegate':>8} {'reference':>9} {'of':>9}  answer  verdict"
BESIDE = {"phone": "delegate", "wide": "wide"}
"""Mappings by the names that the rows have for them."""


class Subject:
    """A file under a mapping, with what computes it."""

    def __init__(self, path: Path, mapping: str) -> None:
        self.path, self.mapping = path, mapping
        options = ConversionOptions(mapping=BESIDE[mapping])
        self.model: Model = load(path, options)
        self.run = _compiled(self.model, host_for(AUTO, ModelFile(path, options)))
        """As `nnbridge run` has it."""
        self.own = _compiled(self.model, ())
        """With nnbridge's own host, as `nnbridge compare` has it."""

    def in_file(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Inputs in the element types of the file."""
        operands = named_inputs(self.model)
        return {name: sign_flipped(operands[name], value) for name, value in inputs.items()}

    def beside_delegate(self, inputs: Mapping[str, Array]) -> int:
        """The count of numbers of `nnbridge run` that differ from LiteRT's with the delegate."""
        theirs = outputs_in_model(self.model, with_delegate(self.path, list(self.in_file(inputs).values())))
        return unequal(Execution(self.run).run(inputs), theirs)


def _compiled(model: Model, host: tuple[Device, ...]) -> Compilation:
    compilation = Compilation.create(model, host)
    compilation.finish()
    return compilation


def with_delegate(path: Path, inputs: list[Array]) -> list[Array]:
    """The outputs of LiteRT's interpreter with nnbridge's delegate, beside NNAPI's CPU."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path), experimental_delegates=[delegate.load()], num_threads=1)
    interpreter.allocate_tensors()
    for details, array in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(details["index"], array)
    interpreter.invoke()
    return [interpreter.get_tensor(details["index"]) for details in interpreter.get_output_details()]


def unequal(ours: Mapping[str, Array], theirs: Mapping[str, Array]) -> int:
    """The count of unequal numbers; NaN equals NaN."""
    pairs = [(array, theirs[name].reshape(array.shape)) for name, array in ours.items()]
    return sum(int(np.sum((a != b) & ~((a != a) & (b != b)))) for a, b in pairs)


def row(subject: Subject, name: str, inputs: Mapping[str, Array]) -> tuple[str, bool]:
    """The figures of one input, and whether all is as it must be."""
    theirs = outputs_in_model(subject.model, LiteRT(subject.path).run(subject.in_file(inputs)))
    ours: dict[str, Array] = {}
    sample = Sample(name, inputs, theirs)
    comparison = compare(subject.own, "litert", [sample], observe=lambda _, outputs: ours.update(outputs))
    comparison = with_causes(comparison, subject.own, subject.path, [sample])
    through = subject.beside_delegate(inputs) if subject.mapping == "phone" else None
    said, expected = ([answer.lines() for answer in answers(subject.model, found)] for found in (ours, theirs))
    causes = ", ".join(f"{cause.operator}: {cause.kind}" for cause in comparison.causes)
    passed = not through and (comparison.passed or bool(causes))
    figures = f"{'' if through is None else through:>8} {unequal(ours, theirs):>9} {sum(a.size for a in ours.values()):>9}"
    verdict = ("within tolerance" if comparison.passed else "beyond tolerance") + (f" ({causes})" if causes else "")
    return f"{figures}  {'same' if said == expected else 'other':<6}  {verdict if passed else f'FAIL: {verdict}'}", passed


def main() -> int:
    parser = argument_parser()
    parser.add_argument("files", type=Path, nargs="+", help="TFLite files with one input from a picture or a sound")
    parser.add_argument("--input", type=Path, nargs="+", required=True, help="pictures or sounds")
    parser.add_argument("--mean", type=float, nargs="+", default=())
    parser.add_argument("--std", type=float, nargs="+", default=())
    parser.add_argument("--rate", type=int)
    options = parser.parse_args()
    how = Preparation(mean=tuple(options.mean), std=tuple(options.std), rate=options.rate)
    print(HEAD)
    done = []
    for path, mapping in product(options.files, BESIDE):
        subject = Subject(path, mapping)
        for file in options.input:
            (sample,) = Dataset.of(subject.model, [str(file)], how=how, stated=ModelFile(path).interface.inputs)
            text, passed = row(subject, file.name, sample.inputs)
            print(f"{path.name[:38]:<38} {file.name[:18]:<18} {mapping:<8} {text}", flush=True)
            done.append(passed)
    print(f"{sum(done)} of {len(done)} as they must be")
    return 0 if all(done) else 1


if __name__ == "__main__":
    with one_line_errors("'.[delegate,images,litert]'"):
        sys.exit(main())
