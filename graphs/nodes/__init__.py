"""The steps of a search, each a thin function from state to update.

A step may be cut off anywhere and run again from its start: it looks things up before it makes
them, and what it emits carries a key.
"""
