"""From what a person points at to the one file that holds the module, and its text.

A file, a notebook, a folder, a zip, `package.layers:Block` or an installed package's class: each
ends in a Python text, the path that it is said to stand at, the entry in it and the project around
it. Everything after sees no difference. Nothing is executed, and torch is not imported.
"""

from kernelwright.tools.tasks.sources.find import Found, find, is_name

__all__ = ["Found", "find", "is_name"]
