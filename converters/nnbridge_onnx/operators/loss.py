"""Losses, which the host computes."""

from __future__ import annotations

from nnbridge_onnx.declaration import operator

operator("NegativeLogLikelihoodLoss", 112, "input target weight? -> loss", "Negative log likelihood of classes.")
operator("SoftmaxCrossEntropyLoss", 175, "scores labels weights? -> output log_prob?", "Cross entropy of Softmax.")
