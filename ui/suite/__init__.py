"""Spreading a suite over the GPUs of this machine, a process each."""
