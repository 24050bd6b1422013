"""Ten models of random weights, as people keep theirs: a package with files that share others."""
