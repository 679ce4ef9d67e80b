"""Random NNAPI models on both tiers, split and out of process: what scripts/nets/differential_nnapi.py runs, in short."""

from __future__ import annotations

import pytest

from tests.runtime.differential import DRAWS, verdicts


@pytest.mark.parametrize("source", sorted(DRAWS))
def test_random_models_answer_alike_on_every_tier_device_and_process(source: str) -> None:
    found = list(verdicts(range(60), 1, [source]))
    assert [verdict for verdict in found if verdict.outcome == "differs"] == []
