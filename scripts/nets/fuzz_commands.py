"""Give commands damaged files of every kind that they read: each ends with a result or one message, quickly and in little memory.

    python scripts/nets/fuzz_commands.py --minutes 10
    python scripts/nets/fuzz_commands.py --reader profile --reader store --minutes 60 --seed 1 --keep found

A *reader* is a kind of file and the command that reads it: models (by commands beyond those of ``fuzz.py``), profiles, defaults,
tolerances, budgets, stores, plans, traces, logs, questions, cases, labels, inputs and stored references. Bytes, words, numbers,
lines and lengths of intact files are changed; compressed ones are changed inside. Each case runs in a fork of a process that has
everything imported, so that its end, its time and its memory are known. Printed for each reader: inputs, crashes, hangs (ended
after 10 s), internal errors, exit status 1 where none is due, and cases above 2 s of processor time, and what the intact
file takes, or 256 MB. Exit status 1 if
there are any.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import argument_parser, one_line_errors

from tests.commands import call

MODELS = Path(__file__).resolve().parents[2] / "models"
MODEL = str(MODELS / "digits_int8.tflite")
FLOAT = str(MODELS / "digits_float32.tflite")
DEVICE = ("--device", "nnapi-sample_all")
HANG, SECONDS, BYTES = 10, 2.0, 256 << 20
ADDRESS_SPACE = 4 << 30
"""Bytes that a case may add: what reserves more, such as a wild allocation, is refused."""
Seeds = Callable[[Path], Iterator[bytes]]


@dataclass(frozen=True)
class Reader:
    """A kind of file, intact files of it, and the command; ``{}`` is the file, ``{out}`` a file that is written."""

    name: str
    suffix: str
    seeds: Seeds
    command: tuple[str, ...]
    judges: bool = False
    """Exit status 1 is a judgement that is due, such as a difference."""


def stored(*paths: str) -> Seeds:
    """Files of the repository."""
    root = MODELS.parent
    return lambda scratch: ((path.read_bytes()) for pattern in paths for path in sorted(root.glob(pattern)))


def made(*arguments: str, suffix: str) -> Seeds:
    """What a command writes; ``{out}`` is the file."""

    def seeds(scratch: Path) -> Iterator[bytes]:
        out = scratch / f"made{suffix}"
        out.unlink(missing_ok=True)
        call(*(argument.format(out=out) for argument in arguments))
        yield out.read_bytes()

    return seeds


def printed(*arguments: str) -> Seeds:
    """What a command prints."""
    return lambda scratch: iter([call(*arguments).stdout.encode()])


def text(*texts: str) -> Seeds:
    """Texts as they stand here."""
    return lambda scratch: (one.encode() for one in texts)


def saved(write: Callable[[io.BytesIO], object]) -> Seeds:
    """What a library writes."""

    def seeds(scratch: Path) -> Iterator[bytes]:
        file = io.BytesIO()
        write(file)
        yield file.getvalue()

    return seeds


def trace(scratch: Path) -> Iterator[bytes]:
    """What NNBRIDGE_TRACE writes: the calls of a client, here those of the NDK's functions in a process of their own."""
    lines = [
        {"call": "ANeuralNetworksModel_finish", "code": 0, "at": 0.1, "us": 1.0, "saved": "trace-1.nnapi"},
        {"call": "ANeuralNetworksCompilation_finish", "code": 0, "at": 0.2, "us": 2.0, "plan": {"steps": []}, "answers": {}},
    ]
    yield "".join(json.dumps(line) + "\n" for line in lines).encode()


def questions(scratch: Path) -> Iterator[bytes]:
    """A model in the form of ``devices ask``: a conformance case."""
    out = scratch / "case.json.gz"
    call("convert", FLOAT, "-o", str(out))
    yield (json.dumps(json.loads(gzip.decompress(out.read_bytes()))["cases"][0]) + "\n").encode()


def picture(form: str) -> Seeds:
    """A small picture."""

    def write(file: io.BytesIO) -> None:
        from PIL import Image

        Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save(file, form)

    return saved(write)


def sound(file: io.BytesIO) -> None:
    """A short sound."""
    import wave

    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(16000)
        out.writeframes(np.arange(64, dtype="<i2").tobytes())


