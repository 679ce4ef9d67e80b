"""Models of one random operation each, as questions for `nnbridge devices ask` and for a driver's own code.

SOURCE is a folder of conformance cases, or a file of models. Their operations are varied at random: types, sides, ranks,
constants and their values, omitted, shared and left-out inputs, scales and zero points. What NNAPI's own validation refuses is
left out. With --computed the outputs have the dimensions that NNAPI computes; operations for which it computes none are left out.

Examples:
  python scripts/profiles/random_operations.py ../shared/vts --count 20000 --seed 18 -o models.jsonl.gz
  python scripts/profiles/random_operations.py ../shared/vts cases.jsonl.gz --only CONV_2D,PRELU --count 1000 -o models.jsonl.gz
"""

from __future__ import annotations

import gzip
import json
import math
import random
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import argument_parser, one_line_errors

with one_line_errors():
    from nnbridge.conformance.cases import Case, build, read_cases, spec_files, type_of
    from nnbridge.conformance.questions import read_questions
    from nnbridge.errors import NnapiError
    from nnbridge.operations import definition
    from nnbridge.operations.call import Arg, NeedsValue
    from nnbridge.operations.evaluate import make_call, resolve
    from nnbridge.storage.atomic import atomic_write
    from nnbridge.types import TYPE_FACTS, Lifetime, OperandCode

Json = dict[str, Any]
MAX_VALUES = 2_048
"""Elements of a constant: longer ones decide no rule, and make files large."""
TENSORS = [c.name for c in OperandCode if c.name.startswith("TENSOR_") and "OEM" not in c.name]
SCALARS = ["FLOAT32", "FLOAT16", "INT32", "BOOL", "UINT32"]
SIDES = (0, 1, 1, 1, 2, 2, 3, 4, 5, 7, 8, 9, 16, 17, 81, 100)
NUMBERS = (-2, -1, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 16)


class Draw:
    """One operation being varied: its operands by input and output, each an object of the conformance cases."""

    def __init__(self, chance: random.Random, model: Json) -> None:
        self.chance = chance
        self.operation = model["operations"][0]["type"]
        operands = [dict(o) for o in model["operands"]]
        self.inputs = [operands[i] for i in model["operations"][0]["inputs"]]
        self.outputs = [operands[i] for i in model["operations"][0]["outputs"]]

    def tensors(self) -> list[Json]:
        """The tensors, one that stands twice twice."""
        return [o for o in (*self.inputs, *self.outputs) if o["type"].startswith("TENSOR_")]

    def constants(self) -> list[Json]:
        """Inputs that have values."""
        return [o for o in self.inputs if o.get("value")]

    def retype(self) -> None:
        """One type becomes another, everywhere or in one operand; scalars follow their tensors often."""
        old = self.chance.choice(self.tensors())["type"]
        new = self.chance.choice(TENSORS)
        found = [o for o in self.tensors() if o["type"] == old]
        for operand in found if self.chance.random() < 0.75 else [self.chance.choice(found)]:
            operand["type"] = new
        short = {"TENSOR_FLOAT16": "FLOAT16", "TENSOR_FLOAT32": "FLOAT32"}.get(new)
        for operand in self.inputs:
            if short and operand["type"] in ("FLOAT16", "FLOAT32") and self.chance.random() < 0.8:
                operand["type"] = short
            elif operand["type"] in SCALARS and self.chance.random() < 0.02:
                operand["type"] = self.chance.choice(SCALARS)

    def relive(self) -> None:
        """An input becomes a constant, a model input, or omitted."""
        operand = self.chance.choice(self.inputs)
        for key in ("value", "lifetime"):
            operand.pop(key, None)
        if (draw := self.chance.random()) < 0.45:
            operand["value"] = [self.chance.choice(NUMBERS)]
        elif draw < 0.6:
            operand["lifetime"] = "NO_VALUE"

    def revalue(self) -> None:
        """One element of a constant changes."""
        operand = self.chance.choice(self.constants())
        values = list(operand["value"])
        at = self.chance.randrange(len(values))
        number = values[at] if isinstance(values[at], (int, float)) else 0
        changes = (number + 1, number - 1, -number, self.chance.choice(NUMBERS), self.chance.choice(NUMBERS))
        values[at] = self.chance.choice(changes)
        operand["value"] = values

    def resize(self) -> None:
        """A side becomes another, in one tensor or wherever it stands."""
        operand = self.chance.choice([o for o in self.tensors() if o["dims"]])
        old, new = self.chance.choice(operand["dims"]), self.chance.choice(SIDES)
        for tensor in self.tensors() if self.chance.random() < 0.6 else [operand]:
            tensor["dims"] = [new if side == old else side for side in tensor["dims"]]

    def rerank(self) -> None:
        """A side of one is added to tensors of a rank, or a side removed."""
        first = self.chance.choice(self.tensors())
        rank, grows = len(first["dims"]), self.chance.random() < 0.6
        at = self.chance.randrange(rank + 1)
        chosen = {id(o): o for o in self.tensors() if len(o["dims"]) == rank}
        for tensor in chosen.values() if self.chance.random() < 0.7 else [first]:
            leading = tensor["dims"][:at]
            tensor["dims"] = [*leading, 1, *tensor["dims"][at:]] if grows else [*leading, *tensor["dims"][at + 1 :]]

    def shorten(self) -> None:
        """The last inputs are left out, or a scalar is added."""
        if self.chance.random() < 0.7:
            del self.inputs[self.chance.randrange(1, len(self.inputs) + 1) :]
        else:
            self.inputs.append({"type": self.chance.choice(("BOOL", "INT32")), "dims": [], "value": [self.chance.choice((0, 1))]})

    def share(self) -> None:
        """One operand stands at two inputs."""
        one, other = self.chance.choices(range(len(self.inputs)), k=2)
        self.inputs[one] = self.inputs[other]

    def requantise(self) -> None:
        """Another scale and zero point, or scales by channel."""
        operand = self.chance.choice(self.tensors())
        operand["scale"] = self.chance.choice((0.5, 0.25, 0.125, 1.0, 1 / 256, 1 / 128, 1e-4, 2.0))
        operand["zero_point"] = self.chance.choice((0, 0, 1, 5, 127, 128, 255, -128, -1))
        if operand["dims"] and self.chance.random() < 0.3:
            at = self.chance.randrange(len(operand["dims"]))
            operand["type"] = "TENSOR_QUANT8_SYMM_PER_CHANNEL"
            operand["channel_quant"] = {"scales": [0.25] * operand["dims"][at], "channel_dim": at}

    def model(self) -> Json:
        """The model of the operation."""
        unique = list({id(o): o for o in (*self.inputs, *self.outputs)}.values())
        number = {id(o): i for i, o in enumerate(unique)}
        inputs, outputs = ([number[id(o)] for o in side] for side in (self.inputs, self.outputs))
        operands = [_consistent(o, computed=number[id(o)] in outputs) for o in unique]
        ends = {
            key: [i for i, o in enumerate(operands) if o["lifetime"] == f"SUBGRAPH_{key[:-1].upper()}"]
            for key in ("inputs", "outputs")
        }
        return {"operands": operands, "operations": [{"type": self.operation, "inputs": inputs, "outputs": outputs}], **ends}


