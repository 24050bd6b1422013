"""The words that models read: Markdown a person would hand a colleague, one file a role.

`agents.minds.prompts` loads and fills them; no code stands here.
"""
