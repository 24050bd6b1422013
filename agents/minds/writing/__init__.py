"""From a model's words to candidates: reading answers, applying edits, checking the contract.

Whatever a model writes is data: what cannot be used comes back as sentences that it can act upon.
"""
