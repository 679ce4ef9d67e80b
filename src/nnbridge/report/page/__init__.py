"""A report in one HTML file: its data (:mod:`.schema`), built from plan, cost and comparison (:mod:`.data`), and the page."""

from nnbridge.report.page.data import PageFacts, page_data
from nnbridge.report.page.html import default_page, page

__all__ = ["PageFacts", "default_page", "page", "page_data"]
