"""The evil suite: for every cheat of the catalogue evils that must be rejected, and honest twins.

A row of the catalogue is a file in `rows`, the honest candidates that evils are edited from are
in `bases`; both are data. `suite` judges them with the judge that judges everything else.
"""
