"""What Arm's Vela (the package ``ethos-u-vela``, installed by whoever runs this) does with TFLite files."""

from __future__ import annotations

import csv
import io
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SYSTEMS = {"u55": "Ethos_U55_High_End_Embedded", "u65": "Ethos_U65_Embedded", "u85": "Ethos_U85_SYS_DRAM_Mid"}
_TABLE = re.compile(r'<table name="(\w+)">\s*<!\[CDATA\[(.*?)\]\]>', re.DOTALL)


@dataclass(frozen=True)
class Oracle:
    """Vela's answer for one file."""

    error: str = ""
    places: dict[int, str] = field(default_factory=dict)
    """Operator → ``NPU`` or ``CPU``; operators that Vela folded away are not listed."""
    cycles: dict[int, float] = field(default_factory=dict)
    """Operator → its cycles; on the NPU only."""
    total_cycles: float = 0.0
    sram_bytes: float = 0.0


def run(vela: Path, files: Sequence[Path], accelerator: str, folder: Path, memory_mode: str = "Shared_Sram") -> Iterator[Oracle]:
    """Vela's answers, one file after the other."""
    series = accelerator.split("-")[1]
    for file in files:
        command = [str(vela), str(file), "--accelerator-config", accelerator, "--config", "Arm/vela.ini"]
        command += ["--system-config", SYSTEMS[series], "--memory-mode", memory_mode, "--output-dir", str(folder)]
        done = subprocess.run([*command, "--enable-debug-db"], capture_output=True, text=True, check=False, cwd=folder)
        yield _read(folder, file.stem, done.stdout + done.stderr)


def _read(folder: Path, stem: str, log: str) -> Oracle:
    database = folder / f"{stem}_debug.xml"
    summaries = sorted(folder.glob(f"{stem}_summary_*.csv"))
    if not database.exists():
        return Oracle(log.strip()[-300:])
    tables = {name: list(csv.DictReader(io.StringIO(text.strip()))) for name, text in _TABLE.findall(database.read_text())}
    operator_of = {row["id"]: int(row["ext_key"]) for row in tables["source"]}
    on_npu = {row["source_id"] for row in tables.get("perf", ())}
    cycles: dict[int, float] = {}
    for row in tables.get("perf", ()):
        number = operator_of.get(row["source_id"])
        if number is not None:
            cycles[number] = cycles.get(number, 0.0) + float(row["op_cycles"])
    listed = {row["source_id"] for row in tables.get("optimised", ())}
    places = {n: "NPU" if i in on_npu else "CPU" for i, n in operator_of.items() if i in on_npu or i in listed}
    summary = next(csv.DictReader(summaries[0].open())) if summaries else {}
    for used in (database, *summaries):
        used.unlink()
    return Oracle(
        "",
        places,
        cycles,
        float(summary.get("cycles_total", 0) or 0),
        float(summary.get("sram_memory_used", 0) or 0) * 1024,
    )
