"""What people read: plans, comparisons, devices and conformance runs as tables and as JSON-ready values."""

from nnbridge.report.terminal import (
    cache_as_dict,
    cache_lines,
    comparison_tables,
    conformance_table,
    devices_as_dict,
    devices_table,
    plan_as_dict,
    plan_tables,
)

__all__ = [
    "cache_as_dict",
    "cache_lines",
    "comparison_tables",
    "conformance_table",
    "devices_as_dict",
    "devices_table",
    "plan_as_dict",
    "plan_tables",
]
