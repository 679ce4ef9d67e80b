"""Coverage-guided fuzzing (atheris) of the readers of TFLite, ONNX and saved models, and of the messages of drivers' processes.

    pip install atheris
    python scripts/nets/fuzz_coverage.py tflite corpus -max_total_time=3600
    python scripts/nets/fuzz_coverage.py wire corpus -runs=100000

A corpus that is empty is filled with small intact files. What is not one of nnbridge's errors ends the run, and its input is
written to the current folder. What follows the corpus are libFuzzer's options: ``-merge=1 SMALL`` minimises a corpus.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import pkgutil
import re
import shlex
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import MODELS, argument_parser, one_line_errors

FORMATS = ("tflite", "onnx", "nnapi")


def arguments() -> tuple[argparse.Namespace, list[str]]:
    """The command line, and libFuzzer's options."""
    parser = argument_parser()
    parser.add_argument("target", choices=(*FORMATS, "wire"))
    parser.add_argument("corpus", type=Path)
    return parser.parse_known_args()


if __name__ == "__main__":
    OPTIONS, MORE = arguments()  # before anything is instrumented, which is told and takes seconds
with one_line_errors():
    import atheris

READERS = [] if sys.argv[1:2] == ["wire"] else ["nnbridge_tflite", "nnbridge_onnx"]
with atheris.instrument_imports(include=["nnbridge" if READERS else "nnbridge.devices", *READERS]):
    for package in READERS:  # modules that are imported later would not be instrumented
        for found in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(found.name)
    from nnbridge import storage
    from nnbridge.converters import ConversionOptions
    from nnbridge.errors import NnbridgeError
    from nnbridge.file import ModelFile
    from tests.devices.conversations import hold, seeds

SMALL = 20_000
"""Bytes of the largest file that a corpus begins with."""


def reading(format: str, folder: Path) -> Callable[[bytes], None]:
    """Inspects and converts a file of these bytes."""
    path = folder / f"case.{format}"

    def check(content: bytes) -> None:
        path.write_bytes(content)
        for question in ("inspection", "model"):
            with suppress(NnbridgeError):
                getattr(ModelFile(path, ConversionOptions()), question)

    return check


def fill(corpus: Path, target: str, scratch: Path) -> None:
    """Small intact inputs."""
    if target == "wire":
        for n, content in enumerate(seeds()):
            (corpus / f"{n}").write_bytes(content)
        return
    files = [path for path in sorted(MODELS.rglob("*.tflite")) + sorted(MODELS.rglob("*.onnx")) if path.stat().st_size < SMALL]
    if target == "tflite":
        from tests.tflite.cases import cases

        files += [
            case.write(scratch, case.types[0]).rename(scratch / f"{n}.tflite") for n, case in enumerate(cases()) if case.types
        ]
    for n, path in enumerate(path for path in files if target == "nnapi" or path.suffix == f".{target}"):
        if target == "nnapi":
            storage.save(ModelFile(path, ConversionOptions()).model, corpus / f"{n}")
        else:
            (corpus / f"{n}").write_bytes(path.read_bytes())
    if target == "onnx":
        from tests.onnx.mutations import operators

        for n, content in enumerate(operators()[::8]):
            (corpus / f"operator{n}").write_bytes(content)


def words(folder: Path) -> Path:
    """A dictionary of the messages' names and values, in libFuzzer's format."""
    found = {word for content in seeds() for word in re.findall(rb'"\w+"|\d+|null|true|[][{},]', content) if len(word) < 40}
    numbers = [b"-1", b"1e400", b"NaN", b"4294967296", b"9223372036854775808", b"[[1,2]]", b'""', b"{}"]
    lines = [b'"' + word.replace(b'"', b'\\"') + b'"' for word in [*sorted(found), *numbers]]
    path = folder / "words"
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def launcher(folder: Path, options: argparse.Namespace) -> Path:
    """A program that starts this script again, as libFuzzer does to minimise a corpus."""
    command = shlex.join([sys.executable, str(Path(__file__).resolve()), options.target, str(options.corpus.resolve())])
    path = folder / "fuzz"
    path.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    path.chmod(0o700)
    return path


def main(options: argparse.Namespace, more: list[str]) -> None:
    """Fuzz until libFuzzer's options end it."""
    options.corpus.mkdir(parents=True, exist_ok=True)
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        if not any(options.corpus.iterdir()):
            fill(options.corpus, options.target, Path(folder))
        check = hold if options.target == "wire" else reading(options.target, Path(folder))
        if options.target == "wire":
            more.append(f"-dict={words(Path(folder))}")
        atheris.Setup([str(launcher(Path(folder), options)), *more, str(options.corpus)], check)
        atheris.Fuzz()


if __name__ == "__main__":
    main(OPTIONS, MORE)
