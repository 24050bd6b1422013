"""The chat's controller: carries out a person's commands, and runs searches in the background.

`SearchManager` holds the searches of a server; they go on whether anybody listens or not
(`background`). A `ChatController` belongs to one conversation: it knows the loaded task and the
run, and has one answer for every command.
"""

from kernelwright.graphs.conversation.background.search_manager import SearchManager
from kernelwright.graphs.conversation.background.subscribers import Hear, Told
from kernelwright.graphs.conversation.background.task_card import TaskCard
from kernelwright.graphs.conversation.context import Finding, Settings
from kernelwright.graphs.conversation.controller import ChatController

__all__ = ["ChatController", "Finding", "Hear", "SearchManager", "Settings", "TaskCard", "Told"]
