"""C or C++ source that builds, compiles and runs a model by calls of the NDK, with a file of its large constants.

Five files come out of ``NAME.c``: itself and ``NAME.h``, ``NAME.bin`` with the constants, ``NAME_main.c`` with a program, and
``CMakeLists.txt`` for the NDK and for a workstation. The calls are in ``templates/``; this module fills in the tables.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

from nnbridge import __version__
from nnbridge.errors import InputError, Reason, cannot_read
from nnbridge.extensions import TYPES, operand_dtype, readable_operation
from nnbridge.model import Model, Operand, Operation, Subgraph, input_name, output_name
from nnbridge.operations.validation import byte_size
from nnbridge.reading import open_file
from nnbridge.runtime.placement import required_level
from nnbridge.storage.atomic import atomic_write, written_together
from nnbridge.types import (
    POOL_ALIGNMENT,
    FeatureLevel,
    Lifetime,
    OperandCode,
    OperationCode,
    is_extension,
    split_extension_code,
)

_MARK: Final = b"enerated by nnbridge"
_WEIGHTS_MARK: Final = b"NNBRIDGE WEIGHTS"
_PREFIX: Final = "ANEURALNETWORKS_"
_RESERVED: Final = ("all", "help", "install", "preinstall", "clean", "edit_cache", "rebuild_cache", "test", "package")
"""Names that CMake has for itself as targets (its policy CMP0037)."""
_VALUES: Final[Mapping[Lifetime, str]] = {
    Lifetime.CONSTANT_COPY: "COPIED",
    Lifetime.CONSTANT_REFERENCE: "IN_WEIGHTS",
    Lifetime.SUBGRAPH: "SUBGRAPH",
    Lifetime.NO_VALUE: "OMITTED",
}
_ANDROID: Final = {1: "8.1", 2: "9", 3: "10", 4: "11", 5: "12"}
"""Feature level → Android release; later levels come with updates to the runtime."""


def write(model: Model, path: Path, title: str) -> dict[Path, int]:
    """Write the five files. InputError for a model that no phone can build, and before a file of another origin is replaced."""
    _require_ndk(model)
    if not re.fullmatch(r"[\w .+-]+", path.name):
        raise InputError(Reason("a name of letters, digits, spaces and _ . + -", path.name, operand="output"))
    name = _identifier(path.name.split(".")[0])
    suffix = path.suffix
    header, weights = path.with_suffix(".h"), path.with_suffix(".bin")
    program, build = path.with_name(f"{path.stem}_main{suffix}"), path.with_name("CMakeLists.txt")
    for other in (header, weights, program, build):
        _require_ours(other)
    source = _Source(model)
    names = {
        "name": name,
        "NAME": name.upper(),
        "target": f"model_{name}" if name in _RESERVED else name,
        "title": _comment(Path(title).name),
        "version": __version__,
        "header_name": header.name,
        "weights_name": weights.name,
        "source_name": path.name,
        "main_name": program.name,
        "language": "C" if suffix.lower() == ".c" else "CXX",
        **source.texts(name),
    }
    written: dict[Path, int] = {}
    with written_together():
        for target, template in ((path, "model.c"), (header, "model.h"), (program, "main.c"), (build, "CMakeLists.txt")):
            with atomic_write(target) as file:
                written[target] = file.write(_filled(template, names).encode())
        with atomic_write(weights) as file:
            written[weights] = sum(file.write(part) for part in source.weights())
    return written


def _require_ndk(model: Model) -> None:
    """InputError where the model holds what no phone has: operations of the host, or states of unknown size."""
    on_host = [
        operation
        for graph in model.subgraphs()
        for operation in graph.operations
        if (extension := model.extension_of(operation.type)) and TYPES.host_extension(extension[0])
    ]
    if on_host:
        first, graph_name = on_host[0], ", ".join(dict.fromkeys(readable_operation(model, operation) for operation in on_host))
        found = f"{len(on_host)} that only the host computes: {graph_name}"
        raise InputError(Reason("operations that NNAPI has (nnbridge convert writes parts)", found, first.name))
    for state in model.states:
        operand = model.main.operands[model.main.inputs[state.input]]
        if not byte_size(operand):
            label = input_name(operand, state.input)
            raise InputError(Reason("states whose dimensions are known (--shape)", str(operand), operand=label))


def _require_ours(path: Path) -> None:
    """InputError for a file that nnbridge has not generated."""
    try:
        with open_file(path) as file:
            start = file.read(4096)
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(Reason("a file that can be replaced", cannot_read(error), file=str(path))) from error
    if _MARK not in start and not start.startswith(_WEIGHTS_MARK):
        raise InputError(Reason(f"no {path.name} of another origin beside the output", "one", file=str(path)))


def _identifier(text: str) -> str:
    """A name for C and C++, from a file's."""
    name = re.sub(r"\W", "_", text, flags=re.ASCII).lower() or "model"
    return f"model_{name}" if name[0].isdigit() or name[0] == "_" else name


