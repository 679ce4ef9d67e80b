"""Give commands damaged files of every kind that they read: each ends with a result or one message, quickly and in little memory.

    python scripts/nets/fuzz_commands.py --minutes 10
    python scripts/nets/fuzz_commands.py --reader profile --reader store --minutes 60 --seed 1 --keep found

A *reader* is a kind of file and the command or function that reads it: models (in bytes and structure), conversations with
drivers, caches, allowlists, profiles, defaults, tolerances, budgets, stores, plans, traces, logs, questions, cases, labels,
inputs, stored references, and the texts of options. Bytes, words, numbers, lines and lengths of intact files are changed, parts
are repeated up to a megabyte, nested, or replaced by odd ones; compressed files are changed inside. Each case runs in a fork of
a process that has everything imported, so that its end, its time and its memory are known. Printed for each reader: minutes,
inputs, how many were accepted and refused, crashes, hangs (ended after 10 s), internal errors, exit status 1 where none is due
or a refusal without a message, and cases above 2 s of processor time, and what the intact file takes, or 256 MB. Exit status 1 if
there are any.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import re
import resource
import signal
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import argument_parser, one_line_errors

from nnbridge.errors import InputError, NnbridgeError
from tests.commands import call

MODELS = Path(__file__).resolve().parents[2] / "models"
MODEL = str(MODELS / "digits_int8.tflite")
FLOAT = str(MODELS / "digits_float32.tflite")
ANSWERS = str(MODELS / "digits_int8.litert.npz")
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
    command: tuple[str, ...] | Callable[[Path], object]
    """``{text}`` is the file's text. A function raises NnbridgeError where it refuses the file."""
    judges: bool = False
    """Exit status 1 is a judgement that is due, such as a difference."""
    structure: str = ""
    """The package of tests whose ``mutations`` change the fields of a model."""
    place: str = ""
    """The file's name in the folder, a pattern for one that ``seeds`` has written."""

    def damaged(self, seed: Path, other: bytes, rng: np.random.Generator) -> bytes:
        """A copy of a seed with changes."""
        if not self.structure:
            return damaged(seed.read_bytes(), other, rng)
        ways = _model(self.structure, seed).ways
        return bytes(ways[int(rng.integers(len(ways)))](rng))


@cache
def _model(package: str, path: Path) -> Any:
    """An intact model whose fields are known."""
    return import_module(f"tests.{package}.mutations").Source(path)


def stored(*paths: str) -> Seeds:
    """Files of the repository."""
    root = MODELS.parent
    return lambda scratch: ((path.read_bytes()) for pattern in paths for path in sorted(root.glob(pattern)))


def made(*arguments: str, suffix: str) -> Seeds:
    """The file that a command writes; ``{out}`` is its path."""

    def seeds(scratch: Path) -> Iterator[bytes]:
        out = scratch / f"made{suffix}"
        out.unlink(missing_ok=True)
        call(*(argument.format(out=out) for argument in arguments))
        yield out.read_bytes()

    return seeds


def printed(*arguments: str) -> Seeds:
    """The output of a command."""
    return lambda scratch: iter([call(*arguments).stdout.encode()])


def text(*texts: str) -> Seeds:
    """Texts as they stand here."""
    return lambda scratch: (one.encode() for one in texts)


def saved(write: Callable[[io.BytesIO], object]) -> Seeds:
    """The file that a library writes."""

    def seeds(scratch: Path) -> Iterator[bytes]:
        file = io.BytesIO()
        write(file)
        yield file.getvalue()

    return seeds


def trace(scratch: Path) -> Iterator[bytes]:
    """The trace that NNBRIDGE_TRACE writes: the calls of a client, here those of the NDK's functions in a process of their
    own."""
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


def operators(format: str) -> Seeds:
    """Single operators as models: of the tests, and of ONNX's own suite."""

    def seeds(scratch: Path) -> Iterator[bytes]:
        if format == "onnx":
            from tests.onnx.mutations import operators as single

            yield from single()[::16]
            return
        from tests.tflite.cases import cases

        for n, case in enumerate(case for case in cases() if case.types):
            if n % 4 == 0:
                yield case.write(scratch, case.types[0]).read_bytes()

    return seeds


