"""A task's inputs: how they are drawn, varied, kept to a domain, and which sizes they may have."""
