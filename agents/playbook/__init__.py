"""Built-in expertise: a traced graph becomes loops, loops become kernels in CUDA and C++.

`ir/` holds the intermediate form, `lower/` turns a Graph into a Program of it (loops and library
calls), `algebra/` rewrites graphs for all inputs, `cuda/` and `cpp/` emit a Loop under a named
strategy, `assemble` prints a candidate. Only the modules of this folder import all of these.
"""
