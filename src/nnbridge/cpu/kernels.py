"""Faster kernels, bound to shapes and constants at preparation, under the same operation names."""
