"""Learning from what was verified: data out of runs, a contract for small models, their training.

`contract` is what a small model is asked and how its answer becomes a candidate, `writing` makes
random modules and answers them by the playbook, `data` turns judged answers into rows to train on,
`judging` asks any executor what an answer is worth, and `training` fine-tunes and reinforces.
Only `training` needs the extra `[learn]`, and only once a model is loaded.
"""
