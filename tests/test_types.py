"""Enumerations: codes as Android's public headers have them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nnbridge import types
from nnbridge.errors import ERROR_OF_CODE
from nnbridge.operations import definitions
from nnbridge.types import FeatureLevel, OperandCode, OperationCode, ResultCode

PREFIX = "ANEURALNETWORKS_"


def test_operation_codes_run_from_0_to_105_without_gap() -> None:
    assert [c for c in OperationCode if c < 1000] == list(range(106))


def test_known_codes() -> None:
    # From the documentation of ANEURALNETWORKS_REVERSE, ..._DENSIFY and ..._TENSOR_QUANT8_ASYMM_SIGNED.
    assert OperationCode.REVERSE == 105
    assert OperationCode.DENSIFY == 20000
    assert OperandCode.TENSOR_QUANT8_ASYMM_SIGNED == 14
    assert OperandCode.TENSOR_OEM_BYTE == 10001


@pytest.mark.parametrize(("level", "constant"), [(1, 27), (5, 31), (6, 1000006), (8, 1000008)])
def test_feature_levels_have_androids_constants(level: int, constant: int) -> None:
    assert FeatureLevel(level).constant == constant


def test_every_result_code_but_no_error_has_an_exception() -> None:
    assert set(ERROR_OF_CODE) == set(ResultCode) - {ResultCode.NO_ERROR}


def test_every_operation_but_the_oem_one_is_declared() -> None:
    assert set(definitions()) == set(OperationCode) - {OperationCode.OEM_OPERATION}


def test_codes_equal_the_public_headers(shared: Path) -> None:
    listed = json.loads((shared / "reference" / "nnapi-codes.json").read_text())
    pairs = {
        "OperandCode": types.OperandCode,
        "ResultCode": types.ResultCode,
        "PreferenceCode": types.PreferenceCode,
        "PriorityCode": types.PriorityCode,
        "FuseCode": types.FuseCode,
        "PaddingCode": types.PaddingCode,
        "DeviceTypeCode": types.DeviceTypeCode,
        "OperationCode": types.OperationCode,
    }
    for name, enumeration in pairs.items():
        ours = enumeration.__members__
        for full, code in listed[name].items():
            if not full.endswith("_DEFAULT"):
                assert code in (ours.get(short) for short in _shortened(full)), f"{name} {full}"


def _shortened(full: str) -> list[str]:
    """A public name without its prefix, and without the word that the enumeration's own name says already."""
    name = full.removeprefix(PREFIX)
    return [name, *(name.removeprefix(word) for word in ("FUSED_", "PADDING_", "PREFER_", "DEVICE_", "PRIORITY_"))]


def test_operations_appear_at_the_levels_of_the_public_headers(shared: Path) -> None:
    listed = json.loads((shared / "reference" / "nnapi-codes.json").read_text())["operations"]
    found = {d.name: int(d.since) for d in definitions().values() if d.code != OperationCode.DENSIFY}
    assert found == {name: facts["since_feature_level"] for name, facts in listed.items()}
