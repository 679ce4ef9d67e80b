"""Damage shipped device profiles at random: each must be a checked profile, or an error of nnbridge's, and nothing else.

A mutant has one device of a shipped file with some of its operations, and between one and eight damages: characters, words and
lines deleted, doubled, swapped or replaced by those of other profiles. Mutants that are profiles are asked about a model.

Examples:
  python scripts/nets/mutate_profiles.py --count 100000
  python scripts/nets/mutate_profiles.py --count 1000 --seed 7 --json
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from nnbridge import load
from nnbridge.devices.profile_file import SHIPPED, SUFFIX, load_profiles
from nnbridge.errors import InputError
from nnbridge.model import Model

REPOSITORY = Path(__file__).resolve().parents[2]
_SIGNS = [*"%[]()'\"={}\n.-0", "==", "<=", "//", "99999999999", "1e999", "all", "not"]


def parts() -> list[tuple[str, list[str]]]:
    """The devices of the shipped files: what stands before their operations, and lines and tables of operations."""
    found = []
    for path in sorted(SHIPPED.glob(f"*{SUFFIX}")):
        for device in path.read_text(encoding="utf-8").split("\n[[device]]\n")[1:]:
            tables = re.split(r"\n(?=\[device\.operations[.\]])", "[[device]]\n" + device)
            lines = [line for table in tables if table.startswith("[device.operations]") for line in table.splitlines()[1:]]
            head = re.sub(r'\nlike = "[^"]*"', "", tables[0])
            found.append((head, [*lines, *(t for t in tables[1:] if not t.startswith("[device.operations]"))]))
    return [(head, operations) for head, operations in found if operations]


def mutant(rng: random.Random, devices: list[tuple[str, list[str]]]) -> str:
    """A damaged profile."""
    head, operations = rng.choice(devices)
    chosen = rng.sample(operations, min(len(operations), rng.randint(1, 4)))
    lines = [o for o in chosen if not o.startswith("[")]
    text = "\n".join([head, "", "[device.operations]", *lines, "", *(o for o in chosen if o.startswith("["))])
    for _ in range(min(rng.randint(1, 8), rng.randint(1, 8))):
        text = _damaged(rng, text, rng.choice(rng.choice(devices)[1]))
    return text


def _damaged(rng: random.Random, text: str, other: str) -> str:
    words = list(re.finditer(r"\w+|[^\w\s]+", text)) or list(re.finditer(r"", text))
    word, second = rng.choice(words), rng.choice(words)
    kind = rng.randrange(6)
    if kind == 0:
        return text[: word.start()] + text[word.end() :]
    if kind == 1:
        return text[: word.start()] + second.group() + text[word.end() :]
    if kind == 2:
        return text[: word.end()] + rng.choice(_SIGNS) + text[word.end() :]
    if kind == 3:
        return text[: word.start()] + rng.choice(re.findall(r"\w+|[^\w\s]+", other) or [""]) + text[word.end() :]
    if kind == 4:
        low, high = sorted((word.start(), second.start()))
        return text[:low] + text[low : low + 40] + text[low:] if rng.random() < 0.5 else text[:low] + text[max(low, high - 20) :]
    at = rng.randrange(len(text) + 1)
    return text[:at] + chr(rng.choice((rng.randrange(32, 127), rng.randrange(0xD7FF)))) + text[at + 1 :]


def survive(text: str, path: Path, model: Model) -> str:
    """The kind of a text: ``profile``, or the kind of nnbridge's error; any other exception goes on."""
    path.write_text(text, encoding="utf-8")
    try:
        found = load_profiles(path)
    except InputError:
        return "mistakes"
    for profile in found:
        profile.supported_operations(model)
        profile.uncertainties(model)
    return "profile"


def run(count: int, seed: int, folder: Path) -> Counter[str]:
    """The number of mutants that are profiles, and of those with mistakes."""
    rng, devices = random.Random(seed), parts()
    model = load(REPOSITORY / "models" / "digits_uint8.tflite")
    outcomes: Counter[str] = Counter()
    for _ in range(count):
        text = mutant(rng, devices)
        began = time.process_time()
        outcomes[survive(text, folder / "mutant.toml", model)] += 1
        outcomes["slower than 2 s"] += time.process_time() - began > 2
    return outcomes


def main() -> int:
    """Exit status 0 if nothing but profiles and mistakes came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        outcomes = run(options.count, options.seed, Path(folder))
    found = {"count": options.count, "seed": options.seed, **outcomes}
    print(json.dumps(found) if options.json else ", ".join(f"{key}: {value}" for key, value in found.items()))
    return 0 if not outcomes["slower than 2 s"] else 1


if __name__ == "__main__":
    sys.exit(main())
