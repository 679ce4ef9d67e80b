"""Text and data for people and programs: plans, comparisons, devices and conformance runs as tables and as JSON-ready data.

One module for each subject.
"""
