"""Families of kernels for products of matrices, and what they print alike.

Each family is a way to multiply tiles: on ordinary cores here, on tensor cores beside it.
"""
