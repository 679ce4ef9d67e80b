"""What people and programs read: plans, comparisons, devices and conformance runs as tables and as JSON-ready data.

One module for each subject. Words that they share with the command line are defined here.
"""

PREFERENCES = {"low-power": 0, "fast": 1, "sustained": 2}
"""Name of a preference → NNAPI's number (``PreferenceCode``)."""

PLACES = {"device": "device", "cpu": "NNAPI CPU", "host": "host", "runtime": "NNAPI runtime"}
"""Kind of device → kind of place. The runtime itself runs control flow whose bodies go to devices."""

MARKS = {
    "wide": "beyond what TFLite's delegate or ONNX Runtime's provider hands to NNAPI",
    "host": "not expressible in NNAPI",
}
"""Mapping that operations are marked with in tables → what it means."""
