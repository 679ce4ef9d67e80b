"""Logs and models → a profile file, and what was learned as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nnbridge.devices.profile_file import MAX_BYTES
from nnbridge.errors import InputError, Reason
from nnbridge.learning.logs import read_log
from nnbridge.learning.matching import Operators, by_device, delegated, devices_of, files_of, observed
from nnbridge.learning.observations import AnsweredOperation, learned
from nnbridge.learning.questions import write_questions
from nnbridge.learning.space import Rules
from nnbridge.learning.writing import delegate_text, profile_text
from nnbridge.storage.atomic import atomic_write, written_together


@written_together()
def learn_from(paths: Sequence[Path], models: Path | None, output: Path, device: str, questions: Path | None) -> dict[str, Any]:
    """Write the profile of the devices that logs name, and questions; InputError where a log says nothing."""
    logs = [read_log(path) for path in paths]
    files = files_of(models)
    names = devices_of(logs)
    tables = [] if names else by_device(delegated(logs, files))
    known = names or [name for name, _ in tables]
    if (device and device not in known) or not known:
        raise InputError(
            Reason(f"a device of the logs ({', '.join(known) or 'there is none'})", device or "none", operand="device")
        )
    chosen = [device] if device else known
    source = f"learned from {', '.join(path.name for path in paths)}"
    found: dict[str, Any] = {"profile": str(output), "devices": [], "without_models": [], "questions": []}
    if names:
        rules: dict[str, dict[str, Rules]] = {}
        for name in chosen:
            seen, unknown = observed(logs, name, files)
            rules[name] = learned(seen)
            found["devices"].append(_described(name, rules[name], seen))
            found["without_models"] += [where for where in unknown if where not in found["without_models"]]
            if questions is not None:
                found["questions"] += [str(path) for path in write_questions(rules[name], seen, questions)]
        text = profile_text(rules, source)
    else:
        tables = [(name, table) for name, table in tables if name in chosen]
        found["devices"] = [_counted(name, table) for name, table in tables]
        text = delegate_text(tables, source)
    content = text.encode()
    if len(content) > MAX_BYTES:
        raise InputError(Reason(f"logs that fit into a profile of {MAX_BYTES:,} bytes (--device)", f"{len(content):,}"))
    with atomic_write(output) as file:
        file.write(content)
    return found


def _described(name: str, rules: Mapping[str, Rules], seen: Sequence[AnsweredOperation]) -> dict[str, Any]:
    supported = sum(each.supported for each in seen)
    return {
        "name": name,
        "level": "NNAPI",
        "supported": supported,
        "refused": len(seen) - supported,
        "operations": len(rules),
        "rules": sum(len(each.required) + each.never for each in rules.values()),
        "open": sum(each.blind or bool(each.unexplained) or any(len(r) > 1 for r in each.refused) for each in rules.values()),
    }


def _counted(name: str, table: Mapping[str, Operators]) -> dict[str, Any]:
    return {
        "name": name,
        "level": "TFLite",
        "supported": sum(each.accepted for each in table.values()),
        "refused": sum(each.refused for each in table.values()),
        "operations": len(table),
        "rules": sum(bool(each.refused) for each in table.values()),
        "open": sum(bool(each.open or (each.accepted and each.refused)) for each in table.values()),
    }
