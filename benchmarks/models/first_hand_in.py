"""How many of a coder's answers are right at first hand-in, with tools and without, on this CPU?

A real model behind a real OpenAI-compatible server writes one kernel for one idea of each task; the
real judge compiles, verifies and times what was handed in first. Nothing is repaired. Both ways are
asked about a task before the next one begins, so that a run which is cut off by `--minutes` is a
fair sample of what it reached. `right` counts verdicts, `written` answers of which a candidate
could be made; answers that had none count as wrong.

    python benchmarks/models/first_hand_in.py --base-url http://127.0.0.1:8080/v1 --minutes 20 \
        --server "llama-cpp-python 0.3.36" --out benchmarks/results/cpu/first_hand_in.json

Not covered: whole searches, tasks for a GPU, and more than one answer a task and way (a model at
temperature 0 gives the same one again).
"""

import argparse
import asyncio
import json
import os
import platform
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from kernelwright.agents.coder.coder import CoderRequest, PlaybookCoder
from kernelwright.agents.coder.model import ModelCoder
from kernelwright.agents.llm.client import LLMClient
from kernelwright.agents.llm.tool_loop import LooseBook, ToolLimits
from kernelwright.agents.llm.wrappers import endpoint_client
from kernelwright.agents.toolbox.workbench import RoleTools, Workbench
from kernelwright.profiles.load import ModelProfile, search_profile
from kernelwright.tools.archive import Archive
from kernelwright.tools.codegen.library.kernel_library import repertoire_for
from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.hardware import floor_ms
from kernelwright.tools.types import (
    Candidate,
    Idea,
    Profile,
    Prompt,
    Reply,
    Task,
    TracePolicy,
    Value,
)

WAYS = ("without tools", "with tools")
# Of a slow server and a small model: enough for one broken draft and one good one.
CALLS = 3
MODULE = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return {forward}


def get_inputs():
    return [torch.randn(512, 1024)]