TOLERANCES = '[default]\nrtol = 1e-3\natol = 1e-5\n\n[outputs."StatefulPartitionedCall:0"]\nsteps = 2\n'
BUDGET = '[limits]\npartitions = 3\non_device = 0.5\n\n[[limit]]\nmodel = "digits*"\ndevice = "*"\ndifference = 2\n'
DEFAULTS = '[plan]\ndevice = ["nnapi-sample_all"]\nandroid = "13"\n\n[compare]\nreference = "litert"\nseeds = "0-2"\n'
RUN = ("run", MODEL, "--host", "nnbridge")
STORE = ("matrix", MODEL, FLOAT, "--devices", "nnapi-sample_all,nnapi-sample_quant", "--store", "{out}", "--jobs", "1")
ANSWERS = str(MODELS / "digits_int8.litert.npz")
NPZ = stored("models/digits_int8.litert.npz")
SAVED = made("convert", MODEL, "-o", "{out}", suffix=".nnapi")
COMPARE = ("compare", MODEL, "--seeds", "0")
ONNX = saved(lambda file: file.write((MODELS / "digits_qdq.onnx").read_bytes()))
TFLITE = saved(lambda file: file.write((MODELS / "digits_int8.tflite").read_bytes()))

READERS = (
    *(Reader(f"{form}: {' '.join(command)[:34]}", f".{form}", seeds, command, judges="compare" in command)
      for form, seeds in (("tflite", TFLITE), ("onnx", ONNX))
      for command in (
          ("plan", "{}", "--advice", *DEVICE), ("plan", "{}", "--cost"),
          ("plan", "{}", "--device", "ethos-u55-128", "--estimate"),
          ("inspect", "{}"), ("extract", "{}", "--operations", "0-1", "-o", f"{{out}}.{form}", "--samples", "{out}.npz"),
          ("convert", "{}", "-o", "{out}.c"), ("convert", "{}", "-o", "{out}.mod.py"), ("convert", "{}", "-o", "{out}.json.gz"),
          ("report", "{}", "-o", "{out}.html"), ("export-overlay", "{}", "-o", "{out}.json"),
          ("rewrite", "{}", "--advice", "1", "-o", f"{{out}}.{form}", *DEVICE),
          ("run", "{}", "--seed", "0", "--host", "nnbridge"),
          ("compare", "{}", "--layers", "--against", "reference", "--seeds", "0"),
          ("compare", "{}", "--envelope", "--seeds", "0"),
      )),
    Reader("saved model: run", ".nnapi", SAVED, ("run", "{}", "--seed", "0")),
    Reader("saved model: C", ".nnapi", SAVED, ("convert", "{}", "-o", "{out}.c")),
    Reader("profile: check", ".toml", stored("src/nnbridge/devices/data/*.toml"), ("devices", "check", "{}")),
    Reader("profile: plan", ".toml", stored("src/nnbridge/devices/data/*.toml"), ("plan", MODEL, "--device", "{}")),
    Reader("defaults", ".toml", text(DEFAULTS), ("--config", "{}", "plan", MODEL)),
    Reader("tolerances", ".toml", text(TOLERANCES), (*COMPARE, "--reference", ANSWERS, "--tolerances", "{}"), True),
    Reader("budget", ".toml", text(BUDGET), ("matrix", "--diff", "{store}", "{store}", "--budget", "{}"), True),
    Reader("store: diff", ".db", made(*STORE, suffix=".db"), ("matrix", "--diff", "{}", "{}"), True),
    Reader("plan: learn", ".json", printed("plan", MODEL, *DEVICE, "--json"), ("devices", "learn", "{}", "-o", "{out}.toml")),
    Reader("trace: learn", ".jsonl", trace, ("devices", "learn", "{}", "-o", "{out}.toml")),
    Reader("log: learn", ".log", stored("tests/site/*.log"), ("devices", "learn", "{}", "-o", "{out}.toml")),
    Reader("questions: learn", ".jsonl", questions, ("devices", "learn", "{}", "-o", "{out}.toml")),
    Reader("questions: ask", ".jsonl", questions, ("devices", "ask", "nnapi-sample_all", "{}")),
    Reader("questions, packed: ask", ".jsonl.gz", questions, ("devices", "ask", "nnapi-sample_all", "{}")),
    Reader("case: vts", ".json.gz", made("convert", FLOAT, "-o", "{out}", suffix=".json.gz"), ("vts", "{}"), True),
    Reader("labels", ".txt", text("".join(f"label {n}\n" for n in range(10))), (*RUN, "--input", "{image}", "--labels", "{}")),
    *(Reader(f"input {suffix}", suffix, seeds, (*RUN, "--input", "{}")) for suffix, seeds in (
        (".npy", saved(lambda file: np.save(file, np.zeros((1, 8, 8, 1), np.int8)))),
        (".npz", saved(lambda file: np.savez(file, **{"input:serving_default_image:0": np.zeros((1, 1, 8, 8, 1), np.int8)}))),
        (".png", picture("PNG")), (".jpg", picture("JPEG")), (".bmp", picture("BMP")), (".gif", picture("GIF")),
        (".webp", picture("WEBP")), (".ppm", picture("PPM")), (".tif", picture("TIFF")), (".wav", saved(sound)),
        (".bin", saved(lambda file: file.write(bytes(64)))), (".txt", text(" ".join("0" for _ in range(64)))),
        (".csv", text("\n".join(",".join("0" for _ in range(8)) for _ in range(8)))),
    )),
    Reader("reference .npz", ".npz", NPZ, (*COMPARE, "--reference", "{}"), True),
    Reader("reference .npz: layers", ".npz", NPZ, (*COMPARE, "--reference", "{}", "--layers"), True),
)  # fmt: skip

