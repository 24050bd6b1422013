"""The parent's side of worker processes: start, ask with a deadline, watch, end."""
