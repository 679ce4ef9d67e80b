"""Compare the operator versions that a release of TFLite has kernels for with those that ``--tflite`` plans with.

    python scripts/comparisons/compare_kernels.py 2.8 /path/to/python
    PYTHONPATH=/unpacked/wheel python scripts/comparisons/compare_kernels.py 2.8 /path/to/python

The other Python has ``tflite_runtime`` or TensorFlow of that release. It gets a file of one operator for each builtin operator in
versions 1 to 14, and reports those that its interpreter finds no kernel for. Exit status 1 where one differs.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import argument_parser

from nnbridge.releases import TFLITE
from nnbridge_tflite.declaration import REGISTRY
from nnbridge_tflite.kernel_versions import versions_of
from nnbridge_tflite.read.schema import builtin_codes
from tests.tflite.files import TfliteBuilder

VERSIONS = range(1, 15)
ASK = """
import base64, json, sys
try:
    from tflite_runtime.interpreter import Interpreter
except ImportError:
    from tensorflow.lite.python.interpreter import Interpreter
lacking = []
for key, content in json.load(sys.stdin).items():
    try:
        Interpreter(model_content=base64.b64decode(content))
    except Exception as error:
        if "find op for builtin opcode" in str(error) or "out of range" in str(error):
            lacking.append(key)
print("\\n" + json.dumps(lacking))
"""


def single(operator: str, version: int) -> bytes:
    """A file of one operator, whose kernel is looked for before its operands are."""
    builder = TfliteBuilder()
    x, y = builder.tensor((1,)), builder.tensor((1,))
    builder.operator(operator, [x], [y], {}, version)
    return builder.content([x], [y])


def main() -> int:
    """Print what differs, and the count; the exit status."""
    parser = argument_parser()
    parser.add_argument("release", choices=TFLITE.names)
    parser.add_argument("python", help="the interpreter that has the release")
    options = parser.parse_args()
    newest = {operator.name: operator.versions for operator in REGISTRY if not operator.custom}
    names = [name for name in builtin_codes() if name in newest and name != "CUSTOM"]
    files = {f"{name} {version}": single(name, version) for name in names for version in VERSIONS}
    asked = json.dumps({key: base64.b64encode(content).decode() for key, content in files.items()})
    answer = subprocess.run([options.python, "-c", ASK], input=asked, capture_output=True, text=True, check=True)
    lacking = set(json.loads(answer.stdout.splitlines()[-1]))
    differing = 0
    for name in names:
        found = versions_of(name, newest[name], options.release)
        own = set(range(found[0], found[1] + 1)) if found else set()
        theirs = {version for version in VERSIONS if f"{name} {version}" not in lacking}
        if own != theirs:
            differing += 1
            print(f"{name}: {options.release} has {sorted(theirs)}, nnbridge {sorted(own)}")
    print(f"TFLite {options.release}: {len(names)} operators in {len(VERSIONS)} versions, {differing} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
