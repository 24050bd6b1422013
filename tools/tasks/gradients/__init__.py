"""The backward of a module as a module file, and what a training step's forward keeps for it."""
