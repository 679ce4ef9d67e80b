"""The forms of log lines, each with its source, what it says and what to do next: one table, by which lines are printed and read.

A form is a text with named fields, ``Device {device} can't do operation {operation}:{index}``. The first form of a pattern is the
newest release's, which is printed; older ones, and those of people's loggers, are only read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from enum import Enum
from functools import cached_property

from nnbridge.records import dataclass

DELEGATE_NAME = "TfLiteNnapiDelegate"
"""What TFLite calls the nodes of Android's NNAPI delegate."""


class Writer(str, Enum):
    """The program that writes a line."""

    TFLITE = "TFLite"
    NNAPI = "NNAPI"
    ORT = "ONNX Runtime"
    LITERT = "LiteRT"
    ANDROID = "Android"

    def __str__(self) -> str:
        return self.value


_FIELDS = {
    "operation": r"[A-Z][A-Z0-9_]*",
    "device": r"[^\s()]+",
    "devices": r"[^}\]]*",
    "number": r"-?\d+",
    "source": r"\w+",
    "operator": r"[^()]+",
    "custom": r"[\w.:]{1,80}",
    "action": r"[^':]{1,80}?",
    "tensor_name": r"[^'\[\]]*",
    "file": r"[\w./+-]{1,200}",
    "condition": r".{1,200}?",
    **dict.fromkeys(("value", "other"), r"[\w.+-]{1,40}"),
    **dict.fromkeys(("name", "unit"), r"[^\[\]]*"),
    **dict.fromkeys(("code", "status", "kernel", "kind", "unit_kind", "function", "type", "level"), r"[\w.]{1,80}"),
    **dict.fromkeys(("side", "side_again"), r"input|output"),
    **dict.fromkeys(("found_type", "expected_type"), r"[A-Z][A-Z0-9_]*"),
    **dict.fromkeys(("rest", "since"), r".*"),
}
"""What a field may be; any other is a number."""
_NUMBER = r"\d+"
_PIECE = re.compile(r"\{(\w+)\}")
LEAST_CUT, LEAST_WRAPPED = 20, 6
"""Characters of a form, fields apart, that are enough to know a line again whose end is missing, or is on the next line."""
_MOST_FIELD = 80
"""Characters of a field that begins a form."""
_MOST_STARTS = 8
"""Places of a line at which a form that is cut may begin."""


@dataclass(frozen=True)
class Form:
    """One text of a line."""

    text: str

    @cached_property
    def pieces(self) -> tuple[tuple[str, str], ...]:
        """Literal texts, each with the name of the field after it; the last one has none."""
        parts = _PIECE.split(self.text)
        literals = (literal.format() for literal in parts[::2])  # {{ is {
        return tuple(zip(literals, [*parts[1::2], ""], strict=True))

    @cached_property
    def anchor(self) -> str:
        """The longest literal text; lines without it do not have the form."""
        return max((literal for literal, _ in self.pieces), key=len)

    @cached_property
    def head(self) -> str:
        """The beginning of the first literal text, which a line that is cut must have."""
        return self._literal[:LEAST_WRAPPED]

    @property
    def _literal(self) -> str:
        return self.pieces[0][0] or self.pieces[1][0]

    @cached_property
    def expression(self) -> re.Pattern[str]:
        """The form as a regular expression. A field that begins it begins a word, so that a long one is looked at once."""
        start = "" if self.pieces[0][0] else r"(?<!\w)"
        return re.compile(start + "".join(re.escape(literal) + _group(name) for literal, name in self.pieces))

    @property
    def is_open(self) -> bool:
        """True if it ends with a field: more may follow."""
        return not self.pieces[-1][0]

    def read(self, line: str) -> re.Match[str] | None:
        """The fields of a line; None if it does not have the form."""
        return self.expression.search(line) if self.anchor in line else None

    def begun(self, line: str, least: int) -> Mapping[str, str] | None:
        """The fields of a line that ends before the form does; None for a line of another form.

        ``least``: so many characters of the form's own, or its beginning, must be there.
        """
        start = line.find(self.head)
        field = "" if self.pieces[0][0] else self.pieces[0][1]
        for _ in range(_MOST_STARTS):
            if start < 0:
                break
            before = re.search(rf"(?<!\w){_group(field)}$", line[max(0, start - _MOST_FIELD) : start]) if field else None
            if (found := _walked(self.pieces[1:] if field else self.pieces, line[start:], least)) is not None:
                return found if before is None else {**before.groupdict(), **found}
            start = line.find(self.head, start + 1)
        return None

    def format(self, values: Mapping[str, object]) -> str:
        """The line with these values."""
        return self.text.format(**values)


def _group(name: str) -> str:
    return f"(?P<{name}>{_FIELDS.get(name, _NUMBER)})" if name else ""


def _walked(pieces: tuple[tuple[str, str], ...], rest: str, least: int) -> Mapping[str, str] | None:
    """The fields up to where a text ends, if enough of the literal texts is in it."""
    found: dict[str, str] = {}
    seen = 0
    for (literal, name), (following, _) in zip(pieces, (*pieces[1:], ("", "")), strict=True):
        if len(rest.rstrip()) <= len(literal):
            cut = rest.rstrip()
            return found if literal.startswith(cut) and seen + len(cut) >= least else None
        if not rest.startswith(literal) or not name:
            return None
        seen, rest = seen + len(literal), rest[len(literal) :]
        end = _end(name, following, rest)
        found[name], rest = rest[:end], rest[end:]
        if not rest:
            return found if seen >= least else None
    return None