def _comment(text: str) -> str:
    """Text that can be in a C comment: printable ASCII, no ends of comments, no trigraphs."""
    plain = text.encode("ascii", "replace").decode()
    return re.sub(r"[\x00-\x1f\x7f\\]|\?\?", "?", plain).replace("*/", "* /").replace("/*", "/ *")[:160]


def _string(text: str) -> str:
    """A C string literal of UTF-8; octal escapes are at most three digits long, so no character can join one."""
    plain = (chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in text.encode(errors="replace"))
    return f'"{"".join(plain)}"'


def _float(value: float) -> str:
    """A float32 literal that reads back as the same number; C has no literals of others, but names in ``math.h``."""
    if not math.isfinite(value):
        return "NAN" if math.isnan(value) else "INFINITY" if value > 0 else "-INFINITY"
    text = f"{value:.9g}"
    return f"{text if set('.e') & set(text) else text + '.0'}f"


@cache
def _template(name: str) -> str:
    return (files(__package__) / "templates" / name).read_text()


def _filled(template: str, names: Mapping[str, str]) -> str:
    return re.sub(r"@(\w+)@", lambda found: names[found[1]], _template(template))


class _Source:
    """The tables of one model."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._dims: list[int] = []
        self._indexes: list[int] = []
        self._codes: dict[tuple[str, int], int] = {}
        self._scales: list[float] = []
        self._parts: dict[tuple[int, int, int], int] = {}
        self._end = POOL_ALIGNMENT
        """Bytes of the weights so far, their header included."""

    # -- weights ----------------------------------------------------------------------------------------------------

    def _place(self, operand: Operand) -> int:
        """Offset of a referenced constant in the file of weights."""
        at = operand.location
        key = (at.pool, at.offset, at.length)
        if key not in self._parts:
            self._parts[key] = self._end
            self._end += -(-at.length // POOL_ALIGNMENT) * POOL_ALIGNMENT
        return self._parts[key]

    def _id(self) -> bytes:
        """The first bytes of the weights: a mark, and a checksum of what follows."""
        found = hashlib.sha256()
        for part in self._constants():
            found.update(part)
        return _WEIGHTS_MARK + found.digest()

    def _constants(self) -> Iterable[memoryview | bytes]:
        for (pool, start, length), _ in sorted(self._parts.items(), key=lambda item: item[1]):
            yield self._model.pools[pool].part(start, length)
            yield bytes(-length % POOL_ALIGNMENT)

    def weights(self) -> Iterable[memoryview | bytes]:
        """The file of weights, after :meth:`texts`."""
        yield self._id().ljust(POOL_ALIGNMENT, b"\0")
        yield from self._constants()

    # -- tables -----------------------------------------------------------------------------------------------------

    def texts(self, name: str) -> dict[str, str]:
        """The texts of the model that the templates need."""
        model = self._model
        level = required_level(model)
        inputs = [model.main.operands[i] for i in model.own_inputs]
        outputs = [model.main.operands[i] for i in model.own_outputs]
        optional = {
            "extension_include": (bool(model.extensions), "extension_include"),
            "extension_functions": (bool(model.extensions), "extension_functions"),
            "extension_operand": (bool(model.extensions), "extension_operand"),
            "extension_operation": (bool(model.extensions), "extension_operation"),
            "extension_data": (self._any(lambda operand: operand.extension_data is not None), "extension_data"),
            "channel_quant": (self._any(lambda operand: operand.channel_quant is not None), "channel_quant"),
            "subgraph_value": (bool(model.referenced), "subgraph_value"),
            "relaxed": (any(self._relaxed(graph) for graph in model.subgraphs()), "relaxed"),
            **{key: (bool(model.states), key) for key in _STATE_PARTS},
        }
        texts = {key: _PARTS[part].replace("@name@", name) if used else "" for key, (used, part) in optional.items()}
        return texts | {
            "level": str(int(level)),
            "android": f"Android {_ANDROID[level]}" if level in _ANDROID else "Android 12 with a newer runtime",
            "api": str(min(26 + level, FeatureLevel.LEVEL_5.constant)),
            "input_count": str(len(inputs)),
            "output_count": str(len(outputs)),
            "max_rank": str(max([8, *(len(operand.dims) for operand in (*inputs, *outputs))])),
            "output_elements": ", ".join([*(str(operand_dtype(operand).itemsize) for operand in outputs), "0"]),
            "tables": self._tables(name, inputs, outputs),
        }

    def _any(self, condition: Callable[[Operand], bool]) -> bool:
        return any(condition(operand) for graph in self._model.subgraphs() for operand in graph.operands)

    def _relaxed(self, graph: Subgraph) -> bool:
        return self._model.relaxed if graph is self._model.main else graph.relaxed

    def _tables(self, name: str, inputs: Sequence[Operand], outputs: Sequence[Operand]) -> str:
        model = self._model
        graphs: list[str] = []
        operands: list[str] = []
        operations: list[str] = []
        channel_rows: list[str] = []
        data_rows: list[str] = []
        blobs = bytearray()
        for g, graph in enumerate(model.subgraphs()):
            row = [len(operands), len(graph.operands), len(operations), len(graph.operations)]
            for i, operand in enumerate(graph.operands):
                operands.append(self._operand_row(operand))
                if operand.channel_quant is not None:
                    quant = operand.channel_quant
                    channel_rows.append(f"{{{g}, {i}, {quant.channel_dim}, {len(quant.scales)}, {len(self._scales)}}}")
                    self._scales += quant.scales
                if operand.extension_data is not None:
                    data_rows.append(f"{{{g}, {i}, {len(blobs)}, {len(operand.extension_data)}}}")
                    blobs += operand.extension_data
            operations += [self._operation_row(operation) for operation in graph.operations]
            for listed in (graph.inputs, graph.outputs):
                row += [len(self._indexes), len(listed)]
                self._indexes += listed
            graphs.append(f"{{{', '.join(map(str, row))}, {str(self._relaxed(graph)).lower()}}}")
        weights_id = ", ".join(map(str, self._id()))
        parts = [
            f"#define SUBGRAPHS {len(graphs)}",
            f"#define WEIGHTS_SIZE {self._end}u",
            f"static const unsigned char WEIGHTS_ID[] = {{{weights_id}}};",
        ]
        if self._codes:
            rows = [f"{{{_string(extension)}, {number}}}" for extension, number in self._codes]
            parts.append("typedef struct {\n    const char* extension;\n    uint16_t number;\n} extension_row;")
            parts.append(_table("extension_row EXTENSION_CODES", rows))
        if channel_rows:
            parts.append("typedef struct {\n    uint32_t graph, operand, channel_dim, scales, first_scale;\n} channel_row;")
            parts.append(_table("channel_row CHANNEL_ROWS", channel_rows))
            parts.append(_table("float SCALES", [_float(scale) for scale in self._scales], 8))
        if data_rows:
            parts.append("typedef struct {\n    uint32_t graph, operand;\n    size_t offset, length;\n} data_row;")
            parts.append(_table("data_row DATA_ROWS", data_rows))
            parts.append(_table("unsigned char DATA", map(str, blobs), 24))
        copied = ",\n     ".join(", ".join(map(str, chunk)) for chunk in _chunks(model.operand_values or b"\0", 24))
        parts += [
            "/* Values of up to 128 bytes, which NNAPI copies. */",
            "static const struct {\n    unsigned char bytes["
            f"{max(1, len(model.operand_values))}];\n}} __attribute__((aligned(64))) COPIED_VALUES = {{\n    {{{copied}}}}};",
            _table("uint32_t DIMS", map(str, self._dims or [0]), 24),
            "/* Operands of operations: inputs, then outputs; and the operands that are a graph's inputs and outputs. */",
            _table("uint32_t INDEXES", map(str, self._indexes), 24),
            _table("operand_row OPERANDS", operands),
            _table("operation_row OPERATIONS", operations),
            _table("subgraph_row SUBGRAPH_ROWS", graphs),
            self._interface(name, "inputs", inputs, input_name),
            self._interface(name, "outputs", outputs, output_name),
            self._positions("INPUT_POSITIONS", model.main.inputs, model.own_inputs),
            self._positions("OUTPUT_POSITIONS", model.main.outputs, model.own_outputs),
            *self._states(),
        ]
        return "\n\n".join(parts)

    def _operand_row(self, operand: Operand) -> str:
        value = _VALUES.get(operand.lifetime, "NO_VALUE")
        at = operand.location
        offset = self._place(operand) if value == "IN_WEIGHTS" else at.offset + (value == "SUBGRAPH")
        place = [offset, at.length] if operand.is_constant or value == "SUBGRAPH" else [0, 0]
        row = [self._code(operand.type, OperandCode), len(operand.dims), len(self._dims) if operand.dims else 0]
        self._dims += operand.dims
        cells = [*row, _float(operand.scale), operand.zero_point, value, *place]
        return f"{{{', '.join(map(str, cells))}}}" + (f", /* {_comment(operand.name)} */" if operand.name else "")

    def _operation_row(self, operation: Operation) -> str:
        code = self._code(operation.type, OperationCode)
        row = f"{{{code}, {len(operation.inputs)}, {len(operation.outputs)}, {len(self._indexes)}}}"
        self._indexes += [*operation.inputs, *operation.outputs]
        return row + (f", /* {_comment(operation.name)} */" if operation.name else "")

    def _code(self, code: int, enumeration: type[OperandCode] | type[OperationCode]) -> str:
        if not is_extension(code):
            return _PREFIX + enumeration(code).name
        name = self._model.extension_of(code)
        assert name is not None, split_extension_code(code)
        return str(-1 - self._codes.setdefault(name, len(self._codes)))

    def _interface(self, name: str, role: str, listed: Sequence[Operand], label: Callable[[Operand, int], str]) -> str:
        rows = []
        for i, operand in enumerate(listed):
            dims = ", ".join(map(str, operand.dims or [0]))
            cells = f"{len(operand.dims)}, {{{dims}}}, {_float(operand.scale)}, {operand.zero_point}, {byte_size(operand) or 0}"
            rows.append(f"{{{_string(label(operand, i))}, {self._code(operand.type, OperandCode)}, {cells}}}")
        rows.append('{"", 0, 0, {0}, 0.0f, 0, 0}')
        return _table(f"{name}_tensor {name}_{role}", rows, storage="const")

    def _positions(self, table: str, listed: Sequence[int], own: Sequence[int]) -> str:
        return _table(f"uint32_t {table}", [*(str(listed.index(operand)) for operand in own), "0"], 24)

    def _states(self) -> Iterable[str]:
        model = self._model
        if not model.states:
            return
        rows, values = [], bytearray()
        for state in model.states:
            size = byte_size(model.main.operands[model.main.inputs[state.input]]) or 0
            first = len(values) if state.initial else "NO_INITIAL"
            rows.append(f"{{{state.input}, {state.output}, {size}, {first}}}")
            values += state.initial
        yield f"#define STATES {len(rows)}\n#define NO_INITIAL ((size_t)-1)"
        yield "/* Values that go from one run to the next: positions among the model's inputs and outputs. */"
        yield "typedef struct {\n    int32_t input, output;\n    size_t size, initial;\n} state_row;"
        yield _table("state_row STATE_ROWS", rows)
        yield _table("unsigned char INITIAL_VALUES", map(str, values or b"\0"), 24)


def _chunks(values: bytes, size: int) -> Iterable[bytes]:
    return (values[i : i + size] for i in range(0, len(values), size))


def _table(head: str, rows: Iterable[str], per_line: int = 1, storage: str = "static const") -> str:
    """An array; a row may end with a comma and a comment of its own."""
    cells = [row if row.endswith("*/") else f"{row}," for row in rows] or ["0,"]
    lines = (" ".join(cells[i : i + per_line]) for i in range(0, len(cells), per_line))
    body = "".join(f"    {line}\n" for line in lines)
    return f"{storage} {head}[] = {{\n{body}}};"


_STATE_PARTS: Final = (
    "state_field",
    "state_allocation",
    "state_arguments",
    "state_swap",
    "state_free",
    "reset_declaration",
    "reset_function",
)

_PARTS: Final = {
    "extension_include": """\
