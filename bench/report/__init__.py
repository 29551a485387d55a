"""From results to something to read: Markdown, HTML with plots, comparisons, and the published tables."""

from __future__ import annotations

from bench.report.comparison import compare
from bench.report.published import published
from bench.report.sections import write

__all__ = ["compare", "published", "write"]