_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
_WORD = re.compile(rb'"[^"\n]{0,80}"|[\w.]+')
_ODD = (
    b"-1", b"0", b"1e400", b"-9223372036854775809", b"18446744073709551616", b"nan", b"1e-320", b"0.1", b"null", b"true", b"[]",
    b"{}", b'""', b'"\\u0000"', b"[[]]", b'"a/b"', b"9" * 5000, b"[" * 2000, b'"' + b"x" * 5000 + b'"', b"\xff\xfe",
    b"../..", b"inf",
)  # fmt: skip


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """A copy with a few bytes, words, numbers or lines changed, cut or repeated."""
    for _ in range(int(rng.integers(1, 4))):
        content = _WAYS[int(rng.integers(len(_WAYS)))](content, rng)
    return content


def _bytes(content: bytes, rng: np.random.Generator) -> bytes:
    copy = bytearray(content)
    for _ in range(int(rng.integers(1, 5)) if copy else 0):
        at = int(rng.integers(len(copy)))
        value = int(rng.choice([0, 1, 0x7F, 0x80, 0xFF, int(rng.integers(256))]))
        copy[at : at + int(rng.choice([1, 1, 4]))] = bytes([value]) * int(rng.choice([1, 1, 4]))
    return bytes(copy)


def _token(pattern: re.Pattern[bytes], content: bytes, rng: np.random.Generator) -> bytes:
    found = list(pattern.finditer(content[:200_000]))
    if not found:
        return _bytes(content, rng)
    one, other = (found[int(rng.integers(len(found)))] for _ in range(2))
    new = _ODD[int(rng.integers(len(_ODD)))] if rng.integers(3) else other[0]
    return content[: one.start()] + new + content[one.end() :]


def _lines(content: bytes, rng: np.random.Generator) -> bytes:
    lines = content.split(b"\n")
    at, other = int(rng.integers(len(lines))), int(rng.integers(len(lines)))
    kind = int(rng.integers(4))
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(at, lines[other])
    elif kind == 2:
        lines[at], lines[other] = lines[other], lines[at]
    else:
        lines[at : at + 1] = lines[at : at + 1] * int(rng.choice([2, 100]))
    return b"\n".join(lines)


def _length(content: bytes, rng: np.random.Generator) -> bytes:
    at = int(rng.integers(len(content) + 1))
    return (
        content[:at] if rng.integers(2) else content[:at] + content[int(rng.integers(len(content) + 1)) :][:4096] + content[at:]
    )


_WAYS = (_bytes, _bytes, partial(_token, _NUMBER), partial(_token, _WORD), _lines, _length)


@dataclass(frozen=True)
class Verdict:
    """How a case ended: ``good``, or what is wrong with it."""

    kind: str
    text: str = ""


