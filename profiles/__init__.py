"""Data: hardware and search profiles, and the loader that checks them."""
