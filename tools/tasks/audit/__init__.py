"""Doubts about a task that its graph alone gives away: nothing is run here.

Constant and void outputs are found by following ranges of values and copies through the graph.
What takes measuring (insensitive, exploitable) is the judge's, in `tools.evaluate.verify.audit`.
"""
