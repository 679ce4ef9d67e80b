"""The functions of libneuron_adapter.so: NNAPI's under another prefix, and those that NNAPI does not have."""

from __future__ import annotations

from dataclasses import replace

from nnbridge.clib.signatures import PREFIX, SIGNATURES, CSignature, signature

NEURON = "Neuron"

_TWINS = """
Model_create Model_free Model_addOperand Model_setOperandValue Model_setOperandSymmPerChannelQuantParams Model_addOperation
Model_identifyInputsAndOutputs Model_relaxComputationFloat32toFloat16 Model_finish Model_getExtensionOperandType
Model_getExtensionOperationType Compilation_create Compilation_free Compilation_setPriority Compilation_setPreference
Compilation_finish Execution_create Execution_free Execution_compute Execution_setInputFromMemory Execution_setOutputFromMemory
Memory_createFromAHardwareBuffer Memory_createFromFd Memory_free
"""
_OWN = """
_getVersion: out u8s version
_getL1MemorySizeKb: out uint32_t sizeKb
Model_setName: Model* model, string name
Model_setOperandPerChannelQuantParams: Model* model, int32_t index, channelPoints params
Model_restoreFromCompiledNetwork: Model** model, Compilation** compilation, in buffer
Compilation_createWithOptions: Model* model, Compilation** compilation, string options
Compilation_setOptimizationHint: Compilation* compilation, uint32_t hint
Compilation_setOptimizationString: Compilation* compilation, string text
Compilation_setL1MemorySizeKb: Compilation* compilation, uint32_t sizeKb
Compilation_getSupportedOperations: Compilation* compilation, uint32_t operationCount, out bools supported
Compilation_getCompiledNetworkSize: Compilation* compilation, out size_t size
Compilation_storeCompiledNetwork: Compilation* compilation, inout buffer
Compilation_getInputPaddedDimensions: Compilation* compilation, int32_t index, out u32s dimensions
Compilation_getOutputPaddedDimensions: Compilation* compilation, int32_t index, out u32s dimensions
Compilation_getInputPaddedSize: Compilation* compilation, int32_t index, out size_t size
Compilation_getOutputPaddedSize: Compilation* compilation, int32_t index, out size_t size
Execution_setBoostHint: Execution* execution, uint8_t hint
Execution_setConfig: Execution* execution, pointer config
"""

STRUCTURES = """
typedef struct {
    uint32_t channelDim;
    uint32_t scaleCount;
    const float* scales;
    uint32_t zeroPointCount;
    const int32_t* zeroPoints;
} NeuronPerChannelQuantParams;
"""


def _renamed(known: CSignature) -> CSignature:
    return replace(known, name=NEURON + known.name.removeprefix(PREFIX))


_BY_NAME = {known.name: known for known in SIGNATURES}
NEURON_SIGNATURES: tuple[CSignature, ...] = (
    *(_renamed(_BY_NAME[PREFIX + name]) for name in _TWINS.split()),
    *(_renamed(signature(line)) for line in _OWN.strip().splitlines()),
)
"""All functions that the compiler's plug-in looks for."""
