"""The search: its graph, sessions of a run from start to end or resume, and replays."""
