"""What the processors counted in this process's own threads, and why where they counted nothing.

Linux's `perf_event_open` is called directly: `perf stat` would count a whole process, its start
included, and must fit the kernel. Only code in user space is counted, which the kernel allows
without any right unless it was told to be stricter. `kernelwright doctor` tries it.
"""
