"""Families of kernels for products of matrices, and what they print alike.

Each family is a way to multiply tiles: on ordinary cores (`simt`), on tensor cores from registers
(`mma_tiles`) or through tensor maps (`mapped`), in `float32`, and of `convolutions`. What is
printed around each product is `epilogue`, `folds` and `statistics`.
"""
