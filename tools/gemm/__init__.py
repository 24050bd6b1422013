"""Products of matrices shape by shape: which shapes, what is tried for each, what was found.

`shapes` reads grids and files of shapes, `problem` writes a shape down as a task, `candidates`
proposes kernels with settings, `record` keeps what was measured, a JSON line a shape, and `choice`
tells from it what runs where, between the shapes that were measured too.
"""
