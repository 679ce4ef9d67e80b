"""Compiled kernels against the reference kernels, with every instruction set that this processor runs."""
