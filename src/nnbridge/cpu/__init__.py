"""The CPU executor: NNAPI's operations in NumPy, or in compiled kernels, over one arena of memory."""
