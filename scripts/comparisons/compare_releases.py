"""Compare what releases of TFLite and ONNX Runtime map with their source: operators; of TFLite, versions and first levels.

    python scripts/comparisons/compare_releases.py FOLDER

FOLDER has tensorflow/lite/delegates/nnapi/nnapi_delegate.cc of releases as ``2.8.cc`` and so on (``git show v2.8.0:PATH``).
What the source states inside of a branch is not read: LSTM, PADV2, SUB and SVDF differ, DEQUANTIZE before 2.6, and DENSIFY.
FOLDER/ort/1.14 and so on have the files of onnxruntime/core/providers/nnapi/nnapi_builtin/builders.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import argument_parser

from nnbridge.releases import ORT, TFLITE, within
from nnbridge_onnx import declaration as onnx_operators
from nnbridge_onnx.releases import MAPPED_SINCE
from nnbridge_onnx.rules import Provider
from nnbridge_tflite.declaration import REGISTRY
from nnbridge_tflite.rules import DelegateRule

LEVELS = {
    "kMinSdkVersionForNNAPI11": 2,
    "kMinSdkVersionForNNAPI12": 3,
    "kMinSdkVersionForNNAPI13": 4,
    "kNNAPIRuntimeFeatureLevel6": 6,
    "kNNAPIRuntimeFeatureLevel7": 7,
}
Limits = tuple[int, int]
"""Highest version, 99 for any, and first level."""


def of_source(text: str) -> dict[str, Limits]:
    """Operator, without underscores → its limits."""
    start = text.index("NNAPIDelegateKernel::Validate(")
    parts = re.split(r"((?:\n    case kTfLiteBuiltin\w+:)+)", text[start : text.index("\n}", start)])
    found = {}
    for names, body in zip(parts[1::2], parts[2::2], strict=True):
        versions = [int(v) for v in re.findall(r"Expect(?:Max)?OpVersion\(\s*version,\s*(\d+)", body)]
        level = re.search(r"\n      ExpectMinAndroidSdkVersion\(\s*android_sdk_version,\s*(\w+)", body)
        limits = max(versions, default=99), LEVELS[level[1]] if level else 1
        found |= {name.lower(): limits for name in re.findall(r"kTfLiteBuiltin(\w+)", names)}
    return found


def declared(release: str) -> dict[str, Limits]:
    """The same from the declarations."""
    found = {}
    for operator in REGISTRY:
        rule = operator.delegate
        if isinstance(rule, DelegateRule) and within(release, rule.since, ""):
            rules = "\n".join(condition.rule for condition in rule.of_release(release))
            version, level = (
                re.findall(f"^{words}$", rules, re.M) for words in (r"operator version (\d+) at most", r"feature level (\d+)")
            )
            found[operator.name.replace("_", "").lower()] = max(map(int, version)), max(map(int, level))
    return found


def of_provider(folder: Path) -> set[str]:
    """The operators that a release of ONNX Runtime registers, before 1.13 by a macro."""
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.cc")))
    return set(re.findall(r'(?:Create\w+OpBuilder|NNAPI_EP_ADD_\w+)\("(\w+)"', text))


def declared_for_provider(release: str) -> set[str]:
    """The same from the declarations."""
    known = {one.name.rpartition(".")[2] for one in onnx_operators.REGISTRY if isinstance(one.provider, Provider)}
    return {name for name in known if within(release, MAPPED_SINCE.get(name, ""), "")}


def main() -> int:
    """Print what differs, and how many pairs were compared."""
    parser = argument_parser()
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    compared = differing = 0
    for release in TFLITE.names:
        path = folder / f"{release}.cc"
        if not path.is_file():
            print(f"{release}: no {path}")
            continue
        source, own = of_source(path.read_text(encoding="utf-8")), declared(release)
        for name in sorted({*source, *own}):
            compared += 1
            if source.get(name) != own.get(name):
                differing += 1
                print(f"{release} {name}: source {source.get(name)}, declared {own.get(name)}")
    for release in ORT.names:
        sources, operators = of_provider(folder / "ort" / release), declared_for_provider(release)
        if not sources:
            print(f"ONNX Runtime {release}: no files")
            continue
        compared += len(sources | operators)
        differing += len(sources ^ operators)
        for name in sorted(sources ^ operators):
            print(f"ONNX Runtime {release} {name}: {'source' if name in sources else 'declaration'} only")
    print(f"{compared} compared, {differing} differ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
