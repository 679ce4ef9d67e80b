"""Parts shared by the scripts: one-line errors, ``--help``, measurement, and results of comparisons.

Importing it puts the repository on the import path, so that scripts can use ``tests``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from nnbridge.trust import decline_reports

if TYPE_CHECKING:
    from nnbridge import Compilation, Model
    from nnbridge.compare import OutputComparison
    from nnbridge.devices import Device
    from nnbridge.file import ModelFile

Array = npt.NDArray[Any]
FILE = TypeVar("FILE")

REPOSITORY = Path(__file__).resolve().parents[1]
MODELS = REPOSITORY / "models"
RUNTIMES = {".tflite": "litert", ".onnx": "onnxruntime"}
"""File name ending → the reference runtime of the format."""

sys.path.insert(0, str(REPOSITORY))
decline_reports()


# -- the command line ----------------------------------------------------------------------------------------------------


def argument_parser() -> argparse.ArgumentParser:
    """A parser whose ``--help`` begins with the script's docstring."""
    return argparse.ArgumentParser(
        description=sys.modules["__main__"].__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def write_or_check(target: Path, document: Callable[[], str], comparable: Callable[[str], str] = str) -> None:
    """Write a generated page; with ``--check`` compare ``comparable`` of both, and exit with 1 if they are not equal."""
    parser = argument_parser()
    parser.add_argument("--check", action="store_true", help="compare only; exit with 1 if the page is not up to date")
    checking = parser.parse_args().check
    text = document()
    if not checking:
        target.write_text(text, encoding="utf-8")
    elif not target.exists() or comparable(target.read_text(encoding="utf-8")) != comparable(text):
        sys.exit(f"{target.name} is not up to date: run python {Path(sys.argv[0]).resolve().relative_to(REPOSITORY)}")


def write_or_check_folder(folder: Path, pages: Callable[[], Mapping[str, str]]) -> None:
    """The same for a folder of generated pages by name, which holds no others."""
    parser = argument_parser()
    parser.add_argument("--check", action="store_true", help="compare only; exit with 1 if a page is not up to date")
    checking, made = parser.parse_args().check, pages()
    found = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.md")}
    if checking:
        stale = sorted(name for name in made.keys() | found.keys() if made.get(name) != found.get(name))
        if stale:
            command = f"python {Path(sys.argv[0]).resolve().relative_to(REPOSITORY)}"
            sys.exit(f"{folder.name}: {', '.join(stale)}: not up to date: run {command}")
        return
    folder.mkdir(exist_ok=True)
    for name in found.keys() - made.keys():
        (folder / name).unlink()
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")


def shapes_by_stem(texts: Sequence[str]) -> dict[str, dict[str, tuple[int, ...]]]:
    """Dimensions of inputs, by the stem that a file's name begins with."""
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    for text in texts:
        stem, _, rest = text.partition(":")
        name, _, dims = rest.rpartition("=")
        found.setdefault(stem, {})[name] = tuple(int(d) for d in dims.split(","))
    return found


@contextmanager
def one_line_errors(packages: str = "'.[dev]'") -> Iterator[None]:
    """End with one line and exit status 2 where one of the ``packages`` is missing or nnbridge refuses.

    ``--help`` works without the packages: it prints the script's docstring and what to install.
    """
    try:
        yield
    except ImportError as error:
        hint = f"{error} (pip install {packages})"
        if {"-h", "--help"}.intersection(sys.argv[1:]):
            print(f"usage: {sys.argv[0]}\n\n{sys.modules['__main__'].__doc__}\nIts options cannot be shown: {hint}")
            sys.exit(0)
        _end(hint)
    except Exception as error:
        from nnbridge import NnbridgeError

        if not isinstance(error, NnbridgeError):
            raise
        _end(str(error))


def _end(message: str) -> None:
    print(f"{sys.argv[0]}: {message}", file=sys.stderr)
    sys.exit(2)


@contextmanager
def folder_of_keep(path: Path | None) -> Iterator[Path]:
    """The folder of ``--keep``, created if need be, or a temporary one."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = path or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        yield folder


# -- measuring -----------------------------------------------------------------------------------------------------------


def milliseconds(run: Callable[[], object]) -> float:
    """Wall-clock time of one call."""
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1e3


def medians(times: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The median of each side."""
    return {name: statistics.median(values) for name, values in times.items()}


# -- files of a folder ---------------------------------------------------------------------------------------------------


def folder_parser(devices: Sequence[str] = ()) -> argparse.ArgumentParser:
    """A parser for ``folder``, ``--only`` and, with defaults for it, ``--devices``."""
    parser = argument_parser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="files whose names contain this")
    if devices:
        parser.add_argument("--devices", nargs="+", default=list(devices), metavar="NAME")
    return parser


