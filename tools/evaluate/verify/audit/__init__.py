"""The audit's measured part: does the answer depend on what comes in, and can it be guessed?

Runs PyTorch's own forward on a few draws, smaller ones where the task's own would take too long,
and holds answers that took no work against the judge's bound.
"""
