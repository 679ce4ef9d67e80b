"""What is typed after ``--input``, ``--shape`` and ``--seeds``, read; errors say what was expected and found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nnbridge.model import Model


def read_inputs(model: Model, given: Sequence[str], seed: int | None) -> dict[str, Any]:
    """The model's inputs by name: those of ``NAME=FILE.npy``, the others drawn with the seed."""
    import numpy as np

    from nnbridge.compare import seeded_inputs
    from nnbridge.errors import InputError, Reason
    from nnbridge.runtime.arguments import input_name

    names = [input_name(model.main.operands[i], k) for k, i in enumerate(model.own_inputs)]
    values: dict[str, Any] = {} if seed is None else seeded_inputs(model, seed)
    for text in given:
        name, separator, file = text.partition("=")
        if not separator or name not in names:
            raise InputError(Reason(f"NAME=FILE.npy with a name of {', '.join(names)}", text, operand="--input"))
        try:
            values[name] = np.load(file, allow_pickle=False)
        except Exception as error:
            raise InputError(Reason("a .npy file", f"{file}: {error}", operand=f"--input {name}")) from error
        if not isinstance(values[name], np.ndarray):
            raise InputError(Reason("a .npy file with one array", file, operand=f"--input {name}"))
    missing = [name for name in names if name not in values]
    if missing:
        raise InputError(Reason("--input for every input, or --seed", f"none for {', '.join(missing)}"))
    return {name: values[name] for name in names}


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """``NAME=1,224,224,3``."""
    from nnbridge.errors import InputError, Reason

    name, separator, dims = text.rpartition("=")
    try:
        shape = tuple(int(d) for d in dims.split(","))
    except ValueError:
        shape = ()
    if not separator or not shape or any(d < 1 for d in shape):
        raise InputError(Reason("NAME=1,224,224,3", text, operand="--shape"))
    return name, shape


def parse_seeds(text: str) -> list[int]:
    """``0,1,2``."""
    from nnbridge.errors import InputError, Reason

    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError:
        seeds = []
    if not seeds or min(seeds) < 0:
        raise InputError(Reason("whole numbers such as 0,1,2", text, operand="--seeds"))
    return seeds
