"""The worker's side: a process that runs what may hang, crash or lie.

Modules here and in `judge` import torch at the top: nothing imports them but a worker.
"""
