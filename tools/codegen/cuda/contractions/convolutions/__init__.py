"""Convolutions as products over packed rows, which `contractions.windows` describes."""
