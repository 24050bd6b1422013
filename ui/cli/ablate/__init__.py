"""Ablations: trials of whole searches, and policies on recorded settings spaces."""
