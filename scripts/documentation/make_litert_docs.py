"""Write tests/tflite/litert.md: versions and element types of each operator that LiteRT's kernels run, beside nnbridge's.

python scripts/documentation/make_litert_docs.py           write the file
python scripts/documentation/make_litert_docs.py --check   exit with 1 if it is not up to date

LiteRT's registrations are found by trying: each single-operator file of tests/tflite/cases.py in every version and with data of
every element type, by its reference kernels and by the optimised ones, recurrent operators as tests/tflite/drawing_more.py draws
them, and files whose subgraphs pass on numbers of every type. A type counts as run if one of the operator's files runs.
"""

from __future__ import annotations

import contextlib
import logging
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.metadata import version
from itertools import count, product
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import REPOSITORY, write_or_check

from nnbridge import Compilation, Execution, load
from nnbridge.converters import ConversionOptions
from nnbridge.errors import NnbridgeError
from nnbridge.extensions import operand_dtype
from tests.differential import Fork
from tests.tflite import drawing
from tests.tflite.cases import Case, cases
from tests.tflite.differential import DRAWS, content
from tests.tflite.files import TfliteBuilder

TARGET = REPOSITORY / "tests" / "tflite" / "litert.md"
KERNELS = ("BUILTIN_REF", "BUILTIN_WITHOUT_DEFAULT_DELEGATES")
DRAWS_OF_A_CELL = 24
RECURRENT = (
    *("BIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_RNN", "LSTM", "RNN", "SVDF"),
    *("UNIDIRECTIONAL_SEQUENCE_LSTM", "UNIDIRECTIONAL_SEQUENCE_RNN"),
)
CELL_TYPES = {"float32": "", "float32 beside int8 weights": "int8", "float32 beside uint8 weights": "uint8"}
"""Form → the element type of the weights where that is not the data's."""
Row = tuple[str, str, str]
"""Operator, versions, types."""
TYPES = ("float32", "float16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "bool", "float64", "complex64")
SHORT = {TYPES: "all", tuple(CELL_TYPES): "8-bit cells"}
HEAD = """# TFLite operators: what LiteRT runs

Versions and element types that the kernels of LiteRT {version}, reference or optimised, run. nnbridge (wide mapping) runs them
all, except where a row says so. Found by `scripts/documentation/make_litert_docs.py`, which tries the single-operator files of
`tests/tflite/cases.py` in every version and type; whether the outputs are equal, `scripts/nets/differential_tflite.py` shows.

- *All* types: {types}.
- *8-bit cells*: float32 data with float32, int8 or uint8 weights.

BITCAST of types of 8 bytes differs because the file of the test states an output for types of 4 bytes, which LiteRT passes over;
FAKE_QUANT of complex numbers because LiteRT takes their bytes for floats; HASHTABLE_LOOKUP of uint8 because LiteRT ignores the
scales.

| operators | versions | types |
|---|---|---|
"""


def _ones(shape: Sequence[int], dtype: Any) -> Any:
    return np.ones(shape, dtype)


def _litert(model: bytes, kernels: str) -> list[Any]:
    """Run a file on ones; RuntimeError or ValueError if LiteRT does not."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    resolver = getattr(OpResolverType, kernels)
    interpreter = Interpreter(model_content=model, experimental_op_resolver_type=resolver, num_threads=1)
    interpreter.allocate_tensors()
    for detail in interpreter.get_input_details():
        interpreter.set_tensor(detail["index"], _ones(detail["shape"], detail["dtype"]))
    interpreter.invoke()
    return []


def _nnbridge(path: Path) -> bool:
    with contextlib.suppress(NnbridgeError):
        model = load(path, ConversionOptions(mapping="wide"))
        compilation = Compilation.create(model, [])
        compilation.finish()
        operands = (model.main.operands[i] for i in model.own_inputs)
        Execution(compilation).run([_ones(operand.dims, operand_dtype(operand)) for operand in operands])
        return True
    return False


def _versions(case: Case, fork: Fork, folder: Path) -> list[int]:
    """The versions that are registered: from the first that is found to the one before the next gap."""
    found: list[int] = []
    for number in count(1):
        content = replace(case, version=number).write(folder, case.types[0]).read_bytes()
        known = any(_registered(fork, content, kernels) for kernels in KERNELS)
        if known:
            found.append(number)
        elif found or number > 12:
            return found
    raise AssertionError


def _registered(fork: Fork, content: bytes, kernels: str) -> bool:
    try:
        fork.run(content, kernels)
    except RuntimeError as error:
        return "find op" not in str(error)
    return True


def _runs(fork: Fork, content: bytes) -> bool:
    for kernels in KERNELS:
        with contextlib.suppress(RuntimeError):
            fork.run(content, kernels)
            return True
    return False


def _cells(operator: str, weights: str) -> Iterator[drawing.Case]:
    """Drawn cells of this operator, their matrices in this type."""
    for seed in range(DRAWS_OF_A_CELL):
        case = DRAWS[operator](np.random.default_rng([0, seed]), operator)
        for i, one in enumerate(case.inputs if weights else ()):
            if one is not None and one.value is not None and np.ndim(one.value) == 2:
                zero = 128 if weights == "uint8" else 0
                numbers = (np.clip(one.value, -1, 1) * 127 + zero).astype(weights)
                case.inputs[i] = replace(one, value=numbers, type=weights, scale=0.008, zero_point=zero)
        yield case


def _recurrent_rows(fork: Fork, folder: Path) -> Iterator[Row]:
    path = folder / "cell.tflite"
    for operator in RECURRENT:
        numbers: set[int] = set()
        theirs: dict[str, bool] = {}
        for form, weights in CELL_TYPES.items():
            for case in _cells(operator, weights):
                for case.version in range(1, 6):
                    path.write_bytes(content(case, [one.shape or (1,) for one in case.outputs]))
                    if _runs(fork, path.read_bytes()):
                        numbers.add(case.version)
                        theirs[form] = theirs.get(form, False) or _nnbridge(path)
        yield _row(operator, sorted(numbers), list(theirs), [form for form, ours in theirs.items() if not ours])


def _passing(operator: str, type: str) -> bytes:
    """A file whose subgraphs or variable pass on two numbers of a type, by RESHAPE."""
    main, dims = TfliteBuilder(), (2,)

    def body(leading: bool) -> int:
        """A subgraph that passes on, behind a counter for loops."""
        inner = main.beside()
        count, more = inner.tensor((), "int32"), inner.tensor((), "int32")
        x, y = inner.tensor(dims, type), inner.tensor(dims, type)
        if leading:
            inner.operator("ADD", [count, inner.constant(1, "int32")], [more], {"fused_activation_function": 0})
        inner.operator("RESHAPE", [x, inner.constant([2], "int32")], [y], {})
        return main.add(inner, [count, x] if leading else [x], [more, y] if leading else [y])

    x, y = main.tensor(dims, type), main.tensor(dims, type)
    if operator == "IF":
        condition = main.tensor((), "bool")
        main.operator(operator, [condition, x], [y], {"then_subgraph_index": body(False), "else_subgraph_index": body(False)})
        return main.content([condition, x], [y])
    if operator == "WHILE":
        test = main.beside()
        count, passed, answer = test.tensor((), "int32"), test.tensor(dims, type), test.tensor((), "bool")
        test.operator("LESS", [count, test.constant(2, "int32")], [answer], {})
        options = {"cond_subgraph_index": main.add(test, [count, passed], [answer]), "body_subgraph_index": body(True)}
        main.operator(operator, [main.constant(0, "int32"), x], [main.tensor((), "int32"), y], options)
        return main.content([x], [y])
    handle, read = main.tensor((), "RESOURCE"), main.tensor(dims, type)
    main.operator("VAR_HANDLE", [], [handle], {"container": "", "shared_name": "v"})
    main.operator("ASSIGN_VARIABLE", [handle, x], [], {})
    main.operator("READ_VARIABLE", [handle], [read], {})
    main.operator("RESHAPE", [read, main.constant([2], "int32")], [y], {})
    return main.content([x], [y])


def _passing_rows(fork: Fork, folder: Path) -> Iterator[Row]:
    path = folder / "passing.tflite"
    for operator, name in (("IF", "IF"), ("WHILE", "WHILE"), ("", "VAR_HANDLE, ASSIGN_VARIABLE, READ_VARIABLE")):
        theirs: dict[str, bool] = {}
        for type in TYPES:
            with contextlib.suppress(KeyError, TypeError, ValueError):
                path.write_bytes(_passing(operator, type))
                if _runs(fork, path.read_bytes()):
                    theirs[type] = _nnbridge(path)
        yield _row(name, [1], list(theirs), [type for type, ours in theirs.items() if not ours])


def _row(operator: str, versions: Sequence[int], theirs: Sequence[str], missing: Sequence[str]) -> Row:
    span = f"{versions[0]}–{versions[-1]}" if len(versions) > 1 else "".join(map(str, versions))
    types = SHORT.get(tuple(theirs), ", ".join(theirs))
    return operator, span, types + (f"; nnbridge without {', '.join(missing)}" if missing else "")


def document() -> str:
    """Try everything; the whole page."""
    by_operator: dict[str, list[Case]] = defaultdict(list)
    for case in cases():
        if case.types:
            by_operator[case.operator].append(case)
    import ai_edge_litert.interpreter  # noqa: F401 - once, before the fork

    fork, rows = Fork(_litert), []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for operator, listed in sorted(by_operator.items()):
            numbers = _versions(listed[0], fork, folder)
            theirs: set[str] = set()
            ours: set[str] = set()
            for case, type in product(listed, TYPES):
                if type in theirs & ours:
                    continue
                with contextlib.suppress(KeyError, TypeError, ValueError):  # The case has no form of this type.
                    path = replace(case, version=max(numbers, default=case.version)).write(folder, type)
                    if _runs(fork, path.read_bytes()):
                        theirs.add(type)
                        ours |= {type} if _nnbridge(path) else set()
            rows.append(_row(operator, numbers, *([t for t in TYPES if t in kinds] for kinds in (theirs, theirs - ours))))
        rows += [*_recurrent_rows(fork, folder), *_passing_rows(fork, folder)]
    fork.close()
    alike: dict[tuple[str, str], list[str]] = defaultdict(list)
    for operator, *cells in sorted(rows):
        alike[cells[0], cells[1]].append(operator)
    table = "".join(f"| {', '.join(names)} | {' | '.join(cells)} |\n" for cells, names in alike.items())
    return HEAD.format(version=version("ai-edge-litert"), types=", ".join(TYPES)) + table


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    write_or_check(TARGET, document, lambda text: re.sub(r"LiteRT [0-9.]+,", "", text))
