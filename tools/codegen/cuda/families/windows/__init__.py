"""Sums over windows that neighbouring outputs share: in a line of them, or a tile of channels."""
