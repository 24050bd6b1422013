"""Ways to put a whole task: as written, rewritten, in other layouts, by products of ours."""
