"""Write docs/releases.md: what each release of TFLite's delegate and of ONNX Runtime's provider brought.

python scripts/documentation/make_release_docs.py           write the file
python scripts/documentation/make_release_docs.py --check   exit with 1 if it is not up to date
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import REPOSITORY, write_or_check

from nnbridge.converters.rules import LAST_LEVEL, Condition
from nnbridge.releases import ORT, TFLITE, Releases, order
from nnbridge_onnx import declaration as onnx_operators
from nnbridge_onnx.releases import EVERY_OPERATOR, MAPPED_SINCE, checks
from nnbridge_onnx.rules import Provider
from nnbridge_tflite.declaration import REGISTRY
from nnbridge_tflite.rules import DelegateRule

TARGET = REPOSITORY / "docs" / "releases.md"
HEAD = """# Releases

An app has the delegate of the TFLite that it was built with, or the provider of its ONNX Runtime. `--tflite 2.8` (in Python
`tflite="2.8"`) and `--ort 1.14` plan with the operators, operator versions, limits and defaults of that release:

```
nnbridge plan model.tflite --android 11 --tflite 2.4
```

Releases whose source was not read are refused: nothing is guessed from their neighbours. `nnbridge plan --since` asks all
of them, and lists the first release, and the first Android version with it, that hand each operator over.

## TFLite

Commits of tensorflow/tensorflow: {commits}.
"""
NOTES = """
The file is `tensorflow/lite/delegates/nnapi/nnapi_delegate.cc`. The table shows every change of its `Validate`. Beside that:

- `disallow_nnapi_cpu` is true by default from 2.5 on; before, NNAPI's CPU computes what devices refuse.
- `allow_dynamic_dimensions` came with 2.4.
- Weights of float16 are read by the delegate from 2.6 on; before, each DEQUANTIZE of them stays with TFLite. Graphs with such
  weights are handed over whole or not at all from 2.7 on; 2.6 is planned as 2.7, since what it leaves to TFLite cannot run.
- Before 2.9, CONV_2D with groups is handed over as CONV_2D, which NNAPI's CPU fails to run.

Not emulated: 2.3 hands int8 tensors over as uint8 on Android 11, too; 2.8 to 2.12 pass MIRROR_PAD's mode as TFLite numbers it,
so that REFLECT is computed as SYMMETRIC; the conditions of a release's own kernels, which count as those of the newest.

Files with operators, or versions of them, that a release has no kernel for are not loaded by it. The wheels of 2.3 to 2.15 were
asked for 173 operators in 14 versions each (tensorflow-cpu, tflite-runtime; `scripts/comparisons/compare_kernels.py`), 0 differ.
No wheel has the delegate, which is built for Android only, so that its source is the judge.
`scripts/comparisons/compare_releases.py` reads the highest version and the first level of each operator from it. Of 1,269 pairs
of operator and release 70 differ, all of DENSIFY, DEQUANTIZE, LSTM, PADV2, SUB and SVDF, whose limits the source states in
another form. The rest was compared by eye.

| release | operators | no longer required | required |
|---|---|---|---|
"""


ORT_HEAD = """
## ONNX Runtime

Commits of microsoft/onnxruntime: {commits}.
"""
ORT_NOTES = """
A release loads files up to an opset of ONNX and an IR version: the wheels of 1.11 to 1.22 were asked. The checks are in
`onnxruntime/core/providers/nnapi/nnapi_builtin/builders`. `compare_releases.py` reads which operators each release maps:
681 pairs of operator and release agree. The conditions were compared by eye: no wheel has the provider.

Not emulated: 1.10, which had no groups of quantised nodes; that before 1.16 Softmax without an axis is computed along axis 1 of
opset 13, too, and other differences of the builders; that before 1.18 initial values which a caller may replace were constants.

| release | operators | no longer required | required |
|---|---|---|---|
"""


def document() -> str:
    """The whole page."""
    delegates = {one.name: one.delegate for one in REGISTRY if isinstance(one.delegate, DelegateRule)}
    providers = {one.name: one.provider for one in onnx_operators.REGISTRY if isinstance(one.provider, Provider)}
    tflite = changes(TFLITE, {name: (rule.since, rule.of_release) for name, rule in delegates.items()})
    known = {name: (MAPPED_SINCE.get(name, ""), partial(checks, rule, name)) for name, rule in providers.items()}
    ort = changes(ORT, {**known, "every operator": ("", partial(checks, Provider(), ""))}, skipped=EVERY_OPERATOR)
    heads = HEAD.format(commits=_commits(TFLITE)), ORT_HEAD.format(commits=_commits(ORT))
    return "".join((heads[0], NOTES, *tflite, heads[1], ORT_NOTES, *ort))


def _commits(releases: Releases) -> str:
    """Each release with the first digits of its commit."""
    return ",\n".join(f"{name} {commit[:-28] if len(commit) >= 40 else commit}" for name, commit in releases.read.items())


Rules = Mapping[str, tuple[str, Callable[[str], Sequence[Condition[Any]]]]]
"""Operator → the first release that maps it, and its conditions in a release."""


def changes(releases: Releases, rules: Rules, skipped: Sequence[Condition[Any]] = ()) -> Iterator[str]:
    """A row for each change that a release made, with the operators that have it; ``skipped`` are those of every operator."""
    for old, new in pairwise(releases.names):
        found: dict[str, list[str]] = {}
        for name, (since, of_release) in rules.items():
            ignored = {one.rule for one in skipped} if name != "every operator" else set()
            if text := _change(since, of_release, old, new, ignored):
                found.setdefault(text, []).append(name)
        yield from (f"| {new} | {', '.join(names)} | {text} |\n" for text, names in found.items())


def _change(since: str, of_release: Callable[[str], Sequence[Condition[Any]]], old: str, new: str, ignored: set[str]) -> str:
    if since and order(new) <= order(since):
        return "| mapped" if since == new else ""
    ignored = ignored | {"operator version 99 at most"}  # None: the delegate does not look at the version.
    before, after = ([_sentence(one) for one in of_release(release) if one.rule not in ignored] for release in (old, new))
    gone, added = ([text for text in one if text not in other] for one, other in ((before, after), (after, before)))
    return f"{'; '.join(gone)} | {'; '.join(added)}" if gone or added else ""


def _sentence(condition: Condition[Any]) -> str:
    below = f" (below level {condition.below})" if condition.below < LAST_LEVEL and "level" not in condition.rule else ""
    return re.sub(r"(?<=[A-Z\d]) or (?=[A-Z]+\d)", "/", condition.rule) + below


if __name__ == "__main__":
    write_or_check(TARGET, document)
