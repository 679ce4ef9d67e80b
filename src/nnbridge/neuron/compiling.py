"""LiteRT's MediaTek compiler, started for a file and nnbridge's devices, and what it said."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from nnbridge import devices as device_list
from nnbridge import trust
from nnbridge.allowlist import ALLOWLIST_VARIABLE
from nnbridge.errors import InputError, PackageError, Reason
from nnbridge.ndk.core import CPU_ONLY_VARIABLE, DEVICES_VARIABLE
from nnbridge.ndk.trace import VARIABLE as TRACE_VARIABLE
from nnbridge.neuron import adapter
from nnbridge.neuron.answers import Granted, answered, route
from nnbridge.neuron.functions import FILE_VARIABLE, REPORT_VARIABLE
from nnbridge.records import dataclass
from nnbridge.storage.atomic import atomic_write
from nnbridge.storage.temporary import TemporaryFolder

SOCS = [
    f"mt{number}" for number in (6853, 6877, 6878, 6879, 6886, 6893, 6895, 6897, 6983, 6985, 6989, 6991, 6993, 8171, 8188, 8189)
]
"""What the compiler of ai-edge-litert 2.3 compiles for; the calls, and with them the result, are the same for all."""
DEFAULT_SOC = "mt6989"
_PROGRAM, _PLUGINS = Path("tools", "apply_plugin_main"), Path("vendors", "mediatek", "compiler")
_HARMFUL = "MTKNN_ADAPTER_DLA_DIR"
"""The compiler removes the folder that this variable names."""
_IDLE = ("INFO: [", " ", "/_", "CMD: ", "MODEL: ", "SOC_M", "[LITERT_TOOLS", "WARNING: [npu_registry")
"""How lines begin that say what LiteRT does and finds, whatever the file."""
_SHOWN = 2000
"""Characters of the compiler's words that a refusal shows, the last ones."""


@dataclass(frozen=True)
class NamedPartition:
    """A compiled partition: the name by which the file calls it, and its operators."""

    name: str
    operators: tuple[str, ...]


@dataclass(frozen=True)
class CompiledFile:
    """The compiler's result for a file."""

    path: Path
    answers: tuple[Granted, ...]
    """For each subgraph what was granted; refusals as text."""
    operators: tuple[tuple[str, ...], ...]
    """The names of each subgraph's operators."""
    partitions: tuple[NamedPartition, ...]
    messages: tuple[str, ...]
    """What the compiler printed."""


def compile_file(
    model: Path, target: Path, devices: Sequence[str], soc: str = DEFAULT_SOC, options: Sequence[str] = ()
) -> CompiledFile:
    """Compile a TFLite file for devices; ``options`` are flags of LiteRT's program.

    InputError if LiteRT or a C compiler is missing, and with the program's words where it fails.
    """
    if soc.lower() not in SOCS:
        raise InputError(Reason(f"one of {', '.join(SOCS)}", soc, operand="soc"))
    for name in devices:
        device_list.device(name)
    passed = route().passed(model)
    litert = litert_folder()
    if os.path.realpath(target) == os.path.realpath(model):
        raise InputError(Reason("a file other than the model", str(target), operand="output"))
    library = adapter().cached()
    with TemporaryFolder() as work:
        out, report = Path(work, "out.tflite"), Path(work, "report")
        command = [
            str(litert / _PROGRAM),
            "--cmd=apply",
            f"--model={os.path.realpath(model)}",
            f"--o={out}",
            "--soc_manufacturer=MediaTek",
        ]
        command += [f"--soc_model={soc.lower()}", "--err=--", f"--libs={litert / _PLUGINS}", *options]
        known = {FILE_VARIABLE: os.path.realpath(model), REPORT_VARIABLE: str(report), DEVICES_VARIABLE: ",".join(devices)}
        # In an empty folder: LiteRT's plug-in looks for libraries in folders below the current one.
        ended = subprocess.run(
            command,
            cwd=work,
            env=_environment(library, litert, known),
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        words = (line for text in (ended.stdout, ended.stderr) for line in text.splitlines())
        messages = tuple(line for line in words if line.strip() and not line.startswith(_IDLE))
        if ended.returncode or not out.is_file() or not out.stat().st_size:
            shown = "\n".join(messages)[-_SHOWN:]
            found = f"exit status {ended.returncode}\n{shown}"
            raise InputError(Reason("a file of which LiteRT's compiler compiles a part", found, operand=str(model)))
        with atomic_write(target) as file:
            file.write(out.read_bytes())
        entries = [json.loads(line) for line in report.read_text(encoding="utf-8").splitlines()]
    answers = tuple(
        Granted(tuple(e["names"]), {int(number): Reason(text) for number, text in e["refused"].items()})
        for e in entries
        if "refused" in e
    )
    partitions = tuple(NamedPartition(e["partition"], tuple(e["names"])) for e in entries if "partition" in e)
    return CompiledFile(target, answers, tuple(p.operators for p in passed), partitions, messages)


def predicted(model: Path, devices: Sequence[str]) -> tuple[Granted, ...]:
    """The operators of each subgraph of a file that the devices grant, without LiteRT: by the rules of what its compiler
    passes on."""
    found = tuple(device_list.device(name) for name in devices)
    return tuple(answered(passed.expressed, found, passed.lost) for passed in route().passed(model))


def litert_folder() -> Path:
    """The package of LiteRT with its compiler. InputError where it is not installed, or without the MediaTek plug-in."""
    try:
        spec = importlib.util.find_spec("ai_edge_litert")
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise PackageError.needed("LiteRT", "ai-edge-litert", "none", "build neuron-file")
    folder = Path(next(iter(spec.submodule_search_locations)))
    missing = next((part for part in (_PROGRAM, _PLUGINS) if not (folder / part).exists()), None)
    if missing is not None:
        raise InputError(
            Reason("ai-edge-litert of 2.1 or later with its MediaTek compiler", f"no {missing}", operand=str(folder))
        )
    return folder


def _environment(library: Path, litert: Path, known: Mapping[str, str]) -> dict[str, str]:
    """The program's environment: nnbridge's library first, then LiteRT's."""
    found = {key: value for key, value in trust.environment().items() if key not in (_HARMFUL, CPU_ONLY_VARIABLE)}
    paths = [str(library.parent), str(litert), *filter(None, [found.get("LD_LIBRARY_PATH")])]
    files = {name: os.path.abspath(found[name]) for name in (TRACE_VARIABLE, ALLOWLIST_VARIABLE) if found.get(name)}
    return {**found, **files, **known, trust.FOLDER: os.getcwd(), "LD_LIBRARY_PATH": os.pathsep.join(paths)}