def conversations(scratch: Path) -> Iterator[bytes]:
    """Both sides of conversations with a driver's process."""
    from tests.devices.conversations import seeds

    yield from seeds()


def hold(path: Path) -> None:
    """The other side of a conversation."""
    from tests.devices import conversations as real

    real.hold(path.read_bytes())


def labelled(scratch: Path) -> Iterator[bytes]:
    """A TFLite file with metadata and an archive of labels."""
    from tests import hostile_growth

    yield hostile_growth._labelled({"l": b"a\nb\n"}, hostile_growth._label_metadata(["l"]))


def packed_questions(scratch: Path) -> Iterator[bytes]:
    """Questions as they are sent."""
    yield from (gzip.compress(content, mtime=0) for content in questions(scratch))


def sounds(file: io.BytesIO, width: int = 3) -> None:
    """A sound of other samples."""
    import wave

    with wave.open(file, "wb") as out:
        out.setnchannels(2)
        out.setsampwidth(width)
        out.setframerate(44100)
        out.writeframes(bytes(range(2 * width * 32)))


def cached(*arguments: str) -> Seeds:
    """The files that a command leaves in a cache's folder."""

    def seeds(scratch: Path) -> Iterator[bytes]:
        (scratch / "cache").mkdir(mode=0o700, exist_ok=True)
        call(*(argument.format(cache=scratch / "cache") for argument in arguments))
        yield from (path.read_bytes() for path in sorted((scratch / "cache").rglob("*")) if path.is_file())

    return seeds


def stored_safely(scratch: Path) -> Iterator[bytes]:
    """A file of a cache with its digest."""
    from nnbridge import caches

    caches.store(scratch / "safe", "x.o", bytes(range(256)) * 8)
    yield (scratch / "safe" / "x.o").read_bytes()


def read_safely(path: Path) -> None:
    """A file of a cache; what is damaged is none."""
    from nnbridge import caches

    found = caches.read(path.parent, path.name, 1 << 20)
    if found is None:
        raise InputError("damaged")
    assert found == bytes(range(256)) * 8


def allowlist(path: Path) -> None:
    """The processes that may use vendor extensions."""
    from nnbridge.allowlist import read_allowlist

    read_allowlist(path)


def in_folder(*arguments: str) -> Callable[[Path], object]:
    """A command in the file's folder, where it finds the file."""

    def act(path: Path) -> None:
        os.chdir(path.parent)
        result = call(*arguments)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        if result.exit_code:
            raise InputError(result.stderr)

    return act


TEXTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "--shape": ("serving_default_image:0=1,8,8,1", ("plan", MODEL, "--shape", "{text}")),
    "--device": ("nnapi-sample_all", ("plan", MODEL, "--device", "{text}")),
    "--android": ("13", ("plan", MODEL, "--android", "{text}")),
    "--seeds": ("0-2", ("compare", MODEL, "--reference", "litert", "--seeds", "{text}")),
    "--operations": ("0-1", ("extract", MODEL, "--operations", "{text}", "-o", "{out}.tflite")),
    "--input": ("serving_default_image:0=zeros.npy", ("run", MODEL, "--input", "{text}")),
    "--labels": ("labels.txt", ("run", MODEL, "--input", "{image}", "--labels", "{text}")),
    "--reference": ("a.npz", ("compare", MODEL, "--seeds", "0", "--reference", "{text}")),
    "--tolerances": ("a.toml", ("compare", MODEL, "--seeds", "0", "--reference", ANSWERS, "--tolerances", "{text}")),
    "--config": ("a.toml", ("--config", "{text}", "plan", MODEL)),
    "--cache-dir": ("cache", ("plan", MODEL, "--device", "caching:nnapi-sample_all", "--cache-dir", "{text}")),
    "--store": ("a.db", ("matrix", MODEL, "--devices", "nnapi-sample_all", "--jobs", "1", "--store", "{text}")),
    "--budget": ("a.toml", ("matrix", "--diff", "{store}", "{store}", "--budget", "{text}")),
    "--output": ("a.nnapi", ("convert", MODEL, "-o", "{text}")),
    "--samples": ("a.npz", ("run", MODEL, "--seed", "0", "--samples", "{text}")),
    "model": ("a.tflite", ("plan", "{text}")),
    "models": ("models/*.tflite", ("matrix", "{text}", "--devices", "nnapi-sample_all", "--store", "{out}.db", "--jobs", "1")),
    "logs": ("a.log", ("devices", "learn", "{text}", "-o", "{out}.toml")),
    "profile": ("a.toml", ("devices", "check", "{text}")),
    "cases": ("folder", ("vts", "{text}")),
    "matrix --devices": ("nnapi-sample_all,vsi-*,a+b", ("matrix", MODEL, "--devices", "{text}", "--store", "{out}.db")),
}
"""Option or argument with a text of its own → a good one, and the command."""
TOLERANCES = '[default]\nrtol = 1e-3\natol = 1e-5\n\n[outputs."StatefulPartitionedCall:0"]\nsteps = 2\n'
BUDGET = '[limits]\npartitions = 3\non_device = 0.5\n\n[[limit]]\nmodel = "digits*"\ndevice = "*"\ndifference = 2\n'
DEFAULTS = '[plan]\ndevice = ["nnapi-sample_all"]\nandroid = "13"\n\n[compare]\nreference = "litert"\nseeds = "0-2"\n'
RUN = ("run", MODEL, "--host", "nnbridge")
STORE = ("matrix", MODEL, FLOAT, "--devices", "nnapi-sample_all,nnapi-sample_quant", "--store", "{out}", "--jobs", "1")
NPZ = stored("models/digits_int8.litert.npz")
SAVED = made("convert", MODEL, "-o", "{out}", suffix=".nnapi")
COMPARE = ("compare", MODEL, "--seeds", "0")
ONNX = saved(lambda file: file.write((MODELS / "digits_qdq.onnx").read_bytes()))
TFLITE = saved(lambda file: file.write((MODELS / "digits_int8.tflite").read_bytes()))

READERS = (
    Reader("conversation", ".txt", conversations, hold),
    Reader("allowlist", ".txt", text("/vendor/bin/a\ncom.example.app\nnothing\n"), allowlist),
    Reader("archive of labels: inspect", ".tflite", labelled, ("inspect", "{}")),
    Reader("tflite structure: inspect", ".tflite", operators("tflite"), ("inspect", "{}"), structure="tflite"),
    Reader("onnx structure: inspect", ".onnx", operators("onnx"), ("inspect", "{}"), structure="onnx"),
    Reader("tflite operators: convert", ".tflite", operators("tflite"), ("convert", "{}", "-o", "{out}.nnapi")),
    Reader("onnx operators: convert", ".onnx", operators("onnx"), ("convert", "{}", "-o", "{out}.nnapi")),
    Reader("saved model: inspect", ".nnapi", made("convert", MODEL, "-o", "{out}", suffix=".nnapi"), ("inspect", "{}")),
    Reader("cache of compilations", "", cached("plan", MODEL, "--device", "caching:nnapi-sample_all", "--cache-dir", "{cache}"),
           ("run", MODEL, "--seed", "0", "--device", "caching:nnapi-sample_all", "--cache-dir", "{cache}"), place="cache/**/*"),
    Reader("cache of kernels", ".o", stored_safely, read_safely, place="safe/x.o"),
    Reader("nnbridge.toml, found", "", text('[plan]\nandroid = "13"\n'), in_folder("plan", MODEL), place="nnbridge.toml"),
    Reader("pyproject.toml, found", "", text('[tool.nnbridge.plan]\nandroid = "13"\n'), in_folder("plan", MODEL),
           place="pyproject.toml"),
    *(Reader(f"option {name}", "", text(good), command, place="text") for name, (good, command) in TEXTS.items()),
    Reader("store: continued", ".db", made("matrix", MODEL, "--devices", "nnapi-sample_all", "--store", "{out}", "--jobs", "1",
                                           suffix=".db"),
           ("matrix", MODEL, "--devices", "nnapi-sample_all", "--store", "{}", "--jobs", "1"), True),
    Reader("learn: packed questions", ".jsonl.gz", packed_questions, ("devices", "learn", "{}", "-o", "{out}.toml")),
    Reader("input .wav of 24 bits", ".wav", saved(sounds), ("run", MODEL, "--host", "nnbridge", "--input", "{}")),
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
    b"../..", b"inf", b"-inf", b"-0", b"1e-400", b"0x10", b"1_000", b"2026-11-28T00:00:00Z", b"[" * 5000 + b"]" * 5000,
    b'{"a":' * 3000 + b"1" + b"}" * 3000, b"a." * 3000 + b"a", b'"\xf0\x9f\x98\x80"', b'"\\ud800"', b'"\xe2\x80\xae"',
    b"\x1b[31m", b'"<script>alert(1)</script>"', b"%s%n{0}{x}", b"'; drop table cells; --", b"\xc0\x80", b"\xef\xbb\xbf",
    b"a" * 100_000, "１２".encode(), "𝟙".encode(), "x\N{COMBINING ACUTE ACCENT}".encode() * 50,
)  # fmt: skip
_WORDS = tuple(
    struct.pack(form, value)
    for form, value in (
        ("<f", math.nan), ("<f", math.inf), ("<f", -0.0), ("<f", 1e-45), ("<d", math.nan), ("<d", -math.inf), ("<i", -1),
        ("<i", 2**31 - 1), ("<i", -(2**31)), ("<q", -1), ("<q", 2**63 - 1), ("<q", 2**62), (">i", 2**31 - 1), (">i", 65536),
        ("<i", 65536), ("<i", 4), ("<H", 0xFFFF), (">H", 0xFFFF), ("<i", 0), ("<q", 0),
    )
)  # fmt: skip
LARGEST = 1_000_000
"""Bytes of the largest case."""