def _end(name: str, following: str, rest: str) -> int:
    """The end of a field: before the text that follows it, or before as much of that as there is."""
    if following and (end := rest.find(following)) >= 0:
        return end
    expression = re.compile(_FIELDS.get(name, _NUMBER).removesuffix("?"))
    bare = rest.rstrip()
    for length in range(min(len(following), len(bare) - 1), 0, -1):
        part = following[:length].rstrip()
        if bare.endswith(part) and expression.fullmatch(bare, 0, len(bare) - len(part)):
            return len(bare) - len(part)
    match = expression.match(rest)
    return match.end() if match is not None else 0


@dataclass(frozen=True)
class LinePattern:
    """A kind of log line."""

    name: str
    """Stable: JSON has it."""
    writer: Writer
    tag: str
    """Its tag in logcat."""
    level: str
    """Its level in logcat: ``V``, ``D``, ``I``, ``W``, ``E``."""
    forms: tuple[Form, ...]
    source: str
    """The repository's file and line, or function, that writes it."""
    says: str
    """The rule or event that it reports."""
    next: str = ""
    """What to do; empty for lines that report no trouble."""
    only_verbose: bool = False
    """True if phones show it only when asked: ``debug.nn.vlog``, a session's verbose level."""
    ends_model: bool = False
    """True if the operations before it are one NNAPI model, and those after it another."""
    within: str = field(default="", compare=False)
    """The pattern of the line that a list of these follows; such lines mean nothing elsewhere."""

    def format(self, **values: object) -> str:
        """The newest form with these values."""
        return self.forms[0].format(values)


_AOSP = "packages/modules/NeuralNetworks"
_DELEGATE = "tflite/delegates/nnapi/nnapi_delegate.cc"
_SUBGRAPH = "tflite/core/subgraph.cc"
_PROVIDER = "onnxruntime/core/providers/nnapi/nnapi_builtin"
_PLAN = "nnbridge plan FILE --device NAME -v shows the rule, --advice what to change"
_LEARN = "nnbridge devices learn LOG makes a profile of this driver; plan with it names the rule"
_BUILD = "nnbridge plan FILE names the operator and NNAPI's rule; --advice what to change"
_OPERATOR = "nnbridge inspect FILE has the delegate's rule for it; --advice what to change"
_SHAPE = "fix the open dimensions when you convert (or nnbridge rewrite FILE --advice 1); else set allow_dynamic_dimensions"
_DRIVER = "the driver failed, not the file: nnbridge bisect finds the operations; try without this device"


def _p(
    name: str,
    writer: Writer,
    tag: str,
    level: str,
    forms: str | tuple[str, ...],
    source: str,
    says: str,
    next: str = "",
    **more: object,
) -> LinePattern:
    texts = (forms,) if isinstance(forms, str) else forms
    return LinePattern(name, writer, tag, level, tuple(map(Form, texts)), source, says, next, **more)  # type: ignore[arg-type]


_PLACED = tuple(
    f"{start}findBestDeviceForEachOperation({name}) = {end}"
    for start in ("ModelBuilder::", "")
    for end in ("{number} ({device})", "{number}")
    for name in ("{operation}:{index}", "{operation}", "{source}:{operation}:{index}", "{source}:{operation}")
)
_T, _N, _O = Writer.TFLITE, Writer.NNAPI, Writer.ORT

