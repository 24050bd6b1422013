"""The patterns that readings show, by what they are about; `table` lists them.

Each is a function from readings and hardware to a symptom, or None where it does not show or its
readings are missing.
"""
