"""The critic: says why fast candidates are fast, and predicts."""
