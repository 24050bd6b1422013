"""Submodules that can be traced, of a model that cannot be traced as a whole."""
