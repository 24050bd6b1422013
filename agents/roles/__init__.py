"""The roles of a search, each a value."""
