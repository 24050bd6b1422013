"""Grids of products: what can be asked, and what is done about it."""
