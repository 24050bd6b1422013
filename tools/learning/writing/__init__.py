"""Examples of our own: random modules by families, and short kernels that the playbook writes."""
