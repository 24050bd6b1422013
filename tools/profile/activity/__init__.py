"""Where a call's time goes: device activity records, or the clock around each launch.

Records come from CUPTI through torch's profiler and need no right to read counters.
"""
