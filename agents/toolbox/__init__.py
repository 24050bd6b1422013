"""What roles' tools do: ask compilers, the judge, profilers and earlier runs, and answer in text.

A workbench is one search's; tools made from it are a role's. Nothing here judges: a draft that is
checked here is judged again like any other when it is handed in, or known from here by its content.
"""
