"""Evaluates on this machine: worker processes behind a wall, one of them persistent.

`executor` has the class; it uses `builder` (what a task is, whether it proves anything, and
torch.compile's baselines), `baselines` (PyTorch's own times, and compiled candidates) and
`certification` (one candidate judged, a finalist closely, and its profile), which share the
`workshop`: the device's workers and the account of where their time goes.
"""
