"""Measuring a model file: nnbridge's tiers beside the file's own runtime, alternating in one run."""
