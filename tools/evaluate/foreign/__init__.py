"""Foreign candidates: full Python of strangers, run as a guest that holds nothing worth stealing.

The judge (our own worker) owns the buffers, the truth, the clock and the verdict. The guest is
another process: it gets inputs in memory that the judge wrote, leaves its answer in memory that
the judge poisoned, and says when it is done. `host` is the program's side, which starts guests
and reads the kernel's books about them; `guest` the side that runs foreign code; the rest is the
judge's.
"""