"""
TASKS = {
    "relu": "torch.relu(x)",
    "affine": "2.0 * x + 1.0",
    "sigmoid": "torch.sigmoid(x)",
    "row_sum": "x.sum(dim=1, keepdim=True)",
    "row_max": "x.max(dim=1, keepdim=True).values",
    "silu_square": "(x * torch.sigmoid(x)) ** 2",
    "softmax": "torch.softmax(x, dim=1)",
    "center": "x - x.mean(dim=1, keepdim=True)",
    "tanh": "torch.tanh(x)",
    "clamp": "x.clamp(-0.5, 2.0)",
    "row_mean": "x.mean(dim=1)",
    "column_sum": "x.sum(dim=0)",
    "leaky": "torch.where(x > 0, x, 0.1 * x)",
    "row_scale": "x / (x.abs().sum(dim=1, keepdim=True) + 1e-6)",
    "running_sum": "torch.cumsum(x, dim=1)",
    "log_softmax": "torch.log_softmax(x, dim=1)",
}
IDEA = Idea(
    id="r1i1", title="One pass in parallel", category="fusion", round=1, origin="model",
    mechanism="walk over the data once, rows or ranges in parallel, vectors inside",
    reason="nothing is written that is read again", metric="bytes moved: the least there can be",
)  # fmt: skip


class Answer(Value):
    """One task answered in one way; `verdict` is "" where nothing was handed in."""

    task: str
    way: str
    verdict: str
    reason: str
    questions: int
    calls: int
    failed_calls: int
    tokens_in: int
    tokens_out: int
    seconds: float


class Counting:
    """Counts what a client is asked."""

    def __init__(self, inner: LLMClient) -> None:
        self._inner = inner
        self.replies: list[Reply] = []

    async def say(self, prompt: Prompt) -> Reply:
        """Ask, and count."""
        reply = await self._inner.say(prompt)
        self.replies.append(reply)
        return reply


async def unmeasured(candidate: Candidate) -> Profile:
    """No profiler is asked here."""
    return Profile(candidate=candidate.id)


async def answered(
    task: Task, way: str, executor: LocalExecutor, archive: Archive, model: ModelProfile
) -> Answer:
    """Ask for one kernel, and judge what comes first."""
    hardware, client, book = (
        await executor.hardware(),
        Counting(endpoint_client(model)),
        LooseBook(),
    )
    floor = floor_ms(task.bytes_moved, task.flops, hardware)
    bench = Workbench(task, hardware, floor, archive, executor, unmeasured, archive.folder)
    tools = RoleTools(bench, book, model.tools, ToolLimits(calls=CALLS, seconds=model.timeout_s))
    repertoire = repertoire_for(task, hardware)
    fallback = PlaybookCoder(repertoire)
    given = tools if way == "with tools" else None
    coder = ModelCoder(client, task, hardware, fallback, repertoire, tools=given)
    began = time.monotonic()
    answer = await coder.write(CoderRequest(idea=IDEA, count=1, round=1))
    seconds = time.monotonic() - began
    first = next((item for item in answer.candidates if item.origin == "model"), None)
    verdict, reason = "", "; ".join(answer.notes)[:300]
    if first is not None:
        found = await executor.evaluate(task, first, "screen")
        verdict, reason = found.verdict.value, found.verification.reason[:300]
    return Answer(
        task=task.name,
        way=way,
        verdict=verdict,
        reason=reason,
        questions=len(client.replies),
        calls=len(book.runs),
        failed_calls=sum(run.failed for run in book.runs.values()),
        tokens_in=sum(reply.tokens.input for reply in client.replies),
        tokens_out=sum(reply.tokens.output for reply in client.replies),
        seconds=round(seconds, 1),
    )


async def measured(
    model: ModelProfile, minutes: float, names: list[str], ways: list[str]
) -> list[Answer]:
    """The ways of every task until the time is over."""
    found: list[Answer] = []
    ends = time.monotonic() + 60 * minutes
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        executor = LocalExecutor.create("cpu", here / "scratch")
        try:
            for task in [await traced(executor, here, name) for name in names]:
                archive = Archive.create(
                    here, task, policy=TracePolicy(), profile=search_profile("quick"),
                    hardware=await executor.hardware(), target="cpu",
                )  # fmt: skip
                for way in ways:
                    if time.monotonic() >= ends:
                        return found
                    found.append(await answered(task, way, executor, archive, model))
                    print(found[-1].model_dump_json(), flush=True)
                archive.close()
        finally:
            await executor.aclose()
    return found


async def traced(executor: LocalExecutor, folder: Path, name: str) -> Task:
    """The task of that name."""
    path = folder / f"{name}.py"
    path.write_text(MODULE.format(forward=TASKS[name]))
    task = await executor.trace(path, TracePolicy())
    if not isinstance(task, Task):
        raise SystemExit(f"{name}: {task.sentence}")
    return task


def shares(found: list[Answer]) -> Iterator[dict[str, str | int | float]]:
    """A line a way, of the tasks that both ways were asked about."""
    ways = [way for way in WAYS if any(item.way == way for item in found)]
    both = {item.task for item in found if item.way == ways[-1]} if ways else set()
    for way in ways:
        of = [item for item in found if item.way == way and item.task in both]
        yield {
            "way": way,
            "tasks": len(of),
            "written": sum(bool(item.verdict) for item in of),
            "compiled": sum(item.verdict not in ("", "compile_error") for item in of),
            "right": sum(item.verdict == "correct" for item in of),
            "calls": sum(item.calls for item in of),
            "tokens_in": sum(item.tokens_in for item in of),
            "tokens_out": sum(item.tokens_out for item in of),
            "seconds": round(sum(item.seconds for item in of), 1),
        }


def main() -> None:
    """Read options, measure, and write down what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--model", default="default")
    parser.add_argument("--server", default="", help="what serves it, for the record")
    parser.add_argument("--tools", choices=("native", "text"), default="native")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--reply-tokens", type=int, default=1200)
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds of one question")
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=WAYS)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    model = ModelProfile(
        name="measured", model=given.model, base_url=given.base_url, timeout_s=given.timeout,
        reply_tokens=given.reply_tokens, temperature=0.0, retries=0, tools=given.tools,
    )  # fmt: skip
    load = os.getloadavg()[0]
    found = asyncio.run(measured(model, given.minutes, given.tasks, given.ways))
    result = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": given.model,
        "server": given.server,
        "tools": given.tools,
        "machine": f"{platform.machine()}, {os.cpu_count()} processors, load {load:.1f} at first",
        "calls_at_most": CALLS,
        "shares": list(shares(found)),
        "answers": [item.model_dump() for item in found],
    }
    text = json.dumps(result, indent=1)
    if given.out is not None:
        given.out.write_text(f"{text}\n")
    print(json.dumps(result["shares"], indent=1))


if __name__ == "__main__":
    main()
