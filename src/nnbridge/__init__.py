"""nnbridge: Android's Neural Networks API on a workstation.

``nnbridge.plan("model.tflite", device="arm-nn-21.11", android="12")`` is what a phone does with a file; ``run``, ``compare``,
``report`` and ``inspect`` are the commands of these names. Below them are NNAPI's own objects: a
:class:`~nnbridge.model.Model`, a :class:`~nnbridge.runtime.compilation.Compilation`, an
:class:`~nnbridge.runtime.execution.Execution`. ``import nnbridge`` imports NumPy and nothing heavier; names are loaded when they
are used.
"""

from __future__ import annotations

from nnbridge import trust

trust.clean_path_of_program()  # before anything else is imported

import sys  # noqa: E402
from importlib import import_module  # noqa: E402
from types import ModuleType  # noqa: E402
from typing import TYPE_CHECKING, Any  # noqa: E402

if TYPE_CHECKING:
    from nnbridge import devices as devices
    from nnbridge.api import compare as compare
    from nnbridge.api import explain_log as explain_log
    from nnbridge.api import inspect as inspect
    from nnbridge.api import plan as plan
    from nnbridge.api import report as report
    from nnbridge.api import run as run
    from nnbridge.builder import ModelBuilder as ModelBuilder
    from nnbridge.errors import ConversionError as ConversionError
    from nnbridge.errors import InputError as InputError
    from nnbridge.errors import NnapiError as NnapiError
    from nnbridge.errors import NnbridgeError as NnbridgeError
    from nnbridge.errors import Reason as Reason
    from nnbridge.file import ModelFile as ModelFile
    from nnbridge.file import load as load
    from nnbridge.model import Model as Model
    from nnbridge.model import Operand as Operand
    from nnbridge.model import Operation as Operation
    from nnbridge.plan import Planned as Planned
    from nnbridge.runtime.compilation import Compilation as Compilation
    from nnbridge.runtime.execution import Execution as Execution
    from nnbridge.target import Fallback as Fallback
    from nnbridge.target import Target as Target
    from nnbridge.types import FeatureLevel as FeatureLevel
    from nnbridge.types import OperandCode as OperandCode
    from nnbridge.types import OperationCode as OperationCode
    from nnbridge.types import PreferenceCode as PreferenceCode
    from nnbridge.types import PriorityCode as PriorityCode
    from nnbridge.types import ResultCode as ResultCode

__version__ = "0.1.0"

_FUNCTIONS = ("plan", "run", "compare", "report", "inspect", "explain_log")
_WHERE = {
    **dict.fromkeys(_FUNCTIONS, "nnbridge.api"),
    "ModelFile": "nnbridge.file",
    "load": "nnbridge.file",
    "Target": "nnbridge.target",
    "Fallback": "nnbridge.target",
    "Planned": "nnbridge.plan",
    "ModelBuilder": "nnbridge.builder",
    "Model": "nnbridge.model",
    "Operand": "nnbridge.model",
    "Operation": "nnbridge.model",
    "OperandCode": "nnbridge.types",
    "OperationCode": "nnbridge.types",
    "ResultCode": "nnbridge.types",
    "PreferenceCode": "nnbridge.types",
    "PriorityCode": "nnbridge.types",
    "FeatureLevel": "nnbridge.types",
    "NnbridgeError": "nnbridge.errors",
    "NnapiError": "nnbridge.errors",
    "ConversionError": "nnbridge.errors",
    "InputError": "nnbridge.errors",
    "Reason": "nnbridge.errors",
    "Compilation": "nnbridge.runtime.compilation",
    "Execution": "nnbridge.runtime.execution",
    "devices": "nnbridge.devices",
}

__all__ = [*sorted(_WHERE), "__version__"]  # names are texts


def __getattr__(name: str) -> Any:
    where = _WHERE.get(name)
    if where is None:
        raise AttributeError(f"module 'nnbridge' has no attribute {name!r}")
    module = import_module(where)
    return module if where.endswith(f".{name}") else getattr(module, name)


def __dir__() -> list[str]:
    return list(__all__)


class _Package(ModuleType):
    """The package, whose functions stay what they are when the modules of the same names (plan, compare, report) are imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _FUNCTIONS and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
