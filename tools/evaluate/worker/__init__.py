"""The worker's side: a process that runs what may hang, crash or lie.

Modules here and in `verify` import torch at the top: nothing imports them but a worker.
"""
