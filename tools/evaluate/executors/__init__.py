"""Where candidates are evaluated: one folder for each way, all of them behind one class.

`base` holds that class, `Executor`, and the values that it is asked with; `registry` knows each way
by its name. `local` evaluates with worker processes on this machine, `batch` by bundles of files
that are carried to another host, `recorded` answers from a run that is over. `probing` tries the
machine out.
"""
