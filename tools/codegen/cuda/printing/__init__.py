"""What all families of CUDA kernels print with: nests, passes, addresses, vectors, skeletons."""
