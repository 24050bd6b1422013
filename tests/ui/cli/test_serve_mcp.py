"""The tools for coding agents, driven over stdio by the protocol's own client."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from kernelwright.ui.cli.serve_mcp import Doors, Grant

TASK = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2 + 1


def get_inputs():
    return [torch.rand(64, 256)]
"""
TOOLS = ["audit", "check", "explain", "export", "optimize"]


@asynccontextmanager
async def client(root: Path) -> AsyncIterator[ClientSession]:
    """An agent's session with a server over a folder."""
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "kernelwright", "serve-mcp", "--root", str(root), "--target", "cpu",
              "--run-dir", str(root / "runs"), "--max-seconds", "90"],
        env={**os.environ, "KERNELWRIGHT_HOME": str(root / "home")},
    )  # fmt: skip
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        yield session


@pytest.mark.exhaustive
@pytest.mark.usefixtures("nothing_compiled")
async def test_an_agent_audits_searches_asks_why_and_takes_it_home(tmp_path):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "task.py").write_text(TASK)
    heard = []

    async def hear(done: float, total: float | None, words: str | None) -> None:
        heard.append(words)

    async with client(tmp_path) as agent:
        seen = (await agent.call_tool("audit", {"file": "pkg/task.py"})).structuredContent
        assert seen["task"]["inputs"] == [{"shape": [64, 256], "dtype": "float32"}]
        found = await agent.call_tool(
            "optimize", {"file": "pkg.task:Model", "seconds": 8}, progress_callback=hear
        )
        assert not found.isError, found
        summary = found.structuredContent
        assert summary["candidates"]["correct"] >= 1
        assert "run started" in heard

        why = (await agent.call_tool("explain", {"run": summary["run"]})).structuredContent
        assert why["run"] == summary["run"]
        assert "forward" in why["plan"]
        assert why["candidate"].startswith("v")

        home = {"run": summary["run"], "folder": "faster", "force": True}
        taken = await agent.call_tool("export", home)
        assert not taken.isError, taken
        assert (tmp_path / "faster" / "module.py").is_file()


@pytest.mark.exhaustive
async def test_what_cannot_be_done_is_an_error_of_one_sentence(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    (root / "task.py").write_text(TASK)
    (tmp_path / "outside.py").write_text(TASK)
    (root / "link.py").symlink_to(tmp_path / "outside.py")
    asked = [
        ("audit", {"file": "gone.py"}, "there is no file"),
        ("audit", {"file": "../outside.py"}, "is outside of"),
        ("audit", {"file": "link.py"}, "is outside of"),
        ("audit", {"file": "task.py", "inputs": ["/etc/x.pt"]}, "is outside of"),
        ("optimize", {"file": "task.py", "seconds": 1000}, "seconds must be from 1 to 90"),
        ("check", {"candidate": "gone.cpp", "task": "task.py"}, "there is no candidate"),
        ("explain", {"run": "gone"}, "there is no run"),
        ("explain", {"run": "../x"}, "is not the id of a run"),
        ("export", {"run": "gone", "folder": "/tmp/x"}, "is outside of"),
        ("audit", {}, "audit: file: Field required"),
        ("audit", {"file": "task.py", "size": 3}, "audit has no 'size'; it takes file, entry"),
        ("optimize", {"file": "task.py", "seconds": "long"}, "but it was 'long'"),
        ("nothing", {}, "Unknown tool: nothing"),
    ]
    async with client(root) as agent:
        listed = (await agent.list_tools()).tools
        assert sorted(tool.name for tool in listed) == TOOLS
        assert all(tool.description for tool in listed)
        for tool, arguments, words in asked:
            answer = await agent.call_tool(tool, arguments)
            assert answer.isError, (tool, arguments)
            assert words in answer.content[0].text
            assert "\n" not in answer.content[0].text.strip()


@pytest.mark.parametrize(
    ("number", "status", "words"),
    [(signal.SIGINT, 130, b"kernelwright: interrupted\n"), (signal.SIGTERM, 0, b"")],
)
def test_a_signal_ends_a_server_whose_client_says_nothing(tmp_path, number, status, words):
    command = [sys.executable, "-m", "kernelwright", "serve-mcp", "--root", str(tmp_path)]
    hello = {"protocolVersion": "2024-11-05", "capabilities": {},
             "clientInfo": {"name": "a person", "version": "1"}}  # fmt: skip
    asked = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as served:
        served.stdin.write(json.dumps(asked).encode() + b"\n")
        served.stdin.flush()
        assert json.loads(served.stdout.readline())["result"]["serverInfo"]
        served.send_signal(number)
        assert served.wait(30) == status
        assert served.stderr.read() == words


async def test_what_a_cancelled_call_leaves_behind_is_waited_for(tmp_path):
    doors, tidied = Doors(Grant(tmp_path)), []

    async def work():
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)
            tidied.append("workers and folders are gone")

    async with anyio.create_task_group() as calls:
        calls.start_soon(doors._in_turn, work())
        calls.start_soon(doors._in_turn, work())
        await asyncio.sleep(0.05)
        calls.cancel_scope.cancel()
    await doors.aclose()
    assert len(tidied) == 1, "the second one never began"
    assert not doors._measuring.locked()
