"""Suites on a terminal: the live table while one runs, its summary, two beside each other."""

from ui.suite.tables import contrast_table, row_cells, summary_of

__all__ = ["contrast_table", "row_cells", "summary_of"]
