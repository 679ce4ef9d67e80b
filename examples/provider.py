"""Stock ONNX Runtime on an emulated device: the session of a phone, with another library.

python examples/provider.py models/digits_float32.onnx nnapi-sample_float_fast

Prints which nodes the device's provider gets, and the greatest difference to ONNX Runtime's own kernels. Needs a C compiler and
`pip install '.[provider,onnxruntime]'` with ONNX Runtime 1.24 or later.
"""

from __future__ import annotations

import sys

import numpy as np
import onnxruntime as ort

from nnbridge import provider


def main(path: str, device: str) -> None:
    """Compare the device with ONNX Runtime's CPU."""
    options = provider.session_options(device)
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    session = ort.InferenceSession(path, options)
    groups = session.get_provider_graph_assignment_info()
    own = [len(group.get_nodes()) for group in groups if group.ep_name == "NnapiExecutionProvider"]
    others = sum(len(group.get_nodes()) for group in groups) - sum(own)
    plural = "" if len(own) == 1 else "s"
    print(f"{sum(own)} nodes on NnapiExecutionProvider in {len(own)} partition{plural}, {others} on CPUExecutionProvider")

    rng = np.random.default_rng(0)
    feeds = {value.name: rng.random(value.shape, np.float32) for value in session.get_inputs()}
    alone = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    for output, ours, theirs in zip(session.get_outputs(), session.run(None, feeds), alone.run(None, feeds), strict=True):
        print(f"greatest difference to ONNX Runtime's CPU in {output.name}: {np.abs(ours - theirs).max():.3g}")


if __name__ == "__main__":
    main(*sys.argv[1:])
