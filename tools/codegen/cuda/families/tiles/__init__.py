"""Loops that are computed by tiles: reads turned to stores, and neighbours that share reads."""