def damaged(content: bytes, other: bytes, rng: np.random.Generator) -> bytes:
    """A copy with a few bytes, words, numbers or lines changed, cut, repeated, nested, or joined with another file."""
    kind = int(rng.integers(40))
    if kind == 0:
        return content[: int(rng.integers(len(content) + 1))] + other[int(rng.integers(len(other) + 1)) :]
    if kind == 1:
        return _grown(content, rng)
    for _ in range(int(rng.integers(1, 4))):
        content = _WAYS[int(rng.integers(len(_WAYS)))](content, rng)
    return content[:LARGEST]


def _grown(content: bytes, rng: np.random.Generator) -> bytes:
    """A part, a line or a few, so often that there is up to a megabyte, each with a number of its own by chance."""
    lines = content.split(b"\n")
    at, size = int(rng.integers(len(lines))), int(rng.choice([1, 1, 2, 5]))
    part = b"\n".join(lines[at : at + size]) + b"\n"
    if rng.integers(2):
        start = int(rng.integers(len(content) + 1))
        part = content[start : start + int(rng.choice([1, 2, 8, 64]))]
    found = list(_NUMBER.finditer(part)) + list(_WORD.finditer(part))
    numbered = found[int(rng.integers(len(found)))] if found and rng.integers(2) else None
    many, before = [], content.index(lines[at]) if lines[at] else 0
    left = int(rng.choice([20_000, 200_000, LARGEST - len(content)]))
    while part and left > 0:
        n = str(len(many)).encode()
        one = part if numbered is None else part[: numbered.end()] + n + part[numbered.end() :]
        many.append(one)
        left -= len(one)
    return (content[:before] + b"".join(many) + content[before:])[:LARGEST]


def _bytes(content: bytes, rng: np.random.Generator) -> bytes:
    copy = bytearray(content)
    for _ in range(int(rng.integers(1, 5)) if copy else 0):
        at = int(rng.integers(len(copy)))
        if rng.integers(4) == 0:
            word = _WORDS[int(rng.integers(len(_WORDS)))]
            copy[at : at + len(word)] = word
            continue
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
    """The end of a case: ``accepted``, ``refused``, or what is wrong with it."""

    kind: str
    text: str = ""


