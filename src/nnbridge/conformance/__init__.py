"""Running Android's conformance cases (NNAPI spec tests as data) on any device."""
