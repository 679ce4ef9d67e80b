"""Inputs of models from files: arrays, images, sound, raw bytes and numbers, singly or as a folder of samples."""

# What is imported here is the package's interface.
# mypy: implicit-reexport
# ruff: noqa: F401

from nnbridge.ahead import read_ahead
from nnbridge.inputs.dataset import Dataset, Item, class_index, metadata_by_name, read_labels
from nnbridge.inputs.preparation import Picture, Preparation, prepare
from nnbridge.inputs.quantisation import quantised
