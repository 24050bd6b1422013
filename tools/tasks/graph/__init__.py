"""A forward as a graph: traced with PyTorch, tidied, made the typed `Graph`, and counted.

Torch's own graph (`traced`, `aten_graph`) is spelt by fewer operators (`decompositions`,
`selections`, `laid_out`, `random_draws`) and converted (`convert`); what that graph must cost is
read off it (`cost`).
"""
