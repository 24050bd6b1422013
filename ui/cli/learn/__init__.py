"""`kernelwright learn`: data out of runs, evaluation, training, serving."""
