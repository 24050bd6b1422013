"""What a person sees while a search runs.

`LiveProgress` draws the view of the run in place on a terminal, `PlainProgress` says each event in
a line elsewhere. Neither asks anything of the search: events are all they know.
"""

from ui.progress.live import LiveProgress
from ui.progress.plain import PlainProgress
from ui.progress.watcher import Watcher, watcher

__all__ = ["LiveProgress", "PlainProgress", "Watcher", "watcher"]