def folder_and_shapes_parser() -> argparse.ArgumentParser:
    """A parser for ``folder``, ``--only`` and ``--shape``, as :func:`files_with_shapes` reads them."""
    parser = folder_parser()
    parser.add_argument(
        "--shape", action="append", default=[], metavar="STEM:INPUT=1,2", help="dimensions of an input; repeatable"
    )
    return parser


def files_with_shapes(options: argparse.Namespace) -> list[tuple[Path, dict[str, tuple[int, ...]]]]:
    """The model files of the folder and of all below it, with dimensions of their inputs; exit status 2 without a file."""
    files = sorted(p for p in options.folder.rglob("*") if p.suffix in RUNTIMES and options.only in p.name)
    if not files:
        _end(f"no .tflite or .onnx file in {options.folder}")
    shapes = shapes_by_stem(options.shape)
    return [(path, next((v for stem, v in shapes.items() if path.name.startswith(stem)), {})) for path in files]


def compare_each(
    files: Iterable[Path],
    columns: Sequence[str],
    opened: Callable[[Path], FILE | str],
    row: Callable[[FILE, str], tuple[str, bool]],
    errors: type[Exception],
) -> int:
    """Print a row for each file and column, a device for instance; exit status 0 only if all passed.

    ``opened``: the file, or why there are no rows of it. ``row``: a row's text, and whether it passed; it fails with ``errors``.
    """
    passed = True
    for path in files:
        file = opened(path)
        if isinstance(file, str):
            print(f"{path.name:<42} {file}")
            continue
        for column in columns:
            try:
                text, fine = row(file, column)
            except errors as error:
                text, fine = f"FAIL: {error}".splitlines()[0], False
            passed &= fine
            print(f"{path.name:<42} {column:<24} {text}", flush=True)
    return 0 if passed else 1


# -- comparing -----------------------------------------------------------------------------------------------------------


def finished(model: Model, devices: Sequence[Device] = ()) -> Compilation:
    """A finished compilation."""
    from nnbridge import Compilation

    compilation = Compilation.create(model, devices)
    compilation.finish()
    return compilation


def operations_by_place(compilation: Compilation) -> Counter[str]:
    """The number of operations on a ``device``, on NNAPI's ``cpu`` and on the ``host``."""
    return Counter(compilation.plan.device_of(i).kind for i in range(len(compilation.model.main.operations)))


def zero_inputs(path: Path) -> dict[str, Array]:
    """Inputs of zeros for a file, by name; 1 for each open dimension."""
    from nnbridge.converters import ConversionOptions

    types = {"FLOAT": "float32"}
    return {
        i.name: np.zeros([max(d, 1) for d in i.shape or ()], types.get(i.type, i.type.lower()))
        for i in ModelFile(path, ConversionOptions()).inspection.inputs
    }


def largest_difference(outputs: Sequence[OutputComparison]) -> str:
    """The largest difference of floating outputs, as a share of the reference's range, and of integer ones in steps."""
    floats = [o.largest / (o.range or 1.0) for o in outputs if o.max_quant_diff is None]
    steps = [o.max_quant_diff for o in outputs if o.max_quant_diff is not None]
    return ", ".join([f"{max(v):.1e}" for v in (floats,) if v] + [f"{max(v)} st" for v in (steps,) if v])


def difference(a: Array, b: Array) -> float:
    """The greatest difference of two outputs; infinite where sizes differ."""
    if a.size != b.size:
        return float("inf")
    wide = np.complex128 if "c" in (a.dtype.kind, b.dtype.kind) else np.float64
    return float(np.abs(a.ravel().astype(wide) - b.ravel().astype(wide)).max(initial=0))


def share_unequal(outputs: Sequence[OutputComparison]) -> float:
    """Share of the elements that are not equal to the reference's."""
    return sum(o.mismatches for o in outputs) / max(1, sum(o.elements for o in outputs))


def failures(outputs: Sequence[OutputComparison]) -> list[str]:
    """The faults of each output beyond its tolerance."""
    return [
        f"{o.name}: {o.problem or f'{o.beyond} of {o.elements} beyond {o.atol:.2g} + {o.rtol:.2g} * |reference|'}"
        for o in outputs
        if not o.passed
    ]


def verdict(problems: Sequence[str]) -> str:
    """``pass``, or ``FAIL`` and why."""
    return f"FAIL: {'; '.join(problems)}" if problems else "pass"
