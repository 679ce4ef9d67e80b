"""Compiled kernels against the reference kernels, in every instruction-set form that this processor runs."""
