"""Searching a large model region by region, and putting what was found together."""
