"""Compiled kernels against the reference kernels, in every instruction-set form that this processor runs."""

import pytest

pytest.importorskip("llvmlite", reason="compiled kernels need llvmlite (pip install '.[fast]')")
