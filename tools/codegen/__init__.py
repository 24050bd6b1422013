"""Built-in expertise: a traced graph becomes loops, loops become kernels in CUDA and C++.

`ir/` holds the intermediate form, the roofline and the seam `KernelFamily`; `lower/` turns a Graph
into a Program of it (loops and library calls); `algebra/` rewrites graphs for all inputs. `cuda/`
and `cpp/` hold a language's families of kernels, each in a registry. `library/` lists the forms of
a whole task and the options of each loop, and prints candidates.
"""
