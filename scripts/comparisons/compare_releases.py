"""Compare what the delegate of each release of TFLite accepts with its source: operators, highest versions, first levels.

python scripts/comparisons/compare_releases.py FOLDER

FOLDER has tensorflow/lite/delegates/nnapi/nnapi_delegate.cc of releases as ``2.8.cc`` and so on (``git show v2.8.0:PATH``).
What the source states inside of a branch is not read: LSTM, PADV2, SUB and SVDF differ, DEQUANTIZE before 2.6, and DENSIFY.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from nnbridge.releases import TFLITE, within
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


def main() -> int:
    """Print what differs, and how many pairs were compared."""
    compared = differing = 0
    for release in TFLITE.names:
        path = Path(sys.argv[1]) / f"{release}.cc"
        if not path.is_file():
            print(f"{release}: no {path}")
            continue
        source, own = of_source(path.read_text(encoding="utf-8")), declared(release)
        for name in sorted({*source, *own}):
            compared += 1
            if source.get(name) != own.get(name):
                differing += 1
                print(f"{release} {name}: source {source.get(name)}, declared {own.get(name)}")
    print(f"{compared} compared, {differing} differ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
