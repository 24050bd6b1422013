"""The agents: planner, coder, profiler, critic, strategist, assistant, and their language models.

Every role has a language model's implementation and one by rules (the playbook) behind it.
"""
