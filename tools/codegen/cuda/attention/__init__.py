"""Attention in one kernel, scores never in memory: how a call is read, printed and timed."""
