"""Random TFLite files of one operator, or of a graph (GRAPH): nnbridge's answer beside that of LiteRT's reference kernels.

    python scripts/nets/differential_tflite.py --cases 20000
    python scripts/nets/differential_tflite.py --cases 500 --seed 3 --operators CONV_2D MEAN --keep found
    python scripts/nets/differential_tflite.py --cases 800 --operators GRAPH --mapping delegate

Types, shapes, options, scales (ties and multipliers above 1 among them), zero points at the ends of their ranges, per-channel
weights, dilations and odd paddings are drawn at random. Integers must be equal bit for bit, floats within 1e-5 of the
reference plus 1e-5 of the output's range. What LiteRT refuses is not compared. Differences that a rule of docs/tflite.md explains
are counted as such (`EXPLAINED` in tests/tflite/differential.py names the rule and the most steps). Exit status 1 if one
difference or failure is left unexplained.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import argument_parser, one_line_errors

with one_line_errors():
    from tests.differential import main
    from tests.tflite.differential_graphs import NAMES, verdicts

if __name__ == "__main__":
    sys.exit(main(argument_parser(), NAMES, ("wide", "delegate"), verdicts))
