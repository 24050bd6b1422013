"""The program's side: starts guests, watches them, and reads the kernel's books about them.

A guest can say what it likes; what it used stands in /proc, which it does not write.
"""
