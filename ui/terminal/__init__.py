"""What a run, a suite or a task look like on a terminal."""
