"""Time, memory and the best cut of a file's operators on a device, by the numbers that its profile states."""

ESTIMATE_CPU = "pixel3-4-threads"
"""The phone's CPU that estimates are held against unless another is named."""
