"""Write docs/releases.md: what each release of TFLite's delegate brought.

python scripts/documentation/make_release_docs.py           write the file
python scripts/documentation/make_release_docs.py --check   exit with 1 if it is not up to date
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import REPOSITORY, write_or_check

from nnbridge.converters.releases import TFLITE, order
from nnbridge.converters.rules import LAST_LEVEL
from nnbridge_tflite.declaration import REGISTRY
from nnbridge_tflite.rules import Condition, DelegateRule

TARGET = REPOSITORY / "docs" / "releases.md"
HEAD = """# Releases

An app has the delegate of the TFLite that it was built with. `--tflite 2.8` (in Python `tflite="2.8"`) plans with the operators,
operator versions, limits and defaults of that release:

```
nnbridge plan model.tflite --android 11 --tflite 2.4
```

Releases whose source was not read are refused: nothing is guessed from their neighbours.

## TFLite

| release | commit of tensorflow/tensorflow |
|---|---|
"""
NOTES = """
The file is `tensorflow/lite/delegates/nnapi/nnapi_delegate.cc`. The table below shows every change of its `Validate`. Beside that:

- `disallow_nnapi_cpu` is true by default from 2.5 on; before, NNAPI's CPU computes what devices refuse.
- `allow_dynamic_dimensions` came with 2.4.
- Weights of float16 are read by the delegate from 2.6 on; before, each DEQUANTIZE of them stays with TFLite. Graphs with such
  weights are handed over whole or not at all from 2.7 on; 2.6 is planned as 2.7, since what it leaves to TFLite cannot run.
- Before 2.9, CONV_2D with groups is handed over as CONV_2D, which NNAPI's CPU fails to run.

Not emulated: 2.3 hands int8 tensors over as uint8 on Android 11, too; 2.8 to 2.12 pass MIRROR_PAD's mode as TFLite numbers it,
so that REFLECT is computed as SYMMETRIC; which operator versions a release's own kernels read. No wheel has the delegate, which is
built for Android only: the rules were compared with the lines of the source, those of 2.4, 2.8 and 2.14 twice.

| release | operator | no longer required | required |
|---|---|---|---|
"""


def document() -> str:
    """The whole page."""
    rows = "".join(f"| {name} | {commit} |\n" for name, commit in TFLITE.read.items())
    return HEAD + rows + NOTES + "".join(f"{row}\n" for row in changes())


def changes() -> Iterator[str]:
    """A row for each change that a release made, with the operators that have it."""
    for old, new in pairwise(TFLITE.names):
        found: dict[str, list[str]] = {}
        for declared in REGISTRY:
            if isinstance(declared.delegate, DelegateRule) and (text := _change(declared.delegate, old, new)):
                found.setdefault(text, []).append(declared.name)
        yield from (f"| {new} | {', '.join(names)} | {text} |" for text, names in found.items())


def _change(rule: DelegateRule, old: str, new: str) -> str:
    if rule.since and order(new) <= order(rule.since):
        return "| mapped" if rule.since == new else ""
    before, after = ([_sentence(one) for one in rule.of_release(release)] for release in (old, new))
    gone, added = ([text for text in one if text not in other] for one, other in ((before, after), (after, before)))
    return f"{'; '.join(gone)} | {'; '.join(added)}" if gone or added else ""


def _sentence(condition: Condition) -> str:
    below = f" (below level {condition.below})" if condition.below < LAST_LEVEL and "level" not in condition.rule else ""
    return condition.rule + below


if __name__ == "__main__":
    write_or_check(TARGET, document)
