"""Losses, which the host computes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnbridge.converters.declaration import Option
from nnbridge.model import Array
from nnbridge_onnx.declaration import operator
from nnbridge_onnx.host.evaluator import HostCall

_OPTIONS = (
    Option("ignore_index", None, "a class whose elements do not count"),
    Option("reduction", "mean", "how the losses of elements become one", choices=("none", "sum", "mean")),
)
LIKELIHOOD = operator(
    "NegativeLogLikelihoodLoss", 112, "input target weight? -> loss", "Negative log likelihood of classes.", options=_OPTIONS
)
ENTROPY = operator(
    "SoftmaxCrossEntropyLoss", 175, "scores labels weights? -> output log_prob?", "Cross entropy of Softmax.", options=_OPTIONS
)


@LIKELIHOOD.host_kernel
def _likelihood(call: HostCall) -> Sequence[Array]:
    return [_loss(call, call.input(0))]


@ENTROPY.host_kernel
def _entropy(call: HostCall) -> Sequence[Array]:
    """By the logarithm of Softmax in one step: Softmax is 0 where its logarithm is below that of the smallest number."""
    scores = call.input(0)
    below = scores - scores.max(1, keepdims=True)
    logs = (below - np.log(np.exp(below).sum(1, keepdims=True))).astype(scores.dtype)
    return [_loss(call, logs), logs][: call.outputs]


def _loss(call: HostCall, logs: Array) -> Array:
    """The losses of ``logs`` [batch, classes, ...] at their labels [batch, ...], reduced."""
    labels, weights, ignored = call.input(1), call.optional(2), call.option("ignore_index")
    counted = np.ones(labels.shape, bool) if ignored is None else labels != ignored
    classes = np.where(counted, labels, 0)
    if classes.size and (classes.min() < 0 or classes.max() >= logs.shape[1]):
        raise ValueError(f"labels in [0, {logs.shape[1]}), found {classes.min()} to {classes.max()}")
    shares = (np.ones(logs.shape[1], logs.dtype) if weights is None else weights)[classes] * counted
    losses = -np.take_along_axis(logs, np.expand_dims(classes, 1), 1).squeeze(1) * shares
    reduction = call.option("reduction")
    if reduction == "none":
        return np.asarray(losses).astype(logs.dtype)
    return np.asarray(losses.sum() / (shares.sum() if reduction == "mean" else 1)).astype(logs.dtype)
