"""What the agents use: tasks, candidates, compilers, the judge, the archive, exports."""
