"""Python that is copied into exports: it may use nothing of Kernelwright's.

What stands after the line `# --- exported from here ---` is what an export holds; the imports
above it are those of the template that takes it in.
"""
