"""Searches kernels for a module's gradients, a task of their own behind its forward."""
