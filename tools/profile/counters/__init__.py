"""Nsight Compute's counters as typed values: which are asked for, and how its output is read.

Running it is `tools.evaluate.profiling`'s part, as that executes a candidate.
"""
