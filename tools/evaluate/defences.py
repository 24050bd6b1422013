"""The judge's defences by name, so that a test can take one away and see an evil pass.

Each stands for one check of the protocol; `Rules.switched_off` names those that are off. None ever
is outside the mutation test of `tests/evil`: a report of rules that lack one says so.
"""

from enum import StrEnum


class Defence(StrEnum):
    """One thing that stands between a cheat and a verdict of "correct and faster"."""

    ALLOW_LIST = "allow_list"  # plans and sources say only what the contract admits
    POISON = "poison"  # outputs and freed memory hold NaN before a candidate runs
    GUARD_BANDS = "guard_bands"  # writes beside a block are seen
    INPUTS_UNCHANGED = "inputs_unchanged"  # inputs and weights are compared afterwards
    EXACT_RESULT = "exact_result"  # a plain tensor with storage of its own, of the right shape
    ERROR_RATIO = "error_ratio"  # the error is held against PyTorch's own, beside float64
    DISTRIBUTIONS = "distributions"  # values other than those that the task draws
    HOLDOUT_SHAPES = "holdout_shapes"  # shapes other than the task's, where it claims them
    NEW_VALUES = "new_values"  # other values in the same memory must give other answers
    NEW_MEMORY = "new_memory"  # the same values in other memory must give the same answer
    TIMED_RESULTS = "timed_results"  # what timed calls returned is verified as well
    LATE_CHANGES = "late_changes"  # a result must not change after it was returned
    COMPANIONS = "companions"  # threads and processes are counted before and after
    CLOCKS_AGREE = "clocks_agree"  # device events, wall time and summed kernels tell the same
    FLOOR = "floor"  # no time below what moving the bytes takes
    QUARANTINE = "quarantine"  # too good is measured again in another process
    COVERAGE = "coverage"  # who did the work is measured, and the label says it
    NULLS = "nulls"  # answers without work must fail
    PRECISION = "precision"  # fewer digits are labelled and ranked apart
    SETUP_TIMED = "setup_timed"  # weights are drawn anew, and `prepare` counts
    COLD_CACHES = "cold_caches"  # what a kernel pinned in the L2 is evicted
    SEPARATE_PROCESS = "separate_process"  # truth, clock and verdict are elsewhere
    SANDBOX = "sandbox"  # no network, no files, no secrets
    SANITIZER = "sanitizer"  # compute-sanitizer, or the C++ compiler's own, over finalists
