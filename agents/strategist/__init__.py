"""The strategist: rewrites the evolving part of the planner's and the coder's prompts."""
