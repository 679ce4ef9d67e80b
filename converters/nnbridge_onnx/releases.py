"""Releases of ONNX Runtime: what its NNAPI provider checked before, where that is not stated beside the operators' conditions.

From ``onnxruntime/core/providers/nnapi/nnapi_builtin/builders`` at the commits of :data:`nnbridge.releases.ORT`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from nnbridge.converters.rules import until
from nnbridge.errors import Reason, Stage, Why
from nnbridge.releases import within
from nnbridge_onnx.rules import Provider, Unit, UnitCondition, condition

MAPPED_SINCE: Mapping[str, str] = {
    **dict.fromkeys(("PRelu", "DepthToSpace", "Gather", "Pad", "Unsqueeze"), "1.12"),
    **dict.fromkeys(("LeakyRelu", "ReduceMean"), "1.16"),
    "Split": "1.17",
}
"""The first release that maps an operator; others are mapped in all."""
_LAST_VERSIONS = {"1.12": 15, "1.13": 17, "1.14": 18, "1.17": 19, "1.22": 21}
"""Up to a release, the last opset that may have changed an operator (``GetMaxSupportedOpSet``)."""


@cache
def _since_version(type: str, opset: int) -> int:
    """The opset that changed an operator last, as a file of an opset has it."""
    from onnx import defs  # imported for older releases only

    try:
        return int(defs.get_schema(type, opset, "").since_version)
    except defs.SchemaError:
        return 0


def _changed_in(unit: Unit) -> int:
    return 0 if unit.node.domain else _since_version(unit.node.type, unit.node.version)


def _last_version(release: str, version: int) -> UnitCondition:
    return until(
        release,
        condition(
            f"an operator that opset {version} or an older one changed last",
            lambda u: _changed_in(u) <= version,
            _changed_in,
            kind=Why.OPERATOR_VERSION,
        ),
    )


EVERY_OPERATOR: tuple[UnitCondition, ...] = (
    *(_last_version(release, version) for release, version in _LAST_VERSIONS.items()),
    until(
        "1.15",
        condition("no omitted input", lambda u: all(io.name for io in u.inputs), lambda u: "one", kind=Why.MISSING_OPERAND),
    ),
)
"""What older releases check of each operator."""
_NO_GROUP = until(
    "1.11", condition("no group of quantised values", lambda u: not u.grouped, lambda u: u.node.type, kind=Why.QUANTISATION_TYPE)
)
_OLDER: Mapping[str, tuple[UnitCondition, ...]] = {
    "Gemm": (_NO_GROUP,),
    "MatMul": (
        _NO_GROUP,
        until(
            "1.12",
            condition(
                "two matrices",
                lambda u: (len(u.shape(0)), len(u.shape(1))) == (2, 2),
                lambda u: (list(u.shape(0)), list(u.shape(1))),
                kind=Why.RANK,
            ),
        ),
    ),
    "Gather": (
        until(
            "1.12",
            condition("constant indexes", lambda u: u.constant(1) is not None, lambda u: "computed", kind=Why.NOT_CONSTANT),
        ),
    ),
    "Softmax": (
        until("1.15", condition("rank 2 or 4", lambda u: len(u.shape()) in (2, 4), lambda u: len(u.shape()), kind=Why.RANK)),
        until(
            "1.15",
            condition(
                "axis 1 below feature level 3",
                lambda u: u.attribute("axis", 1) == 1,
                lambda u: u.attribute("axis", 1),
                3,
                Why.ARGUMENT,
            ),
        ),
    ),
}


def checks(rule: Provider, operator: str, release: str) -> tuple[UnitCondition, ...]:
    """The checks of a release before it accepts an operator that it maps."""
    found = (*rule.of_any_release, *EVERY_OPERATOR, *_OLDER.get(operator, ()))
    return tuple(one for one in found if within(release, one.since, one.until))


LAST_LOADED: Mapping[str, tuple[int, int]] = {
    "1.11": (16, 8),
    "1.12": (17, 8),
    "1.13": (17, 8),
    "1.14": (18, 8),
    "1.15": (19, 9),
    "1.16": (19, 9),
    "1.17": (20, 9),
    "1.18": (21, 10),
    "1.19": (21, 10),
    "1.20": (21, 10),
    "1.21": (22, 10),
    "1.22": (22, 10),
}
"""Release → the last opset of ONNX and the last IR version that its wheel loads; files of each were given to each wheel."""


def not_loaded_by(release: str, opset: int, ir_version: int) -> Reason | None:
    """The reason why a release does not load a file of an opset and an IR version; None where it does."""
    last_opset, last_ir = LAST_LOADED.get(release, (opset, ir_version))
    for what, found, last in (("opset", opset, last_opset), ("IR version", ir_version, last_ir)):
        if found > last:
            rule = f"{last} at most, the last one of release {release}"
            return Reason(rule, str(found), what, kind=Why.OPERATOR_VERSION, stage=Stage.LOADING)
    return None
