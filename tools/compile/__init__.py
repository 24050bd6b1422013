"""Turns a candidate's kernel into an object that can be loaded, for CUDA and for the host's CPU."""
