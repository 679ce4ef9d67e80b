"""Results of Arm's Vela (the package ``ethos-u-vela``, installed by the user) for TFLite files."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE

from nnbridge.errors import NnbridgeError
from nnbridge.file import ModelFile
from nnbridge.source import SourceOperator

SYSTEMS = {"u55": "Ethos_U55_High_End_Embedded", "u65": "Ethos_U65_Embedded", "u85": "Ethos_U85_SYS_DRAM_Mid"}
NPU = "CUSTOM:ethos-u"
_TABLE = re.compile(r'<table name="(\w+)">\s*<!\[CDATA\[(.*?)\]\]>', re.DOTALL)


@dataclass(frozen=True)
class Oracle:
    """Vela's answer for one file."""

    error: str = ""
    """Why Vela refused the file, or failed on it."""
    crashed: bool = False
    """It ended by a signal, took too long, or wrote a file that can not be read."""
    on_cpu: frozenset[int] = frozenset()
    """Operators that Vela left as they are; it compiled the others or folded them away."""
    cycles: dict[int, float] = field(default_factory=dict)
    """Operator → its cycles; on the NPU only."""
    total_cycles: float = 0.0
    sram_bytes: float = 0.0


def run(vela: Path, files: Sequence[Path], accelerator: str, folder: Path, memory_mode: str = "Shared_Sram") -> Iterator[Oracle]:
    """Vela's answers, one file after the other. Vela is loaded once, by the Python beside its command."""
    if not files:
        return
    series = accelerator.split("-")[1]
    options = ["--accelerator-config", accelerator, "--config", "Arm/vela.ini", "--system-config", SYSTEMS[series]]
    options += ["--memory-mode", memory_mode, "--output-dir", str(folder), "--enable-debug-db"]
    log = folder / "vela.log"
    command = [str(vela.parent / "python"), str(Path(__file__).with_name("forked.py"))]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True, cwd=folder, env=environment) as forked:
        assert forked.stdin is not None
        assert forked.stdout is not None
        for file in files:
            print(json.dumps([str(log), str(file.resolve()), *options]), file=forked.stdin, flush=True)
            status = forked.stdout.readline().strip()
            said = log.read_text(errors="replace") if log.exists() else ""
            if status != "0":
                yield Oracle(f"{said.strip()[-600:]} ({status})", status.startswith("-"))
                continue
            try:
                yield _read(folder, file, said)
            except NnbridgeError as unreadable:  # a scratch tensor of more than 2 GiB has a negative size
                yield Oracle(str(unreadable), True)


def _read(folder: Path, file: Path, log: str) -> Oracle:
    compiled, database = folder / f"{file.stem}_vela.tflite", folder / f"{file.stem}_debug.xml"
    summaries = sorted(folder.glob(f"{file.stem}_summary_*.csv"))
    if not compiled.exists():
        return Oracle(log.strip()[-300:])
    tables = {name: list(csv.DictReader(io.StringIO(text.strip()))) for name, text in _tables(database)}
    operator_of = {row["id"]: int(row["ext_key"]) for row in tables.get("source", ())}
    cycles: dict[int, float] = {}
    for row in tables.get("perf", ()):
        number = operator_of.get(row["source_id"])
        if number is not None:
            cycles[number] = cycles.get(number, 0.0) + float(row["op_cycles"])
    kept = (operator for operator in ModelFile(compiled).source_graph.operators if operator.name != NPU)
    left = {(operator.name, name) for operator in kept for name in _outputs(operator)}
    on_cpu = {o.index for o in ModelFile(file).source_graph.operators if any((o.name, name) in left for name in _outputs(o))}
    with summaries[0].open() if summaries else io.StringIO("cycles_total\n0\n") as text:
        summary = next(csv.DictReader(text))
    for used in (compiled, database, *summaries):
        used.unlink(missing_ok=True)
    total, sram = (float(summary.get(key) or 0) for key in ("cycles_total", "sram_memory_used"))
    return Oracle("", False, frozenset(on_cpu), cycles, total, sram * 1024)


def _outputs(operator: SourceOperator) -> list[str]:
    """Names of outputs; Vela adds an ending where it converts an output of BOOL afterwards."""
    return [tensor.name.removesuffix("_int8") for tensor in operator.outputs]


def _tables(database: Path) -> list[tuple[str, str]]:
    return _TABLE.findall(database.read_text()) if database.exists() else []