PATTERNS: tuple[LinePattern, ...] = (
    # -- TFLite ------------------------------------------------------------------------------------------------------------
    _p("delegate-created", _T, "tflite", "I", "Created TensorFlow Lite delegate for NNAPI.", f"{_DELEGATE}:6557",
       "the program created the NNAPI delegate; nothing is handed over yet"),
    _p("xnnpack-created", _T, "tflite", "I", "Created TensorFlow Lite XNNPACK delegate for CPU.",
       "tflite/delegates/xnnpack/xnnpack_delegate.cc", "XNNPACK computes what other delegates leave, on the CPU"),
    _p("dynamic-graph", _T, "tflite", "W",
       ("Attempting to use a delegate that only supports static-sized tensors with a graph that has dynamic-sized tensors "
       "(tensor#{tensor} is a dynamic-sized tensor).",
       "Attempting to use a delegate that only supports static-sized tensors with a graph that has dynamic-sized tensors "
       "(tensor#{number} is a dynamic-sized tensor).",
       "Attempting to use a delegate that only supports static-sized tensors with a graph that has dynamic-sized tensors.",
       "NNAPI was requested, but dependent sized tensors being used."), f"{_SUBGRAPH}:2546",
       "TFLite refuses the delegate for the whole graph: a tensor's dimensions are known only in a run", _SHAPE),
    _p("replaced", _T, "tflite", "I",
       ("Replacing {nodes} out of {total} node(s) with delegate ({kernel}) node, yielding {partitions} partitions for "
       "subgraph " "{subgraph} ({name}).",
       "Replacing {nodes} out of {total} node(s) with delegate ({kernel}) node, yielding {partitions} partitions for "
       "the whole graph.", "Replacing {nodes} node(s) with delegate ({kernel}) node, yielding {partitions} partitions",
       "Replacing {nodes} out of {total} node(s) with delegate ({kernel})"), f"{_SUBGRAPH}:580",
       "the nodes that the delegate got, and the partitions of the graph, those that stay included"),
    _p("delegate-refused", _T, "tflite", "W", ("Operator {operation} (v{version}) refused by NNAPI delegate: {rest}",
       "Operator {operation} (v{version}) refused by {kernel} delegate: {rest}"), f"{_DELEGATE}:6926",
       "a condition of the delegate's Validate; builds with NNAPI_VERBOSE_VALIDATION print it", _OPERATOR),
    _p("api-error-tensor", _T, "tflite", "E",
       ("NN API returned error {code} at line {line} while {action} for tensor '{tensor_name}'.",
       "NN API returned error {code} at line {line} while {action} for tensor {tensor_name}."), f"{_DELEGATE}:155",
       "NNAPI refused a tensor while the delegate built the model: there is no interpreter", _BUILD),
    _p("api-error-build", _T, "tflite", "E", ("NN API returned error {code} at line {line} while adding operation.",
       "NN API returned error {code} at line {line} while adding operation: {rest}"), f"{_DELEGATE}:1144",
       "the delegate accepted an operator that NNAPI's validation refuses: there is no interpreter", _BUILD),
    _p("api-error-run", _T, "tflite", "E", ("NN API returned error {code} at line {line} while running computation.",
       "NN API returned error {code} at line {line} while running burst computation.",
       "NN API returned error {code} at line {line} while starting async computation.",
       "NN API returned error {code} at line {line} while waiting for async computation completion."), f"{_DELEGATE}:5240",
       "the model was compiled, and the device failed to run it: invoke() fails", _DRIVER),
    _p("api-error-compile", _T, "tflite", "E",
       ("NN API returned error {code} at line {line} while completing NNAPI compilation.",
       "NN API returned error {code} at line {line} while creating NNAPI compilation."), f"{_DELEGATE}:4783",
       "the model was built, and the device failed to compile it: there is no interpreter", _DRIVER),
    _p("api-error", _T, "tflite", "E", "NN API returned error {code} at line {line} while {action}.", f"{_DELEGATE}:140",
       "a call of NNAPI failed", _BUILD),
    _p("node-failed", _T, "tflite", "E", ("Node number {node} ({operator}) failed to prepare.",
       "Node number {node} ({operator}) failed to invoke.", "Node number {node} ({operator}) failed to prepare",
       "Node number {node} ({operator}) failed to invoke"), f"{_SUBGRAPH}:93",
       "TFLite's kernel of this node failed; the cause is in the lines before", _PLAN),
    _p("kernel-condition", _T, "tflite", "E", ("{file}.cc:{line} {condition} was not true.",
       "{file}.cc:{line} {condition} ({value} != {other})", "{file}.cc:{line} {condition} ({value} not near {other})"),
       "tflite/core/c/common.h:231",
       "a condition of TFLite's own kernel does not hold: TFLite refuses the file, or the run; the next line names the node",
       "nnbridge inspect FILE; this is TFLite's rule, with or without NNAPI"),
    _p("restored", _T, "tflite", "E", "Restored original execution plan after delegate application failure.",
       f"{_SUBGRAPH}:2511", "the delegate failed, and the program goes on without it or gets an error", _BUILD),
    _p("no-accelerator-named", _T, "tflite", "E",
       "Could not find the specified NNAPI accelerator: {device}. Must be one of: {{{devices}}}.", f"{_DELEGATE}:582",
       "accelerator_name is not a device of this phone", "use one of the names that the line lists"),
    _p("no-accelerators", _T, "tflite", "E", "NNAPI delegate requested but no accelerators available.", f"{_DELEGATE}:4591",
       "the phone has no NNAPI device but its CPU, and disallow_nnapi_cpu is set", "there is nothing to accelerate"),
    _p("level-changed", _T, "tflite", "I", "Changing NNAPI Feature Level {number} to supported by target devices: {level}",
       f"{_DELEGATE}:673", "the target devices' feature level is below the runtime's, and decides which operators are accepted",
       "nnbridge plan FILE --feature-level N shows the same"),
    _p("tensor-type", _T, "tflite", "E", "Failed to add NN API tensor: type {kind} is not supported.", f"{_DELEGATE}:1901",
       "NNAPI has no tensors of this type", _OPERATOR),
    _p("unresolved-custom", _T, "tflite", "E", ("Encountered unresolved custom op: {operator}.",
       "Didn't find custom op for name '{operator}' with version {version}"), f"{_SUBGRAPH}:1422",
       "the program's TFLite has no kernel of this operator: the file does not load",
       "register the custom operator, or convert without it"),
    _p("select-ops", _T, "tflite", "E",
       ("Select TensorFlow op(s), included in the given model, is(are) not supported by this interpreter.",
       "Regular TensorFlow ops are not supported by this interpreter."), f"{_SUBGRAPH}:1414",
       "the file has TensorFlow's own operators (Flex), which neither TFLite nor NNAPI computes",
       "convert with TFLITE_BUILTINS only, or link tensorflow-lite-select-tf-ops"),
    _p("unresolved-builtin", _T, "tflite", "E", "Didn't find op for builtin opcode '{operation}' version '{version}'",
       "tflite/core/api/op_resolver.cc", "the program's TFLite is older than the operator's version: the file does not load",
       "use a newer TFLite, or convert for the older one"),
    _p("old-not-delegated", _T, "tflite", "E", "Op code {builtin} is currently not delegated to NNAPI",
       "tensorflow/lite/nnapi_delegate.cc:739 of TFLite 1.13",
       "UseNNAPI of TFLite before 2 fails where one operator is not mapped",
       "use the NNAPI delegate, which leaves such operators to TFLite"),
    _p("old-custom", _T, "tflite", "E", "Custom operations are not supported when using NNAPI.",
       "tensorflow/lite/nnapi_delegate.cc:745 of TFLite 1.13",
       "UseNNAPI of TFLite before 2 fails where the file has a custom operator",
       "use the NNAPI delegate, which leaves such operators to TFLite"),
    _p("old-failure", _T, "tflite", "E", ("Returning error since TFLite returned failure nnapi_delegate.cc:{line}.",
       "Aborting since NNAPI returned failure nnapi_delegate.cc:{line}", "Failed to build graph for NNAPI"),
       "tensorflow/lite/nnapi_delegate.cc of TFLite 1.13",
       "UseNNAPI of TFLite before 2 stopped; the cause is in the lines before", "use the NNAPI delegate"),
    _p("benchmark-none", _T, "tflite", "I",
       ("Though NNAPI delegate is explicitly applied, the model graph will not be executed by the delegate",
       "Though NNAPI delegate is explicitly applied, the model graph will not be executed by the delegate."),
       "tflite/tools/benchmark/benchmark_tflite_model.cc", "no node was handed to NNAPI", _OPERATOR),
    _p("benchmark-partly", _T, "tflite", "I",
       "Explicitly applied NNAPI delegate, and the model graph will be partially executed by the delegate w/ {partitions} "
       "delegate kernels", "tflite/tools/benchmark/benchmark_tflite_model.cc",
       "some nodes were handed to NNAPI, in this many partitions", _PLAN),
    _p("benchmark-all", _T, "tflite", "I",
       "Explicitly applied NNAPI delegate, and the model graph will be completely executed by the delegate",
       "tflite/tools/benchmark/benchmark_tflite_model.cc", "all nodes were handed to NNAPI"),
    _p("accelerators", _T, "tflite", "I", "NNAPI accelerators available: [{devices}]",
       "tflite/tools/delegates/nnapi_delegate_provider.cc", "the names that accelerator_name may have"),
    _p("gpu-refusals", _T, "tflite", "E", ("Following operations are not supported by {kernel} delegate:",
       "Next operations are not supported by {kernel} delegate:"), "tflite/delegates/gpu/common/model_builder.cc",
       "operators that this delegate leaves to TFLite are listed below",
       "nnbridge plan FILE --device tflite-gpu-delegate has its rules"),
    _p("gpu-custom", _T, "tflite", "E", "CUSTOM {custom}: {rest}", "tflite/delegates/utils.cc",
       "a custom operator that this delegate leaves to TFLite", "nnbridge plan FILE --device tflite-gpu-delegate has its rules",
       within="gpu-refusals"),
    _p("gpu-operator", _T, "tflite", "E", "{operation}: {rest}", "tflite/delegates/gpu/common/model_builder.cc",
       "an operator that this delegate leaves to TFLite, with its words",
       "nnbridge plan FILE --device tflite-gpu-delegate has its rules", within="gpu-refusals"),
    _p("gpu-share", _T, "tflite", "E", "{nodes} operations will run on the {kernel}, and the remaining {left}",
       "tflite/delegates/gpu/common/model_builder.cc", "the operators that this delegate got, and those that stay",
       "nnbridge plan FILE --device tflite-gpu-delegate has its rules"),
    _p("gpu-none", _T, "tflite", "E", "No operations will run on the {kernel}, and all {nodes} operations will run on the CPU",
       "tflite/delegates/gpu/common/model_builder.cc", "this delegate got no operator",
       "nnbridge plan FILE --device tflite-gpu-delegate has its rules"),
    _p("gpu-failed-operator", _T, "tflite", "E",
       ("TfLiteGpuDelegate Init: {operation}: {rest}", "TfLiteGpuDelegate Prepare: {operation}: {rest}",
        "TfLiteGpuDelegate Invoke: {operation}: {rest}"), "tflite/delegates/gpu/delegate.cc:1422",
       "the delegate got the operator and fails with its words: it checks such dimensions only when it builds its graph",
       "--fallback without the delegate, or a model in which the operator has the form that the words ask for"),
    _p("gpu-failed", _T, "tflite", "E",
       ("TfLiteGpuDelegate Init: {rest}", "TfLiteGpuDelegate Prepare: {rest}", "TfLiteGpuDelegate Invoke: {rest}",
        "GpuDelegate Prepare: {rest}"), "tflite/delegates/gpu/delegate.cc:1422",
       "the GPU delegate fails with these words, after TFLite gave its operators to it",
       "a batch of 1 and dimensions that the file states; the next line names the node"),
    _p("old-gpu", _T, "tflite", "E", "op code #{builtin} cannot be handled by this delegate.{rest}",
       "tensorflow/lite/delegates/gpu of TFLite 1.13", "an operator that the GPU delegate leaves to TFLite, by its number",
       "nnbridge plan FILE --device tflite-gpu-delegate has the rules of today's delegate"),
    _p("immutable", _T, "tflite", "E", "ModifyGraphWithDelegate is disallowed when graph is immutable.",
       "tflite/core/subgraph.cc",
       "another delegate fixed the graph before: this one is not applied", "create the interpreter with one of the delegates"),
    _p("neuron-api", Writer.ANDROID, "neuron", "I", "Neuron adapter API exists: 0", "MediaTek-NeuroPilot/tflite-neuron-delegate",
       "the phone has no Neuron adapter that an app may load: the delegate goes through NNAPI",
       "nnbridge plan FILE --device litert-mediatek shows LiteRT's route to the same chip"),
    _p("hta-refused", Writer.ANDROID, "hta-unnhal", "E", "{{{operation}, {type}}} is not supported.",
       "a vendor's driver: tensorflow/tensorflow 43541",
       "Qualcomm's HTA refuses the operation in this type: another of the phone's devices, or NNAPI's CPU, gets it",
       "nnbridge devices learn LOG --models DIR makes a profile of this driver"),
    _p("litert-refused", Writer.LITERT, "litert", "W",
       "LiteRT Op #{node} '{kind}' (code={builtin}) is not supported in {kernel} Compiler", "litert/vendors",
       "an operator that LiteRT's compiler leaves to the CPU", _PLAN),
    _p("litert-selected", Writer.LITERT, "litert", "I",
       ("PartitionSubgraph: {subgraph}, selected num ops: {nodes}, from totoal ops: {total}",
       "PartitionSubgraph: {subgraph}, selected num ops: {nodes}, from total ops: {total}",
       "PartitionSubgraph: {subgraph}, selected num ops: {nodes}, from tot ops: {total}"), "litert/compiler/plugin",
       "the operators that LiteRT's compiler got"),
    # -- NNAPI's runtime ---------------------------------------------------------------------------------------------------
    _p("device-refused", _N, "ExecutionPlan", "I", ("Device {device} can't do operation {operation}:{index}",
       "Device {device} can't do operation {operation}"), f"{_AOSP}/runtime/ExecutionPlan.cpp:2586",
       "the driver's getSupportedOperations says no; its reason is not in the log", _LEARN, only_verbose=True),
    _p("placed", _N, "ExecutionPlan", "I", _PLACED, f"{_AOSP}/runtime/ExecutionPlan.cpp:2605",
       "the device with the least execution time of those that support the operation", only_verbose=True),
    _p("no-driver", _N, "ExecutionPlan", "E", ("No driver can do operation {operation}", "No driver can do the op"),
       f"{_AOSP}/runtime/ExecutionPlan.cpp:2593",
       "no listed device supports the operation, and NNAPI's CPU is not among them: BAD_DATA",
       "allow NNAPI's CPU, or leave the operator to the app (disallow_nnapi_cpu=true with the delegate)", ends_model=True),
    _p("one-device", _N, "ExecutionPlan", "I", "ModelBuilder::partitionTheWork: only one best device: {number} = {device}",
       f"{_AOSP}/runtime/ExecutionPlan.cpp:2190", "one device runs this NNAPI model as a whole", only_verbose=True,
       ends_model=True),
    _p("partition", _N, "ExecutionPlan", "I",
       ("ModelBuilder::partitionTheWork: sourceModelIndex = {index}, deviceCount = {count}, operationCount = {operations}",
       "ModelBuilder::partitionTheWork{rest}"), f"{_AOSP}/runtime/ExecutionPlan.cpp:2164",
       "NNAPI begins or finishes partitioning a model", only_verbose=True, ends_model=True),
    _p("compiled", _N, "ExecutionPlan", "I", ("ExecutionPlan::SimpleBody::finish: compilation finished successfully on {device}",
       "ExecutionPlan::CompoundBody::finish: compilation finished successfully", "ExecutionPlan compilation finished"),
       f"{_AOSP}/runtime/ExecutionPlan.cpp:1154", "the NNAPI model is compiled", ends_model=True),
    _p("cpu-fallback", _N, "CompilationBuilder", "I", "CompilationBuilder::finish with CPU fallback",
       f"{_AOSP}/runtime/CompilationBuilder.cpp:104",
       "a device failed to compile its part, and NNAPI's CPU runs the whole model", _DRIVER, only_verbose=True),
    _p("invalid-operation", _N, "ModelBuilder", "E", "Invalid Operation: NN_RET_CHECK failed ({file}:{line}): {rest}",
       f"{_AOSP}/runtime/ModelBuilder.cpp:411", "NNAPI's validation refuses an operation while a model is built: BAD_DATA",
       _BUILD),
    _p("operand-type", _N, "OperationValidationUtils", "E",
       "Invalid {side} tensor type {found_type} for {side_again} {operand}, expected {expected_type}",
       f"{_AOSP}/common/types/src/OperationsValidationUtils.cpp:38",
       "an operand has another type than NNAPI's operation requires for its first input's: BAD_DATA", _BUILD),
    _p("only-since-hal", _N, "OperationsUtils", "E", "Operation {operation} with inputs {rest} is only supported since {since}",
       f"{_AOSP}/common/types/src/OperationsValidationUtils.cpp:111",
       "the driver's HAL is older than this form of the operation: it is not offered to the driver",
       "nnbridge plan FILE --android shows it per version"),
    _p("unsupported-type", _N, "Operations", "E", ("Unsupported input tensor type for operation {operation}",
       "Unsupported tensor type for operation {operation}", "Unsupported data type for operation {operation}",
       "Unsupported input operand type for {operation} op: {found_type}"),
       f"{_AOSP}/common/types/operations/src", "NNAPI has no form of the operation for tensors of this type: BAD_DATA", _BUILD),
    _p("operand-count", _N, "Utils", "E",
       ("Invalid number of input operands ({found}, expected {expected}) or output operands ({outputs}, expected "
       "{expected_outputs}) " "for operation {operation}", "Invalid number of input operands ({found}, expected {rest}"),
       f"{_AOSP}/common/LegacyUtils.cpp:724", "the operation has another number of operands than NNAPI requires: BAD_DATA",
       _BUILD),
    _p("validation-failed", _N, "Utils", "E", "Validation failed for operation {operation}", f"{_AOSP}/common/LegacyUtils.cpp",
       "NNAPI's validation refuses the operation; the rule is in the lines before", _BUILD),
    _p("check-failed", _N, "Operations", "E", "NN_RET_CHECK failed ({file}:{line}): {rest}",
       f"{_AOSP}/common/types/include/nnapi/TypeUtils.h:215", "a condition of NNAPI's own validation or kernels does not hold",
       _BUILD),
    _p("operand-size", _N, "ModelBuilder", "E",
       ("ANeuralNetworksModel_setOperandValue setting {found} bytes when needing {expected}",
       "ANeuralNetworksModel_setOperandValueFromMemory setting {found} bytes when needing {expected}"),
       f"{_AOSP}/runtime/ModelBuilder.cpp:161", "a constant has another size than its type and dimensions: BAD_DATA", _BUILD),
    _p("operand-open", _N, "ModelBuilder", "E",
       ("ANeuralNetworksModel_setOperandValue setting operand {operand} which has operand type that is not fully specified",
       "ANeuralNetworksModel_setOperandValueFromMemory setting operand {operand} which has operand type that is not "
       "fully specified"), f"{_AOSP}/runtime/ModelBuilder.cpp:148", "a constant's dimensions are open: BAD_DATA", _BUILD),
    _p("bad-interface", _N, "ModelBuilder", "E",
       ("ANeuralNetworksModel_identifyInputsAndOutputs Can't set operand {operand} to be an input or output.",
       "ANeuralNetworksModel_identifyInputsAndOutputs Can't set operand {operand} to be an input or output"),
       f"{_AOSP}/runtime/ModelBuilder.cpp:469",
       "an output is at the same time an input or a constant, which NNAPI does not allow: BAD_DATA",
       "put an Identity or a copy between the input and the output"),
    _p("invalid-model", _N, "ModelBuilder", "E", "ANeuralNetworksModel_finish called on invalid model: {rest}",
       f"{_AOSP}/runtime/ModelBuilder.cpp:543", "NNAPI's validation refuses the model as a whole: BAD_DATA", _BUILD),
    _p("cycle", _N, "ModelBuilder", "E", "Graph contains at least one cycle or one never-written operand",
       f"{_AOSP}/runtime/ModelBuilder.cpp:887", "an operation reads what nothing writes",
       "nnbridge inspect FILE names the damage"),
    _p("support-failed", _N, "Manager", "E", ("getSupportedOperations failed with code {status}: {rest}",
       "IDevice::getSupportedOperations returned the error {status}", "getSupportedOperations_{level} failure: {rest}"),
       f"{_AOSP}/runtime/Manager.cpp:352", "the driver failed to answer, which counts as: it supports nothing",
       "the driver failed, not the file: restart it; models in files that it may not read cause this too (avc: denied)"),
    _p("prepare-failed", _N, "Manager", "E", ("IDevice::prepareModel() error: {rest}", "prepareModel error {rest}"),
       f"{_AOSP}/runtime/Manager.cpp:525", "the driver accepted the operations, and failed to compile them", _DRIVER),
    _p("run-failed", _N, "Manager", "E", ("IPreparedModel::execute(...) error: {rest}", "IBurst::execute(...) error: {rest}",
       "**Execution failed** (ResultCode = {number})", "IPreparedModel::execute() error: {rest}"),
       f"{_AOSP}/runtime/Manager.cpp:620", "the driver failed to run a compiled model", _DRIVER),
    _p("found-device", _N, "Manager", "I", ("Found interface {device} (version = {rest})", "Found interface {device}"),
       f"{_AOSP}/runtime/Manager.cpp:1341", "a driver of this phone",
       "nnbridge devices find NAME lists its profiles, if there are any"),
    _p("no-allowlist", _N, "TypeManager", "I",
       "Failed to read /vendor/etc/nnapi_extensions_app_allowlist ; No app allowlisted for vendor extensions use.",
       f"{_AOSP}/runtime/TypeManager.cpp", "programs of this phone may not use vendor extensions; harmless without them"),
    # -- ONNX Runtime ------------------------------------------------------------------------------------------------------
    _p("node-support", _O, "onnxruntime", "V",
       ("Node supported: [{supported}] Operator type: [{kind}] index: [{node}] name: [{name}] as part of the NodeUnit type: "
       "[{unit_kind}] index: [{unit_index}] name: [{unit}]",
       "Operator type: [{kind}] index: [{node}] name: [{name}] supported: [{supported}]"),
       f"{_PROVIDER}/nnapi_execution_provider.cc:151, GetCapability",
       "whether the provider accepts this node; 0: it stays with the CPU", _OPERATOR, only_verbose=True),
    _p("provider-partitions", _O, "onnxruntime", "W",
       "NnapiExecutionProvider::GetCapability, number of partitions supported by NNAPI: {partitions} number of nodes in "
       "the graph: " "{total} number of nodes supported by NNAPI: {nodes}",
       f"{_PROVIDER}/nnapi_execution_provider.cc, GetCapability", "the nodes and partitions that the provider got",
       "with more than a few partitions, the copies between them may cost more than NNAPI gains: nnbridge plan FILE --advice"),
    _p("provider-level", _O, "onnxruntime", "W",
       "All ops will fallback to CPU EP, because system NNAPI feature level [{found}] is lower than minimal supported "
       "NNAPI API " "feature level [{expected}] of this build for NNAPI",
       f"{_PROVIDER}/nnapi_execution_provider.cc, GetCapability", "the phone's Android is older than the provider requires",
       "nothing goes to NNAPI on this phone"),
    _p("ort-api-level", _O, "onnxruntime", "V",
       ("Current Android API level [{found}], Operator [{kind}] is only supported on API >{expected}",
       "Current Android API level [{found}], Operator [{kind}] is only supported on API > {expected}"),
       f"{_PROVIDER}/builders/impl/base_op_builder.cc, IsOpSupported",
       "the operator needs a later feature level than the device has", "nnbridge plan FILE --android shows it per version",
       only_verbose=True),
    _p("ort-no-shape", _O, "onnxruntime", "V", "Node [{name}] type [{kind}] Input [{tensor_name}] has no shape",
       f"{_PROVIDER}/builders/impl/base_op_builder.cc, HasSupportedInputOutputs",
       "the provider accepts only nodes whose inputs have known shapes",
       "fix the input's dimensions (onnxruntime.tools.make_dynamic_shape_fixed, or --shape), and run shape inference",
       only_verbose=True),
    _p("ort-dynamic", _O, "onnxruntime", "V", "Dynamic shape is not supported for now, for input:{tensor_name}",
       f"{_PROVIDER}/builders/impl/base_op_builder.cc, HasSupportedInputOutputs",
       "the provider accepts only nodes whose inputs have fixed dimensions",
       "fix the input's dimensions (onnxruntime.tools.make_dynamic_shape_fixed, or --shape)", only_verbose=True),
    _p("ort-type", _O, "onnxruntime", "V", "[{kind}] Input type: [{type}] is not supported for now",
       f"{_PROVIDER}/builders/impl/base_op_builder.cc, HasSupportedInputOutputsImpl",
       "the provider has no form of the operator for this element type", _OPERATOR, only_verbose=True),
    _p("ort-opset", _O, "onnxruntime", "V", "{kind} opset [{found}] is only supported for opset [{expected}, {most}]",
       f"{_PROVIDER}/builders/impl/base_op_builder.cc, HasSupportedOpSet", "the provider knows other versions of the operator",
       "convert with an opset within the limits", only_verbose=True),
    _p("ort-qdq", _O, "onnxruntime", "V", "QDQ NodeUnit [{kind}] is not supported for now",
       f"{_PROVIDER}/builders/impl/base_op_builder.cc, IsNodeUnitTypeSupported",
       "the provider has no quantised form of this operator", "leave this operator out of quantisation (nodes_to_exclude)",
       only_verbose=True),
    _p("ort-external", _O, "onnxruntime", "V",
       "Initializer [{tensor_name}] with external data location are not currently supported",
       f"{_PROVIDER}/builders/impl/base_op_builder.cc, HasExternalInitializer",
       "the provider reads no constants from other files", "save the model as one file", only_verbose=True),
    _p("ort-qdq-matmul", _O, "onnxruntime", "V", "Unsupported op type: QDQ {kind}",
       f"{_PROVIDER}/builders/op_builder_helpers.cc, IsSupportedBatchMatMul", "the provider has no quantised batched product",
       "leave this operator out of quantisation (nodes_to_exclude)", only_verbose=True),
    _p("ort-rank-2", _O, "onnxruntime", "V", ("A must be 2D", "B must be 2D"),
       f"{_PROVIDER}/builders/impl/gemm_op_builder.cc, IsOpSupportedImpl",
       "the provider turns products of two dimensions into FULLY_CONNECTED, others stay",
       "put a Reshape to two dimensions before the product", only_verbose=True),
    _p("ort-known-b", _O, "onnxruntime", "V", ("B of MatMul must be known", "B of Gemm must be known if transB != 1"),
       f"{_PROVIDER}/builders/impl/gemm_op_builder.cc, IsOpSupportedImpl",
       "the provider turns only products with a constant into FULLY_CONNECTED", _OPERATOR, only_verbose=True),
    _p("ort-split", _O, "onnxruntime", "E", ("AddNnapiSplit count [{count}] does not evenly divide dimension {axis} [{size}]",
       "count [{count}] does not evenly divide dimension {axis} [{size}]"), f"{_PROVIDER}/builders/op_builder_helpers.cc:145",
       "the provider accepted a Split that it cannot build: there is no session",
       "write the Split as Slice nodes, or with even parts"),
    _p("ort-constant-type", _O, "onnxruntime", "E",
       ("The input/initializer of graph doesn't have valid type, name: {tensor_name} type: {type}",
       "The input/initializer of graph has unsupported quantized type, name: {tensor_name} type: {type}"),
       f"{_PROVIDER}/builders/model_builder.cc, GetInputDataType",
       "the provider accepted a node that reads a constant or input of a type that it cannot build: there is no session",
       "store it in another type, or leave its node out of quantisation (nodes_to_exclude)"),
    _p("ort-scale", _O, "onnxruntime", "E", ("Input [{tensor_name}] NNAPI input scale: {value}, ONNX input scale: {other}",
       "Input [{tensor_name}] NNAPI input zero point: {value}, ONNX input zero point: {other}"),
       f"{_PROVIDER}/builders/op_builder_helpers.cc, IsValidInputQuantizedType",
       "two nodes state different scales or zero points for one value, but NNAPI has only one: there is no session",
       "quantise with one scale for each value"),
    _p("ort-nchw", _O, "onnxruntime", "E", "NCHW format is not supported on android api level {number}",
       f"{_PROVIDER}/builders", "NNAPI's flag for channels first came with feature level 3: there is no session",
       "nnbridge plan FILE --layout nhwc; in the app, leave NNAPI_FLAG_USE_NCHW out"),
    _p("ort-unregistered", _O, "onnxruntime", "E", ("No Op registered for {kind} with domain_version of {number}",
       "{unit_kind}:{kind}(-1) is not a registered function/op"), "onnxruntime/core/graph/graph.cc",
       "ONNX Runtime knows no such operator: it does not load the file, with or without NNAPI",
       "register the operator's library, or convert without it"),
    _p("ort-no-output-shape", _O, "onnxruntime", "E",
       "RegisterModelOutputs shape_proto cannot be null for output: {tensor_name}",
       f"{_PROVIDER}/builders/model_builder.cc, RegisterModelOutputs",
       "an output of a partition has no shape in the file: there is no session",
       "run shape inference (onnx.shape_inference) before you deploy"),
    _p("ort-api-error", _O, "onnxruntime", "E", ("model_builder.cc:{line} {function} ResultCode: {code}, op = {operation_code}",
       "model_builder.cc:{line} {function} ResultCode: {code}, {rest}", "model_builder.cc:{line} {function} ResultCode: {code}",
       "model.cc:{line} {function} ResultCode: {code}", "ResultCode: {code}"), f"{_PROVIDER}/builders/model_builder.cc",
       "a call of NNAPI failed while the provider built a partition: there is no session", _BUILD),
    _p("ort-key", _O, "onnxruntime", "E", "Exception during initialization: {rest}",
       "onnxruntime/core/session/inference_session.cc",
       "ONNX Runtime created no session; with NNAPI the provider failed to build a model", _BUILD),
    _p("ort-run-failed", _O, "onnxruntime", "E",
       ("Non-zero status code returned while running {kind} node. Name:'{tensor_name}' Status Message: {rest}",
        "Non-zero status code returned while running {kind} node. Name:'{tensor_name}' {rest}"),
       "onnxruntime/core/framework/sequential_executor.cc:563",
       "a node, or a partition that a provider made one node of, fails while it runs",
       "nnbridge run FILE says what ONNX Runtime's CPU has to say of the node"),
    _p("ort-no-nnapi", _O, "onnxruntime", "W",
       "NNAPI execution provider can only be used to generate ORT format model in this build.",
       "onnxruntime/python/onnxruntime_pybind_state.cc:1264", "this build of ONNX Runtime has no NNAPI: it fails when it runs",
       "run on a phone, or with nnbridge's provider (nnbridge build provider)"),
    _p("ort-targets", _O, "onnxruntime", "E", ("The model cannot run using the current set of target devices, {rest}",
       "The model cannot run using current set of target devices, {rest}"), f"{_PROVIDER}/builders/model_builder.cc, Compile",
       "with NNAPI_FLAG_CPU_DISABLED a device refused an operation of a partition: there is no session",
       "allow NNAPI's CPU, or " + _LEARN),
    # -- Android -----------------------------------------------------------------------------------------------------------
    _p("access-denied", Writer.ANDROID, "audit", "W", "scontext=u:r:hal_neuralnetworks_{rest}", "system/sepolicy",
       "SELinux denies the driver access to a file, such as a model on the sdcard that was passed as a memory",
       "copy the model into the app's own folder"),
)  # fmt: skip

BY_NAME: Mapping[str, LinePattern] = {pattern.name: pattern for pattern in PATTERNS}


def forms(within: str = "") -> Iterator[tuple[LinePattern, Form]]:
    """All forms that a line may have; with ``within`` those of lists below a line of that pattern."""
    return ((pattern, form) for pattern in PATTERNS if pattern.within == within for form in pattern.forms)
