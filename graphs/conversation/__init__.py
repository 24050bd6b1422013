"""The desk: where what a person wants is done, and where their searches live.

`Lives` holds the searches of a server; they go on whether anybody listens or not. A `Desk` is one
conversation's place: a task on the table, a run, and one answer for every wish.
"""

from kernelwright.graphs.conversation.context import Finding, Settings
from kernelwright.graphs.conversation.controller import ChatController
from kernelwright.graphs.conversation.search_manager import SearchManager
from kernelwright.graphs.conversation.subscribers import Hear, Told
from kernelwright.graphs.conversation.task_card import TaskCard

__all__ = ["ChatController", "Finding", "Hear", "SearchManager", "Settings", "TaskCard", "Told"]
