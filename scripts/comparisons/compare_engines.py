"""Profiles of LiteRT's engines beside the engines' own verdicts: which operators of a file each takes.

    python scripts/comparisons/compare_engines.py ../shared/reference/engines
    python scripts/comparisons/compare_engines.py --random 3000 --seed 5

FOLDER holds cases as files, with the verdicts of the engines: ``cases.zip`` and ``verdicts.jsonl``; ``models.jsonl`` of the
published files of ``../shared/models/tflite``, or of --models. The GPU's verdict is on whole files. ``--random``: drawn, varied
and altered operators; LiteRT's installed wheel is asked in a process of its own. Files that it does not load are not compared,
nor are operators on which no output depends: an interpreter does not say where they are. Exit status 1 where a certain answer
is not the engine's.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import argument_parser, one_line_errors

with one_line_errors():
    import ai_edge_litert.interpreter  # noqa: F401 - once, before the fork
    from nets.hunt import feeds_of

    from nnbridge import NnbridgeError, devices
    from nnbridge.devices.source_profiles import SourceProfile
    from nnbridge.engines.accelerator import Accelerator, unavailable
    from nnbridge.file import ModelFile
    from tests.conftest import shared_folder
    from tests.differential import Fork
    from tests.tflite.engines import EngineCase, delegated, differing, stored_cases, taken_by
    from tests.tflite.loading import candidate

_SHOWN = 3
ASKED = ("xnnpack", "litert-gpu", "litert-gpu-float32")


def drawn(count: int, seed: int, device: str) -> Iterator[EngineCase]:
    """Random operators with the verdict of the installed wheel."""
    ask = _asked_xnnpack if device == "xnnpack" else _asked_gpu
    fork = Fork(delegated if device == "xnnpack" else _gpu)
    for number in range(count):
        content = candidate(seed, number)
        if content is not None:
            yield EngineCase(f"{seed}:{number}", content, ask(fork, content))


def _asked_xnnpack(fork: Fork, content: bytes) -> dict[str, Any]:
    try:
        return {"xnnpack": {"delegated": fork.run(content)}}
    except RuntimeError as error:
        return {"xnnpack": {"delegated": None, "why": str(error)}}


def _asked_gpu(fork: Fork, content: bytes) -> dict[str, Any]:
    try:
        whole, *why = fork.run(content)
        return {"gpu": {"ok": whole, "why": why}}
    except RuntimeError as error:
        return {"gpu": {"ok": None if "ended the process" in str(error) else False, "why": [str(error)]}}


def _gpu(content: bytes) -> list[Any]:
    """In a fork: the verdict of LiteRT's GPU accelerator, and why; its values decide what ends it when it runs."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.tflite"
        path.write_bytes(content)
        try:
            found = Accelerator(path, float32=True)
        except NnbridgeError as error:
            return [False, error.reason.found]
        with contextlib.suppress(NnbridgeError, KeyError):
            found.run(dict(enumerate(feeds_of(ModelFile(path).source_graph))))
    return [found.verdict.whole, *found.verdict.reasons]


def compare(cases: Iterator[EngineCase], profile: SourceProfile) -> int:
    """Print what differs; how many answers do."""
    counts, rows = Counter[str](), defaultdict[str, list[str]](list)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.tflite"
        for case in cases:
            taken = taken_by(profile.name, case.engines)
            if taken is None:
                counts["not loaded by LiteRT"] += 1
                continue
            path.write_bytes(case.content)
            try:
                graph = ModelFile(path).source_graph
            except NnbridgeError:
                counts["not read"] += 1
                continue
            claims = profile.claims(graph)
            counts.update({"files": 1, "operators": len(claims), "uncertain": sum(bool(c.uncertain) for c in claims)})
            for claim in differing(graph, claims, taken):
                counts["disagreements"] += 1
                rows[f"{claim.operator.name}: the engine {'refuses' if claim.accepted else 'takes'} it"].append(case.name)
    for what, names in sorted(rows.items(), key=lambda row: -len(row[1])):
        print(f"{len(names):6} {what}: {', '.join(names[:_SHOWN])}")
    print(f"{profile.name}:", ", ".join(f"{counts[key]} {key}" for key in dict.fromkeys((*counts, "disagreements"))))
    return counts["disagreements"]


def main() -> int:
    parser = argument_parser()
    parser.add_argument("folder", nargs="?", type=Path, help="cases with the verdicts of engines")
    parser.add_argument("--models", type=Path, help="the published files of models.jsonl")
    parser.add_argument("--device", default="xnnpack", help="the profile (default: xnnpack)")
    parser.add_argument("--random", type=int, metavar="COUNT", help="ask the installed wheel about so many drawn operators")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    profile = devices.device(options.device)
    assert isinstance(profile, SourceProfile)
    if options.random and options.device not in ASKED:
        parser.error(f"--random asks the installed LiteRT about {' and '.join(ASKED)}")
    if options.random and options.device != "xnnpack" and (missing := unavailable()) is not None:
        parser.error(str(missing))
    if options.random:
        return int(compare(drawn(options.random, options.seed, options.device), profile) > 0)
    shared = shared_folder()
    folder = options.folder or shared / "reference" / "engines"
    return int(compare(stored_cases(folder, options.models or shared / "models" / "tflite"), profile) > 0)


if __name__ == "__main__":
    with one_line_errors():
        sys.exit(main())
