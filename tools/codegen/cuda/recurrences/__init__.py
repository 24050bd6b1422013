"""Recurrent layers: one product for the inputs of all steps, then a kernel that stays for them all.

`layouts` says how weights are spread over threads and blocks, and how long a step should take.
`inputs` prints the product, and `family` a whole stack of layers.
"""
