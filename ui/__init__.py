"""How people meet Kernelwright: the command line and what it prints."""
