"""The desk: where what a person wants is done, and where their searches live.

`Lives` holds the searches of a server; they go on whether anybody listens or not. A `Desk` is one
conversation's place: a task on the table, a run, and one answer for every wish.
"""

from graphs.desk.card import TaskCard
from graphs.desk.desk import Desk
from graphs.desk.lives import Lives
from graphs.desk.settings import Finding, Settings
from graphs.desk.watching import Hear, Told

__all__ = ["Desk", "Finding", "Hear", "Lives", "Settings", "TaskCard", "Told"]
