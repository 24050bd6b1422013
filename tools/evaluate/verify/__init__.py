"""Whether a result is right, and not by accident. Runs inside workers only.

`memory` owns what a candidate may write to, `trials` the order of events, `errors` the distance
from the truth, `reasons` the words for a coder who has to repair the kernel.
"""
