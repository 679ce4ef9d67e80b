"""Text and data for people and programs: plans, comparisons, devices and conformance runs as tables and as JSON-ready data.

One module for each subject. Words that they share with the command line are defined here.
"""

MARKS = {
    "wide": "beyond what TFLite's delegate or ONNX Runtime's provider hands to NNAPI",
    "host": "stays with the app's runtime",
}
"""Mapping that operations are marked with in tables → what it means."""
