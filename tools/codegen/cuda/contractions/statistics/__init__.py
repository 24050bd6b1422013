"""Statistics that products take of their results: parts that tiles leave, and what joins them.

`tiles` says how parts lie and prints the kernel that joins them; `blocks` is what kernels for
products take (those for convolutions: `convolutions.statistics`).
"""
