"""NNAPI's runtime: placement, partitions, compilation and its cache, execution, memories, events, bursts."""
