"""C++ through the host's compiler: shared objects with a plain C interface, OpenMP inside."""
