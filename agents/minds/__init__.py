"""The roles' second minds: planner, coder, profiler, critic and strategist by a language model."""