VARIATIONS: Sequence[Callable[[Draw], None]] = (
    Draw.retype, Draw.retype, Draw.relive, Draw.relive, Draw.revalue, Draw.revalue, Draw.revalue,
    Draw.resize, Draw.resize, Draw.rerank, Draw.shorten, Draw.share, Draw.requantise,
)  # fmt: skip


def _consistent(operand: Json, *, computed: bool) -> Json:
    """The operand with as many values as its dimensions require, of its type, and the quantisation that its type requires."""
    facts = TYPE_FACTS[type_of(operand)]
    found: Json = {"type": operand["type"], "dims": operand["dims"] if facts.tensor else []}
    if "QUANT" in operand["type"] and "CHANNEL" not in operand["type"]:
        found["scale"] = operand.get("scale") or 0.5
        lowest, highest = (0, 0) if "_SYMM" in operand["type"] else (-128, 127) if "SIGNED" in operand["type"] else (0, 255)
        found["zero_point"] = max(lowest, min(highest, operand.get("zero_point", 0)))
    elif operand["type"] == "TENSOR_INT32" and operand.get("scale"):
        found["scale"] = operand["scale"]
    if "CHANNEL" in operand["type"]:
        stated = operand.get("channel_quant", {"channel_dim": 0})
        at = stated["channel_dim"]
        found["channel_quant"] = {"scales": [0.25] * (found["dims"][at : at + 1] or [1])[0], "channel_dim": at}
    values = operand.get("value")
    if computed or not values:
        omitted = operand.get("lifetime") == "NO_VALUE" and not computed
        return {**found, "lifetime": "NO_VALUE" if omitted else f"SUBGRAPH_{'OUT' if computed else 'IN'}PUT"}
    whole = facts.dtype is not None and facts.dtype.kind in "iub"
    low, high = (0, 1) if "BOOL" in operand["type"] else (-(2**7), 2**7 - 1) if "8" in operand["type"] else (-(2**15), 2**15)
    low, high = (0, 255) if operand["type"] in ("TENSOR_QUANT8_ASYMM", "UINT32") else (low, high)
    numbers = [max(low, min(high, int(v))) if whole else v for v in values if isinstance(v, (int, float)) and math.isfinite(v)]
    if (count := math.prod(found["dims"])) > MAX_VALUES:
        raise ValueError(f"a constant of {count} elements")
    return {**found, "lifetime": "CONSTANT_COPY", "value": list(islice(cycle(numbers or [0]), count))}