def check(reader: Reader, arguments: Sequence[str] | Callable[[], object], base: int, allowed: float) -> tuple[Verdict, float]:
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
    if (code == 1 and not reader.judges) or (code == 2 and not said.strip()):
        return Verdict("exit status 1", said[:200] or "a refusal without a message"), seconds
    if seconds > allowed or size > BYTES:
        return Verdict("above budget", f"{seconds:.1f} s, {size / 1e6:.0f} MB: {said[:100]}"), seconds
    return Verdict("refused" if code == 2 else "accepted"), seconds


def _run(arguments: Sequence[str] | Callable[[], object], pipe: int) -> None:
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
            if callable(arguments):
                code = _acted(arguments, pipe)
                os._exit(code)
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


def _acted(act: Callable[[], object], pipe: int) -> int:
    """The exit status that a command would have."""
    try:
        act()
    except NnbridgeError as error:
        os.write(pipe, str(error).encode(errors="replace")[:4000])
        return 2
    return 0


def cases(reader: Reader, scratch: Path, seed: int) -> Iterator[tuple[int, Path]]:
    """Damaged files, one after another at the same place."""
    seeds = list(reader.seeds(scratch))
    packed = reader.suffix.endswith(".gz")
    seeds = [gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content for content in seeds]
    kept = [scratch / f"seed{n}{reader.suffix}" for n in range(len(seeds))]
    for where, content in zip(kept, seeds, strict=True):
        where.write_bytes(content)
    found = [path for path in sorted(scratch.glob(reader.place)) if path.is_file()] if reader.place else []
    path = (found or [scratch / (reader.place or f"case{reader.suffix}")])[0]
    n = 0
    while True:
        rng = np.random.default_rng([seed, n])
        chosen, other = (int(rng.integers(len(seeds))) for _ in range(2))
        content = reader.damaged(kept[chosen], seeds[other], rng) if n else seeds[0]
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
    kinds = ("accepted", "refused", "crash", "hang", "internal error", "exit status 1", "above budget")
    print(f"{'reader':40} minutes  inputs " + " ".join(f"{kind.split()[0]:>8}" for kind in kinds), flush=True)
    for reader in chosen:
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            found = fuzz(reader, Path(folder), options.seed, 60 * options.minutes / len(chosen), options.keep)
        minutes = (time.monotonic() - started) / 60
        print(f"{reader.name:40} {minutes:7.1f} {found.total():7} " + " ".join(f"{found[kind]:8}" for kind in kinds), flush=True)
        wrong += sum(found[kind] for kind in kinds[2:])
    sys.exit(1 if wrong else 0)


def fuzz(reader: Reader, folder: Path, seed: int, seconds: float, keep: Path | None) -> Counter[str]:
    """One reader for so long; verdicts by their kind."""
    work = folder / "work" / "in" / "folders"
    work.mkdir(parents=True)
    os.chdir(work)  # Texts may be paths of files that are written.
    image, store = folder / "image.png", folder / "store.db"
    image.write_bytes(next(picture("PNG")(folder)))
    command = reader.command
    if not callable(command) and any("{store}" in argument for argument in command):
        store.write_bytes(next(made(*STORE, suffix=".db")(folder)))
    out, found, shown, end = folder / "out", Counter[str](), set[str](), time.monotonic() + seconds
    base, usual = 0, float(HANG)
    for n, path in cases(reader, folder, seed):
        arguments: Any = partial(command, path) if callable(command) else None
        if not callable(command):
            words = {"out": out, "image": image, "store": store, "cache": folder / "cache"}
            if "{text}" in command:
                words["text"] = path.read_bytes().decode(errors="replace").replace("\0", "")[:100_000]
            arguments = [a.replace("{}", str(path)).format(**words) for a in command]
        if n == 0:
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                arguments() if callable(arguments) else call(*arguments)  # What is imported and compiled once is no case's.
            base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        verdict, took = check(reader, arguments, base, SECONDS + usual)
        usual = usual if n else took
        found[verdict.kind] += 1
        if verdict.kind not in ("accepted", "refused"):
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
