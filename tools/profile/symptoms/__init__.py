"""The patterns that readings show, by what they are about; `tools.profile.symptoms.table` has the table.

Each is a function from readings and hardware to a symptom, or None where it does not show or its
readings are missing.
"""
