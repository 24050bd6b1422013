"""The planner: which ideas to try next, why these, and why in this order."""
