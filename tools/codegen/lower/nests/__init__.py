"""Nests and what they are made of: expressions, views, positions, memory layout."""
