"""The judge: worker processes that run references and candidates, and the ladder of stages.

Nothing outside this package executes a candidate or a user's file. `executors` is what others use:
one class, `Executor`, with an implementation for this machine and others for elsewhere. `sandbox`
is the parent's side of worker processes, `worker` the child's, `messages` what they say to each
other, in the frames of `wire`. `verify` decides whether a result is right, `timing` how fast it
was, `foreign` does both for full Python of strangers; `profiling` watches a candidate run, under
profilers and sanitizers. `rules` holds every figure that all of them go by, `findings` what a
reader of a speed-up should know, `finalists` who is looked at more closely, `process_setup` what
every judging process sets up.
"""