/* Vendor extensions: of the platform's tree, not of the NDK's. */
#include <android/NeuralNetworksExtensions.h>
""",
    "extension_functions": """\
static int extension_operand_type(ANeuralNetworksModel* model, int32_t* type) {
    const extension_row* const row = &EXTENSION_CODES[-1 - *type];
    TRY(ANeuralNetworksModel_getExtensionOperandType, model, row->extension, row->number, type);
    return ANEURALNETWORKS_NO_ERROR;
}

static int extension_operation_type(ANeuralNetworksModel* model, int32_t* type) {
    const extension_row* const row = &EXTENSION_CODES[-1 - *type];
    TRY(ANeuralNetworksModel_getExtensionOperationType, model, row->extension, row->number, type);
    return ANEURALNETWORKS_NO_ERROR;
}

""",
    "extension_operand": "    if (type.type < 0) PASS(extension_operand_type(built, &type.type));\n",
    "extension_operation": "        if (type < 0) PASS(extension_operation_type(model->models[graph], &type));\n",
    "extension_data": """\
    for (size_t i = 0; i < sizeof DATA_ROWS / sizeof *DATA_ROWS; ++i) {
        const data_row* const data = &DATA_ROWS[i];
        if (data->graph == graph && data->operand == (uint32_t)index)
            TRY(ANeuralNetworksModel_setOperandExtensionData, built, index, DATA + data->offset, data->length);
    }
