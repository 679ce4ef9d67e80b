"""Time, memory and the best cut of a file's operators on a device, by the numbers that its profile states."""
