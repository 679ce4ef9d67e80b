"""Random NNAPI models: compiled kernels, three devices, and a driver out of process beside the reference kernels.

    python scripts/nets/differential_nnapi.py --cases 20000
    python scripts/nets/differential_nnapi.py --cases 500 --seed 3 --operators cases --keep found

Models are networks of up to 13 operations, what drawn TFLite operators become, and Android's conformance cases with other values
(NaN and infinity among them), zero points at the ends, scales, lifetimes and open dimensions (where the folder of cases is
there). Integers must be equal bit for bit, floats within 1e-5 of the output's range (networks: 1e-3), averages also within the
last digits of the numbers averaged; where the reference kernels refuse, all must. Exit status 1 if one difference is left.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import argument_parser, one_line_errors

with one_line_errors():
    from tests.differential import main
    from tests.runtime.differential import DRAWS, verdicts

if __name__ == "__main__":
    sys.exit(main(argument_parser(), sorted(DRAWS), ("wide",), verdicts))
