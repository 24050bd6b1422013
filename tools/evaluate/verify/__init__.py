"""Whether a result is right, and not by accident. Runs inside workers only.

`reference_runtime` is the task's reference on the device, `truth` its float64 answer, `trials` the
order of events, `memory` what a candidate may write to, `errors` the distance from the truth,
`comparison` the decision, `reasons` the words for a coder who has to repair the kernel. `audit`
asks whether being right on a task proves anything.
"""
