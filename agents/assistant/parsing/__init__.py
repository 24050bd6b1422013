"""Reads a person's words without a language model: plain patterns, one kind of thing a file.

Nothing here raises on any text, and what is not understood is None rather than a guess.
"""
