"""Fusion: nests inlined, merged, absorbed and cut, so that little is stored between loops."""
