"""One self-contained HTML file about a run: nothing is fetched, everything is escaped.

`facts` turns a story into the values of the page, `charts` draws the run's charts as SVG; the page
itself is `report.html.j2` with `report.css`.
"""

from kernelwright.ui.report.page import render, write

__all__ = ["render", "write"]
