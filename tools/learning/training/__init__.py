"""Training of small models on judged answers, in plain torch over transformers and PEFT.

Nothing heavy is imported before a model is loaded; without the extra `[learn]` that says so.
"""
