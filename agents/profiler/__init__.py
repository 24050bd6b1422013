"""The profiler: says what bounds a candidate."""
