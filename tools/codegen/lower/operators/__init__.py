"""ATen's operators as nests or library calls, a file for each kind of operator."""
