"""What a run is asked for beside the plain search, kept with the run."""
