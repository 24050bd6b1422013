"""The guest's side: the process in which foreign code runs.

Nothing in here can be trusted once that code has run; every finding that counts is made by the
judge from outside. Modules import torch at the top: only a guest imports them.
"""
