"""The places where NNAPI's validation checks the types of an operation: files and lines of Android 13.

The files are those of packages/modules/NeuralNetworks/common/types/operations/src (LineageOS at commit 99d8a8b1, 2024-01-06).
"""

from __future__ import annotations

from collections.abc import Mapping

from nnbridge.records import dataclass

FOLDER = "packages/modules/NeuralNetworks/common/types"
COMPARED_AT = f"{FOLDER}/src/OperationsValidationUtils.cpp:38"
"""Where a type is compared with the expected one."""

_LINES = """
Activation 42 tensor 48 RELU RELU1 RELU6 LOGISTIC TANH HARD_SWISH
ArgMinMax 36 input - ARGMIN ARGMAX
Broadcast 59 tensor 66 ADD MUL SUB
Broadcast 44 tensor 66 DIV
Cast 55 data - CAST
Concatenation 40 tensor 59 CONCATENATION
Conv2D 71 input 122 CONV_2D
DepthwiseConv2D 67 input 118 DEPTHWISE_CONV_2D
Elu 32 tensor 36 ELU
ExpandDims 38 input - EXPAND_DIMS
FullyConnected 118 input 120 FULLY_CONNECTED
GroupedConv2D 65 input - GROUPED_CONV_2D
L2Normalization 41 tensor 53 L2_NORMALIZATION
LocalResponseNormalization 50 tensor 64 LOCAL_RESPONSE_NORMALIZATION
MaximumMinimum 38 input - MAXIMUM MINIMUM
Pooling 72 input 86 AVERAGE_POOL_2D L2_POOL_2D MAX_POOL_2D
Pow 36 input - POW
RNN 56 input - RNN
Reshape 54 input - DEPTH_TO_SPACE
Reshape 94 input - SPACE_TO_DEPTH
Reshape 145 input - PAD
Reshape 192 input - PAD_V2
Reshape 239 input - BATCH_TO_SPACE_ND
Reshape 296 input - SPACE_TO_BATCH_ND
Reshape 337 input - RESHAPE
SVDF 36 input - SVDF
SimpleMath 41 input - MEAN
Softmax 44 tensor 58 SOFTMAX
Tile 38 input - TILE
Transpose 37 tensor 43 TRANSPOSE
TransposeConv2D 54 input 67 TRANSPOSE_CONV_2D
"""


@dataclass(frozen=True)
class TypeCheck:
    """An operation's checks of types."""

    file: str
    unsupported: int
    """The line that refuses the first input's type."""
    form: int
    """Of :data:`nnbridge.log_lines.patterns.PATTERNS`' ``unsupported-type``: how it says so."""
    inputs: int
    """The line that compares all inputs; 0 where it was not looked up."""


def _read(line: str) -> dict[str, TypeCheck]:
    file, unsupported, words, inputs, *names = line.split()
    form = ("input", "tensor", "data").index(words)
    return dict.fromkeys(
        names, TypeCheck(f"{FOLDER}/operations/src/{file}.cpp", int(unsupported), form, int(inputs.strip("-") or 0))
    )


TYPE_CHECKS: Mapping[str, TypeCheck] = {name: at for line in _LINES.strip().splitlines() for name, at in _read(line).items()}
"""Operation → its checks."""
OPERATIONS_OF_FILE: Mapping[str, tuple[str, ...]] = {
    line.split()[0]: tuple(name for name, at in TYPE_CHECKS.items() if at.file.endswith(f"/{line.split()[0]}.cpp"))
    for line in _LINES.strip().splitlines()
}
"""A source file's name → the operations that it checks."""
