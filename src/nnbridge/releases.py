"""Releases of the app's runtime, TFLite or ONNX Runtime: which ones were read, and what holds in which of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from nnbridge.errors import InputError, Reason
from nnbridge.records import dataclass

NEWEST = "newest"
"""The release that the declarations describe, unless they say otherwise."""
LAST = (1 << 30,)


@cache
def order(release: str) -> tuple[int, ...]:
    """Releases compare as their numbers do, not as text; :data:`NEWEST` is after all."""
    return LAST if release == NEWEST else tuple(int(part) for part in release.split("."))


def within(release: str, since: str, until: str) -> bool:
    """True for a release from ``since`` to ``until``, both included; empty: from the first on, or to the last."""
    return (not since or order(since) <= order(release)) and (not until or order(release) <= order(until))


@dataclass(frozen=True)
class Releases:
    """The releases of a runtime whose sources were read."""

    runtime: str
    option: str
    """The field of ConversionOptions, and the option of commands."""
    read: Mapping[str, str]
    """Release → the commit that was read, oldest first; the last one is :data:`NEWEST`."""

    @property
    def names(self) -> tuple[str, ...]:
        """The releases, oldest first."""
        return tuple(self.read)

    def require(self, release: str) -> None:
        """InputError for a release that was not read: nothing is guessed from its neighbours."""
        if release not in self.read:
            rule = f"a release of {self.runtime} whose source was read ({', '.join(self.names)})"
            raise InputError(Reason(rule, release, operand=self.option))

    def spans(self, which: Iterable[str]) -> str:
        """Some of the releases in words: ``2.6 to 2.8, 2.12 and newer``."""
        chosen, parts, run = set(which), [], []
        for name in (*self.names, ""):
            if name in chosen:
                run.append(name)
            elif run:
                parts.append(self._span(run[0], run[-1]))
                run = []
        return ", ".join(parts)

    def _span(self, first: str, last: str) -> str:
        if last == self.names[-1]:
            return first if first == last else f"{first} and newer"
        return first if first == last else f"{first} to {last}"


TFLITE = Releases(
    "TFLite",
    "tflite",
    {
        "2.3": "b36436b087bd8e8701ef51718179037cccdfc26e",
        "2.4": "582c8d236cb079023657287c318ff26adb239002",
        "2.5": "a4dfb8d1a71385bd6d122e4f27f86dcebb96712d",
        "2.6": "919f693420e35d00c8d0a42100837ae3718f7927",
        "2.7": "c256c071bb26e1e13b4666d1b3e229e110bc914a",
        "2.8": "3f878cff5b698b82eea85db2b60d65a2e320850e",
        "2.9": "8a20d54a3c1bfa38c03ea99a2ad3c1b0a45dfa95",
        "2.10": "359c3cdfc5fabac82b3c70b3b6de2b0a8c16874f",
        "2.11": "d5b57ca93e506df258271ea00fc29cf98383a374",
        "2.12": "0db597d0d758aba578783b5bf46c889700a45085",
        "2.13": "d8c061aab50",  # where its branch was cut: the tag itself was not to be had
        "2.14": "4dacf3f368eb7965e9b5c3bbdd5193986081c3b2",
        "2.15": "openeuler-mirror/sra_tensorflow_adapter 0de5911658e38847426091cca3eaf99c8d19022d",  # a copy of its tree
        NEWEST: "google-ai-edge/LiteRT f67457790c9c2ab67347d6fe53270e8d3df20868",
    },
)
"""Commits of tensorflow/tensorflow, whose ``tensorflow/lite/delegates/nnapi/nnapi_delegate.cc`` has the delegate."""
ORT = Releases(
    "ONNX Runtime",
    "ort",
    {
        "1.11": "b713855a980056d89a1e550ad81dc3c19573d7a0",
        "1.12": "f4663641764ccc3e93a617ab63ae4ff1badc2ee1",
        "1.13": "b353e0b41d588605958b03f9a223d10a2fbeb514",
        "1.14": "6ccaeddefa65ccac402a47fa4d9cad8229794bb2",
        "1.15": "638146b79ea52598ece514704d3f592c10fab2f1",
        "1.16": "e7a0495a874251e9747b2ce0683e0580282c54df",
        "1.17": "5f0b62cde54f59bdeac7978c9f9c12d0a4bc56db",
        "1.18": "45737400a2f3015c11f005ed7603611eaed306a6",
        "1.19": "26250ae74d2c9a3c6860625ba4a147ddfb936907",
        "1.20": "c4fb724e810bb496165b9015c77f402727392933",
        "1.21": "e0b66cad282043d4377cea5269083f17771b6dfc",
        "1.22": "f217402897f40ebba457e2421bc0a4702771968e",
        NEWEST: "cc8e901ecc3feaf75fd05204c19c93068afba9d9",
    },
)
"""Commits of microsoft/onnxruntime; ``onnxruntime/core/providers/nnapi/nnapi_builtin/builders`` has the provider's checks."""
RUNTIMES: Mapping[str, Releases] = {one.option: one for one in (TFLITE, ORT)}
"""By option."""
