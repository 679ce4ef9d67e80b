"""A phone's log for a file: the lines that a plan comes to, and what the lines of a log mean for the file."""
