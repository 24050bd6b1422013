"""The judge: worker processes that run references and candidates, and the ladder of stages.

Nothing outside this package executes a candidate or a user's file.
"""
