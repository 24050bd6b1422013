"""Replays: a recorded search run again without model, compiler or device."""
