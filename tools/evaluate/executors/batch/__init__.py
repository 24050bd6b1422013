"""Evaluation by files: jobs go out in a bundle, a folder, and results come back in the same folder.

`executor` is the search's side: it writes bundles and reads results. `work` is the far host's
side: it needs a device and no network. `bundle` is what travels between them. Not covered: a far
host that wants to deceive; what is checked here finds damage and mix-ups.
"""
