"""What a person sees while a search runs: events folded into a board, and the board drawn.

`Board` holds what is known; `LiveProgress` draws it in place on a terminal, `PlainProgress` says
each event in a line elsewhere. Neither asks anything of the search: events are all they know.
"""

from ui.progress.board import Board
from ui.progress.live import LiveProgress
from ui.progress.plain import PlainProgress
from ui.progress.watcher import Watcher, watcher

__all__ = ["Board", "LiveProgress", "PlainProgress", "Watcher", "watcher"]
