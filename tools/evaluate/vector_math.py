"""MKL's functions of vectors, resolved before threads meet in them.

PyTorch takes `exp`, `sqrt` or `sin` of contiguous floats on a CPU from MKL, a piece a thread. MKL
2024.2, which its wheels bring, looks up the code for a function in the first call of it. Threads
that make this call together can find the lookup half done, and one computes its piece at a lower
precision, this once (PyTorch's issue 188792; `benchmarks/first_calls.py` counts how often). Truth
would be wrong by it, or an honest candidate's first answer not the same bits as its second.
"""

import torch

# What ATen's cpu/vml.h hands to MKL, in float32 and float64.
FUNCTIONS = (
    "abs", "acos", "asin", "atan", "cos", "erf", "erfc", "erfinv", "exp", "expm1", "log", "log10",
    "log1p", "log2", "sin", "sqrt", "tan", "tanh", "trunc",
)  # fmt: skip


def resolve_vector_math() -> None:
    """Call each function once with a single element, which no second thread shares; 20 ms."""
    for dtype in (torch.float32, torch.float64):
        one = torch.full((1,), 0.5, dtype=dtype)
        for name in FUNCTIONS:
            getattr(torch, name)(one)
