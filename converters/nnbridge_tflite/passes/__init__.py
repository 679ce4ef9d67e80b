"""From a graph to drafted NNAPI operations: folding, lowering, inlined calls, states, shapes of what the host computes."""
