"""The judge: worker processes that run references and candidates, and the ladder of stages.

Nothing outside this package executes a candidate or a user's file. `executors` is what others use:
one class, `Executor`, with an implementation for this machine and others for elsewhere. `process`
is the parent's side of worker processes, `worker` the child's, `messages` what they say to each
other. `judge` decides whether a result is right, `clock` how fast it was, `foreign` does both for
full Python of strangers; `profiling` and `sanitizing` watch a candidate run. `rules` holds every
figure that all of them go by.
"""
