"""The judge: worker processes that run references and candidates, and the ladder of stages.

Nothing outside this package executes a candidate or a user's file. `executor` is the door;
`local` opens it with worker processes on this machine (`process` is the parent's side of them,
`worker` the child's); `judge` decides whether a result is right, `clock` how fast it was;
`rules` holds every figure that they go by.
"""
