"""Running a matrix: here in processes, or on a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from nnbridge.errors import InputError, PackageError, Reason, cannot_read, lacking
from nnbridge.matrix.cells import Cell, Task, compute_all, failed
from nnbridge.matrix.store import Store
from nnbridge.matrix.workers import compute

TIMEOUT = 300.0
"""Seconds for a cell."""


def run(
    groups: Sequence[Sequence[Task]],
    store: Store,
    *,
    jobs: int = 1,
    scheduler: str = "",
    timeout: float = TIMEOUT,
    progress: Callable[[int], None] = lambda done: None,
) -> list[Cell]:
    """The cells of all tasks in their order; those that the store has are taken from it, the others stored as they are done,
    but for those that a shortage left without an answer.

    ``scheduler``: the address of a Dask scheduler whose workers have nnbridge and see the same files (extra ``dask``);
    ``timeout`` counts only here.
    """
    keys = {task: task.key for group in groups for task in group}
    found = store.find(keys.values())
    missing = [left for group in groups if (left := [task for task in group if _is_missing(task, found.get(keys[task]))])]
    store.renew(key for key in keys.values() if key in found)
    progress(len(keys) - sum(map(len, missing)))
    for task, cell in _on_dask(missing, scheduler) if scheduler else compute(missing, jobs, timeout):
        if not cell.shortage:
            store.add(keys[task], cell)
        found[keys[task]] = cell
        progress(1)
    # A file may have been stored under another name; a store from elsewhere may have anything under a key.
    return [replace(found[key], model=task.name, device=task.device, level=task.level) for task, key in keys.items()]


def _is_missing(task: Task, stored: Cell | None) -> bool:
    """True for a cell that is not stored, or whose report is asked for and was not written."""
    return stored is None or (stored.answered and task.report is not None and not task.report.is_file())


def _on_dask(groups: Sequence[Sequence[Task]], address: str) -> Iterator[tuple[Task, Cell]]:
    try:
        from distributed import Client, as_completed
    except ImportError as error:
        raise PackageError.needed("Dask", "'.[dask]'", error, "scheduler") from error
    try:
        client = Client(address, timeout="10s")
    except (OSError, ValueError) as error:
        raise InputError(
            Reason("the address of a Dask scheduler that answers", f"{address}: {cannot_read(error)}", operand="scheduler")
        ) from error
    with client:
        futures = {client.submit(_group, list(group), pure=False): group for group in groups}
        for future in as_completed(futures):
            ended = future.exception()  # what Dask itself raises: workers that ended, or have another nnbridge
            group = futures[future]
            cells = future.result() if ended is None else [failed(task, lacking(ended) or ended) for task in group]
            yield from zip(group, cells, strict=True)


def _group(group: Sequence[Task]) -> list[Cell]:
    """All cells of a model, on a cluster's worker."""
    return list(compute_all(group))
