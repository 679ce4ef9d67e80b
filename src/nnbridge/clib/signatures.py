"""The C signatures of NNAPI's functions, as one table from which header, declarations and glue are generated.

A parameter is written ``kind name``. Kinds: ``X*`` and ``const X*`` are handles, ``X**`` a handle that is returned; ``out T``
a result; ``in`` and ``inout`` a buffer with its length after it; ``count u32`` a count with its numbers after it;
``count handles X`` handles with their count after them, ``handles X count`` the other way round.
"""

from __future__ import annotations

import re

from nnbridge.records import dataclass
from nnbridge.types import ResultCode

PREFIX = "ANeuralNetworks"

HANDLES = ("Memory", "Model", "Device", "Compilation", "Execution", "Burst", "Event", "MemoryDesc")
"""Opaque types, without the prefix."""

_TABLE = """
_getDeviceCount: out uint32_t numDevices
_getDevice: uint32_t devIndex, Device** device
int64_t _getRuntimeFeatureLevel:
uint64_t _getDefaultLoopTimeout:
uint64_t _getMaximumLoopTimeout:
Device_getName: const Device* device, out string name
Device_getType: const Device* device, out int32_t type
Device_getVersion: const Device* device, out string version
Device_getFeatureLevel: const Device* device, out int64_t featureLevel
Device_getExtensionSupport: const Device* device, string extensionName, out bool isExtensionSupported
Device_wait: const Device* device
Model_create: Model** model
void Model_free: Model* model
Model_finish: Model* model
Model_addOperand: Model* model, operandType type
Model_setOperandValue: Model* model, int32_t index, in buffer
Model_setOperandValueFromMemory: Model* model, int32_t index, PART
Model_setOperandValueFromModel: Model* model, int32_t index, const Model* value
Model_setOperandSymmPerChannelQuantParams: Model* model, int32_t index, channelQuant channelQuant
Model_addOperation: Model* model, int32_t type, count u32 input, count u32 output
Model_identifyInputsAndOutputs: Model* model, count u32 input, count u32 output
Model_relaxComputationFloat32toFloat16: Model* model, bool allow
Model_getSupportedOperationsForDevices: const Model* model, handles Device devices, out bools supportedOps
Model_getExtensionOperandType: Model* model, string extensionName, uint16_t operandCodeWithinExtension, out int32_t type
Model_getExtensionOperationType: Model* model, string extensionName, uint16_t operationCodeWithinExtension, out int32_t type
Model_setOperandExtensionData: Model* model, int32_t index, in data
Memory_createFromFd: size_t size, int protect, int fd, size_t offset, Memory** memory
Memory_createFromAHardwareBuffer: pointer ahwb, Memory** memory
Memory_createFromDesc: const MemoryDesc* desc, Memory** memory
Memory_copy: const Memory* src, const Memory* dst
void Memory_free: Memory* memory
MemoryDesc_create: MemoryDesc** desc
void MemoryDesc_free: MemoryDesc* desc
MemoryDesc_addInputRole: MemoryDesc* desc, const Compilation* compilation, uint32_t index, float frequency
MemoryDesc_addOutputRole: MemoryDesc* desc, const Compilation* compilation, uint32_t index, float frequency
MemoryDesc_setDimensions: MemoryDesc* desc, rank u32 dimensions
MemoryDesc_finish: MemoryDesc* desc
Compilation_create: Model* model, Compilation** compilation
Compilation_createForDevices: Model* model, handles Device devices, Compilation** compilation
void Compilation_free: Compilation* compilation
Compilation_setCaching: Compilation* compilation, path cacheDir, token token
Compilation_setPreference: Compilation* compilation, int32_t preference
Compilation_setPriority: Compilation* compilation, int priority
Compilation_setTimeout: Compilation* compilation, uint64_t duration
Compilation_finish: Compilation* compilation
Compilation_addExtensionAttribute: Compilation* compilation, string extensionName, uint16_t attributeCodeWithinExtension, in data
Compilation_getPreferredMemoryAlignmentForInput: const Compilation* compilation, uint32_t index, out uint32_t alignment
Compilation_getPreferredMemoryPaddingForInput: const Compilation* compilation, uint32_t index, out uint32_t padding
Compilation_getPreferredMemoryAlignmentForOutput: const Compilation* compilation, uint32_t index, out uint32_t alignment
Compilation_getPreferredMemoryPaddingForOutput: const Compilation* compilation, uint32_t index, out uint32_t padding
Execution_create: Compilation* compilation, Execution** execution
void Execution_free: Execution* execution
Execution_setInput: Execution* execution, int32_t index, operandType type, in buffer
Execution_setInputFromMemory: Execution* execution, int32_t index, operandType type, PART
Execution_setOutput: Execution* execution, int32_t index, operandType type, inout buffer
Execution_setOutputFromMemory: Execution* execution, int32_t index, operandType type, PART
Execution_enableInputAndOutputPadding: Execution* execution, bool enable
Execution_setReusable: Execution* execution, bool reusable
Execution_setMeasureTiming: Execution* execution, bool measure
Execution_setTimeout: Execution* execution, uint64_t duration
Execution_setLoopTimeout: Execution* execution, uint64_t duration
Execution_addExtensionAttribute: Execution* execution, string extensionName, uint16_t attributeCodeWithinExtension, in data
Execution_compute: Execution* execution
Execution_startCompute: Execution* execution, Event** event
Execution_startComputeWithDependencies: Execution* execution, handles Event dependencies, uint64_t duration, Event** event
Execution_burstCompute: Execution* execution, Burst* burst
Execution_getDuration: const Execution* execution, int32_t durationCode, out uint64_t duration
Execution_getOutputOperandRank: Execution* execution, int32_t index, out uint32_t rank
Execution_getOutputOperandDimensions: Execution* execution, int32_t index, out u32s dimensions
Event_wait: Event* event
void Event_free: Event* event
Event_createFromSyncFenceFd: int sync_fence_fd, Event** event
Event_getSyncFenceFd: const Event* event, out int sync_fence_fd
Burst_create: Compilation* compilation, Burst** burst
void Burst_free: Burst* burst
""".replace("PART", "const Memory* memory, size_t offset, size_t length")


