"""Evaluates on this machine: worker processes behind a wall, one of them persistent.

`executor` is the door; behind it lie `reading` (what a task is, and whether it proves anything),
`baselines`, `certification` (one candidate judged, a finalist closely) and `profiles`, which share
the `workshop`: the device's workers and the account of where their time goes.
"""

from tools.evaluate.local.baselines import CERTIFY, STANDARD
from tools.evaluate.local.executor import LocalExecutor
from tools.evaluate.local.workshop import task_key

__all__ = ["CERTIFY", "STANDARD", "LocalExecutor", "task_key"]
