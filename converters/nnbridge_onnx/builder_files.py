"""The files in which ONNX Runtime's NNAPI provider checks each operator, and builds it.

Files NAME_op_builder.cc of onnxruntime/core/providers/nnapi/nnapi_builtin/builders/impl in microsoft/onnxruntime, at the commit
that was read: the check is ``IsOpSupportedImpl`` and ``HasSupportedInputOutputsImpl``, building ``AddToModelBuilderImpl``. All
operators share ``base_op_builder.cc`` (194144dfd), and one folder above ``op_builder_helpers.cc`` (bc9f2c2af),
``model_builder.cc`` (011ea8a42) and ``helper.cc`` (beb751b47).
"""

from __future__ import annotations

from collections.abc import Mapping

_FILES = """
batchnorm 406022609 BatchNormalization
binary a77422837 Add Div Mul PRelu Pow QLinearAdd QLinearMul Sub
cast a77422837 Cast
clip 31e676615 Clip
concat a77422837 Concat
conv d9664d918 Conv QLinearConv
depthtospace 3cb676194 DepthToSpace
dequantizelinear 22e0180c7 DequantizeLinear
elu 2a7a9d142 Elu
flatten 2bb7e818b Flatten
gather 32d19a81e Gather
gemm a0d183478 Gemm MatMul QLinearMatMul
identity d930f6ec5 Identity
leakyrelu 44cd0f8ab LeakyRelu
LRN a0d183478 LRN
minmax 0bd42bd53 Max Min
pad f8b74ff77 Pad
pool 90948cdb0 AveragePool GlobalAveragePool GlobalMaxPool MaxPool QLinearAveragePool
quantizelinear 3ae6b7501 QuantizeLinear
reduction eb94e8c56 ReduceMean
relu d930f6ec5 Relu
reshape d9664d918 Reshape
resize 0bd42bd53 Resize
slice d930f6ec5 Slice
softmax a77422837 Softmax
split 0c3ea39da Split
squeeze a77422837 Squeeze
transpose 381271dab Transpose
unary 2e085de98 Abs Exp Floor Log Neg QLinearSigmoid Sigmoid Sin Sqrt Tanh
unsqueeze 2944c6f47 Unsqueeze
"""


def _read(line: str) -> dict[str, str]:
    file, _commit, *names = line.split()
    return dict.fromkeys(names, file)


BUILDER_FILES: Mapping[str, str] = {name: at for line in _FILES.strip().splitlines() for name, at in _read(line).items()}
"""Operator, without its domain → the name of the file."""
