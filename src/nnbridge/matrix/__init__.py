"""Many models on many devices: every cell is one model, one device and one feature level.

:func:`run` computes cells in processes or on a Dask cluster and stores each when it is done; what a store has is not
computed again. :mod:`nnbridge.matrix.tables` shows them, :mod:`nnbridge.matrix.changes` compares two runs and
:mod:`nnbridge.matrix.budget` holds them to limits.
"""

from __future__ import annotations

from nnbridge.matrix.cells import Cell, MatrixSettings
from nnbridge.matrix.runner import run
from nnbridge.matrix.store import Store

__all__ = ["Cell", "MatrixSettings", "Store", "run"]
