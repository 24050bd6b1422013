"""Built-in expertise: a traced graph becomes loops, loops become kernels in CUDA and C++.

`ir/` holds the intermediate form, `lower/` turns a Graph into a Program of it (loops and library
calls), `algebra/` rewrites graphs for all inputs, `forms/` lists what a whole task can be put as.
`emit/` says what a family of kernels is; `cuda/` and `cpp/` hold a language's families, each in a
registry. `assemble` prints a candidate, `repertoire` is all of it for one task on one device.
"""