""",
    "channel_quant": """\
    for (size_t i = 0; i < sizeof CHANNEL_ROWS / sizeof *CHANNEL_ROWS; ++i) {
        const channel_row* const channels = &CHANNEL_ROWS[i];
        ANeuralNetworksSymmPerChannelQuantParams quant;
        if (channels->graph != graph || channels->operand != (uint32_t)index) continue;
        quant.channelDim = channels->channel_dim;
        quant.scaleCount = channels->scales;
        quant.scales = SCALES + channels->first_scale;
        TRY(ANeuralNetworksModel_setOperandSymmPerChannelQuantParams, built, index, &quant);
    }
""",
    "subgraph_value": """\
        case SUBGRAPH:
            TRY(ANeuralNetworksModel_setOperandValueFromModel, built, index, model->models[row->offset]);
            break;
""",
    "relaxed": "    if (row->relaxed) TRY(ANeuralNetworksModel_relaxComputationFloat32toFloat16, model->models[graph], true);\n",
    "state_field": """\
    unsigned char* states[2 * STATES]; /* each twice: what a run reads, what it writes */
""",
    "state_allocation": """\
    for (uint32_t i = 0; i < STATES; ++i) {
        model->states[2 * i] = (unsigned char*)calloc(1, STATE_ROWS[i].size);
        model->states[2 * i + 1] = (unsigned char*)calloc(1, STATE_ROWS[i].size);
        if (model->states[2 * i] == NULL || model->states[2 * i + 1] == NULL)
            return refuse(ANEURALNETWORKS_OUT_OF_MEMORY, "calloc");
    }
    @name@_reset(model);
