"""The coder: turns ideas into candidates, and answers failures with repairs."""
