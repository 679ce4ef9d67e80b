"""Stock LiteRT on an emulated device: the script of a phone, with another delegate.

python examples/delegate.py models/digits_int8.tflite nnapi-sample_quant

Prints which operators the device gets, and the greatest difference to LiteRT's own kernels. Needs a C compiler and
`pip install '.[delegate,litert]'`.
"""

from __future__ import annotations

import sys

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from nnbridge import delegate


def outputs(path: str, **settings: object) -> list[np.ndarray]:
    """The outputs for one drawn input."""
    interpreter = Interpreter(path, experimental_op_resolver_type=OpResolverType.BUILTIN_REF, **settings)
    interpreter.allocate_tensors()
    rng = np.random.default_rng(0)
    for detail in interpreter.get_input_details():
        numbers = rng.random(detail["shape"]) * (1 if detail["dtype"] == np.float32 else 100)
        interpreter.set_tensor(detail["index"], numbers.astype(detail["dtype"]))
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


def main(path: str, device: str) -> None:
    """Compare the device with LiteRT."""
    # On a phone: load_delegate with the library of the vendor, and the same options.
    npu = delegate.load(device, execution_preference="sustained_speed", verbose_validation=True)
    on_device, alone = outputs(path, experimental_delegates=[npu]), outputs(path)
    for ours, theirs in zip(on_device, alone, strict=True):
        print(f"greatest difference to LiteRT: {np.abs(ours.astype(float) - theirs.astype(float)).max():.3g}")


if __name__ == "__main__":
    main(*sys.argv[1:])