def single_operations(model: Mapping[str, Any]) -> Iterator[Json]:
    """Each operation of a model as a model of its own, without those with long constants and control flow."""
    for operation in model["operations"]:
        used = [*dict.fromkeys((*operation["inputs"], *operation["outputs"]))]
        operands = [dict(model["operands"][i]) for i in used]
        if any(o["type"] in ("SUBGRAPH", "MODEL") or len(o.get("value") or ()) > MAX_VALUES for o in operands):
            continue
        sides = {key: [used.index(i) for i in operation[key]] for key in ("inputs", "outputs")}
        yield {"operands": operands, "operations": [{"type": operation["type"], **sides}]}


def models_of(source: Path) -> Iterator[Mapping[str, Any]]:
    """The models of a folder of conformance cases, or of a file of questions."""
    if source.is_dir():
        yield from (case.data["model"] for path in spec_files(source) for case in read_cases(path))
    else:
        yield from (question.data["model"] for question in read_questions(source))


def operations_of(sources: Sequence[Path], only: Sequence[str] = ()) -> dict[str, list[Json]]:
    """The operations to vary, by name; those that differ in values alone once."""
    found: dict[str, dict[str, Json]] = defaultdict(dict)
    for model in (one for source in sources for whole in models_of(source) for one in single_operations(whole)):
        name = model["operations"][0]["type"]
        if not only or name in only:
            form = [(o["type"], o["dims"], bool(o.get("value"))) for o in model["operands"]]
            found[name].setdefault(json.dumps([form, model["operations"][0]["inputs"]]), model)
    return {name: list(forms.values()) for name, forms in sorted(found.items())}


def with_computed_outputs(question: Json) -> Json:
    """The question with outputs of the dimensions that NNAPI computes; NnapiError or NeedsValue where it computes none."""
    model = build(Case("random", "", {**question, "name": "random"}))
    operation, operands = model.main.operations[0], model.main.operands
    declared = definition(operation.type)
    if declared is None or any(o.is_tensor and 0 in o.dims for o in operands):
        raise NeedsValue
    args = [
        Arg.of(o, model.value(o), present=o.lifetime is not Lifetime.NO_VALUE)
        for o in map(operands.__getitem__, operation.inputs)
    ]
    data = [dict(o) for o in question["model"]["operands"]]
    for i, found in zip(
        operation.outputs, resolve(make_call(declared, args, [Arg.of(operands[i]) for i in operation.outputs])), strict=True
    ):
        if min(found.dims, default=1) < 1:
            raise NeedsValue
        data[i]["dims"] = list(found.dims)
    return {**question, "model": {**question["model"], "operands": data}}


def questions(operations: Mapping[str, list[Json]], count: int, seed: int, computed: bool = False) -> Iterator[Json]:
    """Random questions, which NNAPI's validation accepts."""
    chance = random.Random(seed)
    names = list(operations)
    while count:
        draw = Draw(chance, chance.choice(operations[chance.choice(names)]))
        try:
            for _ in range(min(chance.randint(0, 4), chance.randint(0, 4))):
                chance.choice(VARIATIONS)(draw)
            question = {"model": draw.model(), "relaxed": chance.random() < 0.1}
            if computed:
                question = with_computed_outputs(question)
            build(Case("random", "", {**question, "name": "random"}))
        except (NnapiError, NeedsValue, LookupError, ValueError):
            continue
        count -= 1
        yield question


def main() -> int:
    """Exit status 0 if the file is written."""
    parser = argument_parser()
    parser.add_argument("sources", type=Path, nargs="+", metavar="SOURCE")
    parser.add_argument("--count", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", metavar="NAMES", help="operations, with commas between")
    parser.add_argument("--computed", action="store_true", help="outputs of the dimensions that NNAPI computes")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.jsonl.gz")
    options = parser.parse_args()
    with one_line_errors():
        operations = operations_of(options.sources, options.only.split(",") if options.only else ())
        lines = [json.dumps(question) for question in questions(operations, options.count, options.seed, options.computed)]
        with atomic_write(options.output) as file:
            file.write(gzip.compress(("\n".join(lines) + "\n").encode(), mtime=0))
    print(f"{options.output}: {len(lines)} models of {len(operations)} operations")
    return 0


if __name__ == "__main__":
    sys.exit(main())
