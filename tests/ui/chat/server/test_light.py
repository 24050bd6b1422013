"""The server leaves torch to its workers: it would take seconds and 300 MB of every start."""

import subprocess
import sys

BEFOREHAND = """
import os, sys
from pathlib import Path
from kernelwright.ui.chat.server.serve import _prepare
from kernelwright.ui.chat.settings import ChatSettings, use

settings = ChatSettings(home=Path(sys.argv[1]), target="cpu")
settings.folder.mkdir(parents=True)
use(settings)
_prepare(settings)
"""
SERVER = """
import kernelwright.ui.chat.server.app
from kernelwright.graphs.search.session import import_beforehand
from kernelwright.ui.chat.server.application import build_app

build_app(settings)
import_beforehand("auto")
"""
TURNS = """
import asyncio
from kernelwright.agents.assistant.rules import RulesAssistant
from kernelwright.graphs.conversation import ChatController, SearchManager, Settings
from kernelwright.graphs.conversation.graph import Conversation, MessageContext

SAID = ("hello", "what can you do?", "list my runs", "search deep", "go", "why?", "show the code")

async def turns():
    manager = SearchManager(settings.home, target="cpu")
    given = Settings(target="cpu", search="quick")
    controller = ChatController(settings.home, manager, "ann", "one", given)
    conversation = Conversation()
    for text in SAID:
        message = MessageContext(controller, RulesAssistant(), text)
        answers = [reply async for reply in conversation.hear("one", message)]
        assert answers, text
    await manager.aclose()

asyncio.run(turns())
"""
LIGHT = "\nassert 'torch' not in sys.modules\n"


def test_torch_is_not_imported_by_the_server_nor_by_turns_by_rules(tmp_path):
    code = LIGHT.join((BEFOREHAND, SERVER, TURNS, ""))
    told = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "home")], capture_output=True, text=True
    )
    assert told.returncode == 0, told.stderr
