"""Built-in expertise: a traced graph becomes loops, loops become kernels in CUDA and C++.

`lower/` turns a Graph into a Program (loops and library calls), `rewrites/` change it for all
inputs, `cuda/` and `cpp/` emit a Loop under a named strategy, `assemble` prints a candidate.
"""
