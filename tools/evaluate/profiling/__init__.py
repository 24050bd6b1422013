"""Runs a candidate under a profiler, and says why where that cannot be.

Counters are Nsight Compute's, of a process of its own that runs the candidate twice and ends.
Times of kernels come from a worker: its clock on a CPU, CUPTI's records on a GPU. That worker is
not the judge's: once CUPTI has been asked, every launch in the process is slower by microseconds.
"""