""",
    "state_arguments": """\
    for (uint32_t i = 0; i < STATES; ++i) {
        const state_row* const state = &STATE_ROWS[i];
        TRY(ANeuralNetworksExecution_setInput, execution, state->input, NULL, model->states[2 * i], state->size);
        TRY(ANeuralNetworksExecution_setOutput, execution, state->output, NULL, model->states[2 * i + 1], state->size);
    }
""",
    "state_swap": """\
    for (uint32_t i = 0; i < STATES && code == ANEURALNETWORKS_NO_ERROR; ++i) {
        unsigned char* const written = model->states[2 * i + 1];
        model->states[2 * i + 1] = model->states[2 * i];
        model->states[2 * i] = written;
    }
""",
    "state_free": "    for (uint32_t i = 0; i < 2 * STATES; ++i) free(model->states[i]);\n",
    "reset_declaration": """
/* Start again: states get their first values. */
void @name@_reset(@name@_model* model);
""",
    "reset_function": """
void @name@_reset(@name@_model* model) {
    for (uint32_t i = 0; i < STATES; ++i) {
        memset(model->states[2 * i], 0, STATE_ROWS[i].size);
        if (STATE_ROWS[i].initial != NO_INITIAL)
            memcpy(model->states[2 * i], INITIAL_VALUES + STATE_ROWS[i].initial, STATE_ROWS[i].size);
    }
}
""",
}
"""Pieces of ``templates/model.c`` that only some models need."""
