"""Random numbers, which the host draws."""

from __future__ import annotations

from nnbridge_onnx.declaration import operator

operator("Bernoulli", 16, "input -> output", "Draws that are 1 with the probability of the input.")
operator("Multinomial", 110, "input -> output", "Draws from unnormalised log probabilities.")
operator("RandomNormal", 129, "-> output", "Normally distributed numbers.")
operator("RandomNormalLike", 130, "input -> output", "Normally distributed numbers in the shape of the input.")
operator("RandomUniform", 131, "-> output", "Uniformly distributed numbers.")
operator("RandomUniformLike", 132, "input -> output", "Uniformly distributed numbers in the shape of the input.")
