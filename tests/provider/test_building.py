"""What the provider fails to build or to run in stock ONNX Runtime: where the plan says so, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.provider.sessions import needs, session

needs()

from tests.onnx.test_provider_building import BUILDER, BUILDING, FLOAT, GOOD, INT32, RUNNING, UINT8, Network, runtime  # noqa: E402

TYPES = {FLOAT: np.float32, UINT8: np.uint8, INT32: np.int32}
FAILING = {name: one[0] for name, one in (BUILDER | BUILDING).items() if one[0].level == 8}


def feeds(network: Network) -> dict[str, np.ndarray]:
    return {name: np.ones(dims, TYPES[type]) for name, (type, dims) in network.inputs.items()}


@pytest.mark.parametrize("network", FAILING.values(), ids=FAILING)
def test_there_is_no_session_where_the_plan_says_so(network: Network, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="expected"):
        session(str(network.write(tmp_path)))


@pytest.mark.parametrize("network", [one[0] for one in RUNNING.values()], ids=RUNNING)
def test_runs_fail_where_the_plan_says_so(network: Network, tmp_path: Path) -> None:
    running = session(str(network.write(tmp_path)))
    with pytest.raises(Exception, match="expected"):
        running.run(None, feeds(network))


@pytest.mark.parametrize("network", [one[0] for one in GOOD.values()], ids=GOOD)
def test_what_builders_add_computes_what_onnx_runtime_does(network: Network, tmp_path: Path) -> None:
    path = network.write(tmp_path)
    found, own = (one.run(None, feeds(network)) for one in (session(str(path)), runtime(path)))
    for ours, theirs in zip(found, own, strict=True):
        np.testing.assert_allclose(ours.astype(np.float64), theirs.astype(np.float64), atol=1e-5)
