"""Evaluates on this machine: worker processes behind a wall, one of them persistent.

`executor` has the class; it uses `reading` (what a task is, and whether it proves anything),
`baselines`, `certification` (one candidate judged, a finalist closely) and `profiles`, which share
the `workshop`: the device's workers and the account of where their time goes.
"""
