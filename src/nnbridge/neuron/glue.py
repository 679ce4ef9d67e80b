"""Start-up of libneuron_adapter.so in a process."""

from __future__ import annotations

from typing import Any

from nnbridge import ndk
from nnbridge.clib.glue import begin_log, define
from nnbridge.neuron.functions import FUNCTIONS, NeuronConverter
from nnbridge.neuron.signatures import NEURON_SIGNATURES


def connect(embedded: Any) -> None:
    """Define every function of the library. InputError for environment variables with a wrong value."""
    begin_log()
    ndk.check_environment()
    define(embedded.ffi, NEURON_SIGNATURES, FUNCTIONS, NeuronConverter(embedded.ffi))
