"""NNBRIDGE_TRACE: what an NNAPI client did, line by line as JSON, and its finished models beside it."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from pathlib import Path
from typing import Any

from nnbridge import storage
from nnbridge.errors import InputError, NnbridgeError, Reason, cannot_read
from nnbridge.model import Model
from nnbridge.runtime.compilation import Compilation

VARIABLE = "NNBRIDGE_TRACE"
LOG = logging.getLogger("nnbridge.ndk.trace")


class Trace:
    """A file of calls. Each line has the call, its result code, when it began and how long it took (seconds, microseconds)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._models = 0
        self._saved: dict[int, str] = {}
        """Finished model, by its identity → the file beside the trace."""
        self._ended = False
        self._started = time.perf_counter()
        try:
            self._file = path.open("w", encoding="utf-8")
        except OSError as error:
            found = f"{path}: {cannot_read(error)}"
            raise InputError(Reason("a file that can be written to", found, operand=VARIABLE)) from error

    def call(self, name: str, code: int, began: float, **more: Any) -> None:
        """One call that ended now."""
        now = time.perf_counter()
        line = {"call": name, "code": code, "at": round(began - self._started, 6), "us": round((now - began) * 1e6, 1), **more}
        with self._lock:
            if self._ended:
                return
            try:
                self._file.write(json.dumps(line) + "\n")
                self._file.flush()
            except OSError as error:
                # The client's calls go on; a trace with holes would mislead.
                self._ended = True
                LOG.error("%s: %s cannot be written to any more: %s", VARIABLE, self._path, error.strerror or error)

    def model(self, model: Model) -> str:
        """Save a finished model beside the trace; the name of its file."""
        with self._lock:
            self._models += 1
            target = self._path.with_name(f"{self._path.stem}.model{self._models}.nnapi")
        try:
            storage.save(model, target)
        except (NnbridgeError, OSError) as error:
            LOG.warning("the model cannot be saved beside the trace: %s", error)
            return ""
        self._saved[id(model)] = target.name
        return target.name

    def answers(self, compilation: Compilation) -> dict[str, Any]:
        """The answers of every device for each operation, and the file of the model."""
        names = (compilation.model.operation_name(o) for o in compilation.model.main.operations)
        listed = [
            {"type": name, "devices": {answer.device: answer.supported for answer in placement.answers}}
            for name, placement in zip(names, compilation.placements, strict=False)
        ]
        return {"saved": self._saved.get(id(compilation.model), ""), "answers": listed}

    @staticmethod
    def plan(compilation: Compilation) -> list[dict[str, Any]]:
        """Device and operations of each step."""
        plan = compilation.plan
        return [
            {
                "device": plan.devices[step.device].name,
                "operations": [step.model.operation_name(o) for o in step.model.main.operations],
            }
            for step in plan.steps
        ]


def from_environment() -> Trace | None:
    """The trace that the environment names."""
    path = os.environ.get(VARIABLE, "")
    return Trace(Path(path)) if path else None
