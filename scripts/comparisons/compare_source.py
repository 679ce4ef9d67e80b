"""Write every model of a folder as C and C++, compile it with all warnings as errors, and compare its answers with nnbridge's.

python scripts/comparisons/compare_source.py models
python scripts/comparisons/compare_source.py models --compilers gcc g++ clang++ --cmake

One row for each file and compiler; a name that ends in ``++`` compiles C++. The program runs in front of the C library on
NNAPI's CPU with seed 0: ``equal`` bit for bit, or what is not. Models that no phone can build are ``refused`` with the reason.
Exit status 0 only if everything that is not refused compiles without a warning and is equal.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import RUNTIMES, Array, compare_each, finished, folder_parser, one_line_errors

from nnbridge import Execution, NnbridgeError, clib, devices, export, load
from nnbridge.compare.samples import seeded_inputs
from nnbridge.model import Model

WARNINGS = ("-Wall", "-Wextra", "-Werror", "-O1")
MINUTES = 5


def run(command: Sequence[str | Path], **settings: object) -> str:
    """Run a command; its output in an error where it fails."""
    ended = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=MINUTES * 60, check=False, **settings
    )
    if ended.returncode:
        raise RuntimeError(" ".join((ended.stderr or ended.stdout).split())[:300])
    return ended.stdout


def built(source: Path, compiler: str, ndk: Path, cmake: bool) -> Path:
    """The program of a written model."""
    cplusplus = compiler.endswith("++")
    if cmake:
        language, build = ("CXX" if cplusplus else "C"), source.parent / "build"
        first, *rest = shlex.split(compiler)
        setting = [f"-DCMAKE_{language}_COMPILER={first}", f"-DCMAKE_{language}_FLAGS={' '.join([*rest, *WARNINGS])}"]
        run(["cmake", "-S", source.parent, "-B", build, f"-DNNBRIDGE_NDK={ndk}", *setting])
        run(["cmake", "--build", build])
        return next(build.glob("*_main"))
    program = source.with_name("program")
    standard = "-std=c++14" if cplusplus else "-std=c11"
    files = (source, source.with_name(f"{source.stem}_main{source.suffix}"))
    run([*shlex.split(compiler), standard, *WARNINGS, *files, f"-I{ndk}", f"-L{ndk}", "-lneuralnetworks", "-o", program])
    return program


def answers(program: Path, folder: Path, ndk: Path, inputs: Sequence[Array]) -> list[bytes]:
    """The program's outputs."""
    files = [folder / f"in{i}" for i in range(len(inputs))]
    for file, array in zip(files, inputs, strict=True):
        file.write_bytes(array.tobytes())
    environment = {**os.environ, **clib.environment(ndk), "NNBRIDGE_DEVICES": devices.CPU_NAME}
    run([program, folder / "model.bin", *files], cwd=folder, env=environment)
    return [(folder / f"output{i}.bin").read_bytes() for i in range(len(list(folder.glob("output*.bin"))))]


def row(model: Model, compiler: str, ndk: Path, cmake: bool) -> str:
    """``equal``, or what is not."""
    inputs = list(seeded_inputs(model, 0).values())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source, *_ = export.write(model, folder / f"model{'.cpp' if compiler.endswith('++') else '.c'}", model.name)
        try:
            found = answers(built(source, compiler, ndk, cmake), folder, ndk, inputs)
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
            return f"FAIL: {error}"
    expected = list(Execution(finished(model, [devices.cpu()])).run(inputs).values())
    different = [i for i, (a, b) in enumerate(zip(expected, found, strict=False)) if a.tobytes() != b]
    return "equal" if not different and len(found) == len(expected) else f"FAIL: {len(found)} outputs, {different} differ"


def main() -> int:
    parser = folder_parser()
    parser.add_argument("--compilers", nargs="+", default=["gcc", "g++"], metavar="COMMAND")
    parser.add_argument("--cmake", action="store_true", help="build by the written CMakeLists.txt")
    options = parser.parse_args()
    files = sorted(p for p in options.folder.iterdir() if p.suffix in RUNTIMES and options.only in p.name)
    with tempfile.TemporaryDirectory() as name:
        ndk = Path(name)
        clib.build(ndk)

        def row_or_refusal(path: Path, compiler: str) -> tuple[str, bool]:
            try:
                text = row(load(path), compiler, ndk, options.cmake)
            except NnbridgeError as error:
                text = f"refused: {error}"
            return text, not text.startswith("FAIL")

        return compare_each(files, options.compilers, Path, row_or_refusal, NnbridgeError)


if __name__ == "__main__":
    with one_line_errors("'.[ndk]'"):
        sys.exit(main())