@dataclass(frozen=True)
class CParameter:
    """One parameter of a function: how the glue treats it, and how C writes it."""

    kind: str
    """``handle``, ``number``, ``string``, ``path``, ``operandType``, ``channelQuant``, ``token``, ``pointer``, ``buffer``,
    ``u32s`` (NULL is as good as a count of 0), ``u32 array``, ``handles``;
    or a result: ``out handle``, ``out number``, ``out string``, ``out bools``, ``out u32s``."""
    c: tuple[str, ...]
    """The C parameters that it stands for."""
    name: str

    @property
    def is_result(self) -> bool:
        """True for what is returned through a pointer."""
        return self.kind.startswith("out ")


@dataclass(frozen=True)
class CSignature:
    """A C function."""

    name: str
    returns: str
    parameters: tuple[CParameter, ...]

    @property
    def failed(self) -> int | None:
        """The result of a function where the library cannot start: OP_FAILED, or 0 from those that have no result code."""
        return {"void": None, "int": int(ResultCode.OP_FAILED)}.get(self.returns, 0)

    @property
    def inner(self) -> str:
        """The name of the function that runs Python."""
        return f"nnbridge_{self.name.removeprefix(PREFIX)}"

    def prototype(self, name: str = "") -> str:
        """The declaration without its semicolon, of this name or another."""
        listed = ", ".join(c for parameter in self.parameters for c in parameter.c) or "void"
        return f"{self.returns} {name or self.name}({listed})"

    @property
    def definition(self) -> str:
        """The C function that the library exports: an error where there is no Python, what Python returns otherwise."""
        names = ", ".join(c.split("*")[-1].split()[-1] for parameter in self.parameters for c in parameter.c)
        failed = "" if self.failed is None else f" {self.failed}"
        call = f"{'' if self.failed is None else 'return '}{self.inner}({names})"
        return f"CFFI_DLLEXPORT {self.prototype()} {{ if (nnbridge_start() != 0) return{failed}; {call}; }}"


_FIXED = {
    "operandType": ("operandType", f"const {PREFIX}OperandType* {{0}}"),
    "channelQuant": ("channelQuant", f"const {PREFIX}SymmPerChannelQuantParams* {{0}}"),
    "string": ("string", "const char* {0}"),
    "path": ("path", "const char* {0}"),
    "token": ("token", "const uint8_t* {0}"),
    "pointer": ("pointer", "const void* {0}"),
    "in": ("buffer", "const void* {0}, size_t length"),
    "inout": ("buffer", "void* {0}, size_t length"),
    "count u32": ("u32 array", "uint32_t {0}Count, const uint32_t* {0}s"),
    "rank u32": ("u32s", "uint32_t rank, const uint32_t* {0}"),
    "out string": ("out string", "const char** {0}"),
    "out bools": ("out bools", "bool* {0}"),
    "out u32s": ("out u32s", "uint32_t* {0}"),
    "out u8s": ("out u32s", "uint8_t* {0}"),
    "channelPoints": ("channelPoints", "const void* {0}"),
}
_HANDLE = re.compile(r"(const )?(\w+)\*$")


def _parameter(text: str) -> CParameter:
    written, name = text.rsplit(" ", 1)
    if written in _FIXED:
        kind, c = _FIXED[written]
        return CParameter(kind, tuple(c.format(name).split(", ")), name)
    if written.startswith("handles "):
        opaque = PREFIX + written.removeprefix("handles ")
        return CParameter("handles", (f"const {opaque}* const* {name}", f"uint32_t num{name.capitalize()}"), name)
    if written.endswith("**"):
        return CParameter("out handle", (f"{PREFIX}{written} {name}",), name)
    handle = _HANDLE.match(written)
    if handle is not None and handle.group(2) in HANDLES:
        return CParameter("handle", (f"{handle.group(1) or ''}{PREFIX}{handle.group(2)}* {name}",), name)
    if written.startswith("out "):
        return CParameter("out number", (f"{written.removeprefix('out ')}* {name}",), name)
    return CParameter("number", (f"{written} {name}",), name)


def signature(line: str) -> CSignature:
    """The signature that a line of the table stands for."""
    head, _, tail = line.partition(":")
    returns, _, name = head.rpartition(" ")
    parameters = tuple(_parameter(part.strip()) for part in tail.split(",") if part.strip())
    return CSignature(PREFIX + name, returns or "int", parameters)


SIGNATURES: tuple[CSignature, ...] = tuple(signature(line) for line in _TABLE.strip().splitlines())