def check(reader: Reader, arguments: Sequence[str], base: int, allowed: float) -> tuple[Verdict, float]:
    """Run a command in a fork, and look how it ends; its seconds of processor time."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _run(arguments, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    _, status, used = os.wait4(child, 0)
    seconds, size = used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 - base
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        return Verdict("hang" if name in ("SIGXCPU", "SIGALRM", "SIGKILL") else "crash", name), seconds
    code = os.WEXITSTATUS(status)
    if "internal error" in said or code not in (0, 1, 2):
        return Verdict("internal error", f"exit {code}: {said[:200]}"), seconds
    if code == 1 and not reader.judges:
        return Verdict("exit status 1", said[:200]), seconds
    if seconds > allowed or size > BYTES:
        return Verdict("above budget", f"{seconds:.1f} s, {size / 1e6:.0f} MB: {said[:100]}"), seconds
    return Verdict("good"), seconds


def _run(arguments: Sequence[str], pipe: int) -> None:
    """In the fork: the command, whose messages go to the pipe."""
    code, result = 3, None
    try:
        limit = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + ADDRESS_SPACE
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CPU, (HANG, HANG + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(6 * HANG)
        with open(os.devnull, "w", encoding="utf-8") as nothing, redirect_stdout(nothing), redirect_stderr(nothing):
            result = call(*arguments)
        text = result.stderr if result.exit_code else ""
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            text = f"internal error: {type(result.exception).__name__}: {result.exception}"
        code = int(result.exit_code)
        os.write(pipe, text.encode(errors="replace")[:4000])
    except BaseException as error:
        with suppress(OSError):
            os.write(pipe, f"internal error: {type(error).__name__}: {error}".encode()[:4000])
    os._exit(code)


def cases(reader: Reader, scratch: Path, seed: int) -> Iterator[tuple[int, Path]]:
    """Damaged files, one after another at the same place."""
    seeds = list(reader.seeds(scratch))
    packed = reader.suffix.endswith(".gz")
    seeds = [gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content for content in seeds]
    path = scratch / f"case{reader.suffix}"
    n = 0
    while True:
        rng = np.random.default_rng([seed, n])
        content = damaged(seeds[int(rng.integers(len(seeds)))], rng) if n else seeds[0]
        content = gzip.compress(content, 1, mtime=0) if packed and rng.integers(8) else content
        path.write_bytes(content)
        yield n, path
        n += 1


def main() -> None:
    """Fuzz each reader for its share of the time; a table at the end."""
    parser = argument_parser()
    parser.add_argument("--reader", action="append", help="only readers whose name begins so")
    parser.add_argument("--minutes", type=float, default=10.0, help="of all readers together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="a folder for the files that fail")
    options = parser.parse_args()
    chosen = [r for r in READERS if not options.reader or any(r.name.startswith(name) for name in options.reader)]
    wrong = 0
    print(f"{'reader':44} {'inputs':>7} crash  hang internal  status  budget", flush=True)
    for reader in chosen:
        with tempfile.TemporaryDirectory() as folder:
            found = fuzz(reader, Path(folder), options.seed, 60 * options.minutes / len(chosen), options.keep)
        kinds = ("crash", "hang", "internal error", "exit status 1", "above budget")
        print(f"{reader.name:44} {found.total():7} " + " ".join(f"{found[kind]:7}" for kind in kinds), flush=True)
        wrong += found.total() - found["good"]
    sys.exit(1 if wrong else 0)


def fuzz(reader: Reader, folder: Path, seed: int, seconds: float, keep: Path | None) -> Counter[str]:
    """One reader for so long; verdicts by their kind."""
    image, store = folder / "image.png", folder / "store.db"
    image.write_bytes(next(picture("PNG")(folder)))
    if any("{store}" in argument for argument in reader.command):
        store.write_bytes(next(made(*STORE, suffix=".db")(folder)))
    out, found, shown, end = folder / "out", Counter[str](), set[str](), time.monotonic() + seconds
    base, usual = 0, float(HANG)
    for n, path in cases(reader, folder, seed):
        arguments = [a.replace("{}", str(path)).format(out=out, image=image, store=store) for a in reader.command]
        if n == 0:
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                call(*arguments)  # What is imported and compiled once is no case's.
            base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        verdict, took = check(reader, arguments, base, SECONDS + usual)
        usual = usual if n else took
        found[verdict.kind] += 1
        if verdict.kind != "good":
            key = re.sub(r"\d+", "#", f"{verdict.kind} {verdict.text[:80]}")
            if key not in shown:
                print(f"  {reader.name}, case {n}: {verdict.kind}: {' '.join(verdict.text.split())}", flush=True)
                shown.add(key)
                if keep is not None:
                    keep.mkdir(parents=True, exist_ok=True)
                    name = re.sub(r"[^\w]+", "-", reader.name)
                    (keep / f"{name}-{seed}-{n}{reader.suffix}").write_bytes(path.read_bytes())
        if time.monotonic() > end:
            break
    return found


if __name__ == "__main__":
    os.environ["NNBRIDGE_THREADS"] = "1"
    with one_line_errors():
        main()
