"""The desk: where what a person wants is done, and where their searches live.

`Lives` holds the searches of a server; they go on whether anybody listens or not. A `Desk` is one
conversation's place: a task on the table, a run, and one answer for every wish.
"""

from kernelwright.graphs.conversation.desk import Desk
from kernelwright.graphs.conversation.lives import Lives
from kernelwright.graphs.conversation.settings import Finding, Settings
from kernelwright.graphs.conversation.task_card import TaskCard
from kernelwright.graphs.conversation.watching import Hear, Told

__all__ = ["Desk", "Finding", "Hear", "Lives", "Settings", "TaskCard", "Told"]
