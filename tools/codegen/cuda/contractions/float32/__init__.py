"""Float32 products on tensor cores, by products of scaled 16-bit parts.

`split` packs both factors' parts beforehand and says what they cannot tell; `wgmma` multiplies them
by warpgroups, and `streamed` and `streamed_both` split one factor, or both, on the way there.
"""
