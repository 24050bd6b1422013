"""Commands about what lies in the data folder: runs, and the library of kernels."""
