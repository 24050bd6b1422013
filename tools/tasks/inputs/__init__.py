"""A task's inputs: how they are drawn, packed, varied, and which sizes they may have."""
