"""Everything that is known of one run, as `graphs.story` reads it from the archive."""

from graphs.story import Story, load

__all__ = ["Story", "load"]
