"""Random small ONNX files: nnbridge's answer beside ONNX Runtime's.

    python scripts/nets/differential_onnx.py --cases 20000
    python scripts/nets/differential_onnx.py --cases 2000 --host onnxruntime --mapping provider
    python scripts/nets/differential_onnx.py --cases 500 --seed 3 --operators Conv Resize --keep found

Types, shapes, attributes, opsets, broadcasting, negative axes, scalars, omitted inputs, constants and computed inputs, open and
missing declarations are drawn at random: single operators, groups between DequantizeLinear and QuantizeLinear, chains of two or
three, and structures: functions with attributes, bodies in bodies, sequences, optionals and inputs with defaults. ONNX
Runtime's CPU provider computes the reference without optimisations, the ``onnx`` package's evaluator what it has no kernel for.
Integers must be equal, floats within 1e-5 of the reference plus 1e-5 of the output's range (float16: 4e-3). Differences that a
rule of docs/onnx.md explains are counted as such (`explanation` in tests/onnx/differential.py). Exit status 1 if one is left.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import argument_parser, one_line_errors

with one_line_errors():
    from nnbridge.engines import OWN
    from tests.differential import main
    from tests.onnx.differential import DRAWS, verdicts

if __name__ == "__main__":
    sys.exit(main(argument_parser(), sorted(DRAWS), ("wide", "provider"), verdicts, (OWN, "onnxruntime")))
