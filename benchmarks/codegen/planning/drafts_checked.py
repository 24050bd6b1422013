"""Whether first drafts of random modules are written, compiled and right.

    python benchmarks/codegen/planning/drafts_checked.py FOLDER --kind images --seed 1 --seconds 240
        [--gradients] [--drafts 2]

Draws compositions of a few operators (`images`, `sequences`, `networks` of convolutions and batch
norms in training, or `blocks` in the manner of transformers, these in three types) or, as `judged`,
what `judge/random_modules.py` draws, or, as `operators`, a module for each use of
`operator_uses.py`, once; writes each into the folder, and takes the first drafts of its search:
their plans must be valid and their kernels compile, for this CPU and for an H200 by NVRTC; those
for the CPU are called beside the module itself. With `--gradients` the same is done with the
module's backward. A line is told of whatever goes wrong, with the module's file; a module that is
refused is told with the sentence. Needs no GPU.

What is right is decided more coarsely than by the judge: an error of a few times the module's own,
or of 2e-5 (float32) and 4e-3 (half the width) of the largest value. Backwards are called on
arguments that no forward kept. Every strategy, judged as at certification, is what
`judge/independent_check.py` looks at; here it is what comes first, from reading a file on.
"""

import argparse
import asyncio
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), *(str(ROOT / "benchmarks" / part) for part in ("codegen", "judge"))]

import torch
from module_candidates import Draft, first_drafts
from operator_uses import operator_modules, parts
from random_modules import module

from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.candidates.plan import validate_plan
from kernelwright.tools.hardware import detect
from kernelwright.tools.languages import (
    CompileFailure,
    compile_candidate,
    language_of,
    load_candidate,
)
from kernelwright.tools.tasks import Reference, draw, trace
from kernelwright.tools.tasks.gradients.backward import backward_of
from kernelwright.tools.types import Refusal, RefusedError, Task, TracePolicy

ANY = """
torch.relu(x) | F.gelu(x) | F.silu(x) * 0.5 | x.softmax(1) | x.softmax(-1) | x.log_softmax(-1)
x.cumsum(1) * 0.1 | x.flip(1) | x.roll(1, 2) | x.clamp(-1, 1) | torch.where(x > 0, x, x.exp() - 1)
x - x.amax(1, keepdim=True) | x.std(1, keepdim=True) * x | x.logsumexp(1, keepdim=True) - x
F.normalize(x, dim=1) | F.layer_norm(x, x.shape[-1:]) | F.rms_norm(x, x.shape[-1:])
x.sort(-1).values | x.argmax(-1, keepdim=True) * x * 0.01 | x.gather(1, x.argsort(1))
x.bfloat16().to(x.dtype) | x.cummax(1).values | x.prod(-1, keepdim=True) + x | x.diff(dim=1)
F.hardswish(x) | torch.atan2(x, x.roll(1, 1)) | x.unfold(-1, 2, 1).mean(-1) | x.float().to(x.dtype)
"""
IMAGES = """
F.max_pool2d(x, 2) | F.avg_pool2d(x, 3, 1, 1) | F.adaptive_avg_pool2d(x, 5)
F.interpolate(x, scale_factor=2) | F.interpolate(x, scale_factor=2, mode="bilinear")
F.interpolate(x, size=(9, 7), mode="bilinear", align_corners=True) | F.pad(x, (1, 2, 0, 1))
F.pad(x, (1, 1, 1, 1), mode="reflect") | F.pad(x, (2, 1, 1, 1), mode="replicate")
F.group_norm(x, 4) | F.instance_norm(x) | x - x.mean((2, 3), keepdim=True) | x.transpose(2, 3)
x * x.amax((2, 3), keepdim=True) | torch.cat([x, x * 2], 1)[:, :16] | x[:, :, ::2]
x * torch.sigmoid(x.mean((2, 3), keepdim=True)) | x.var((2, 3), keepdim=True) + x
F.conv2d(x, self.deep[: x.shape[1]], padding=1, groups=x.shape[1]) | F.local_response_norm(x, 3)
F.conv2d(x, self.single[:, : x.shape[1]]) | F.conv2d(x, self.wide[:, : x.shape[1]], padding=1)
"""
SEQUENCES = """
x @ x.transpose(1, 2) * 0.1 | x @ self.w[: x.shape[-1]] * 0.1 | x + self.b[: x.shape[-1]]
F.scaled_dot_product_attention(x, x, x) | F.scaled_dot_product_attention(x, x, x, is_causal=True)
torch.cat([x, x.mean(1, keepdim=True)], 1) | F.pad(x, (1, 1)) | x.transpose(1, 2).contiguous()
x.reshape(len(x), -1).view(len(x), x.shape[2], x.shape[1]) | F.avg_pool1d(x, 3, 1, 1)
torch.einsum("bij,bkj->bik", x, x) * 0.1 | x.repeat_interleave(2, 1) | x.topk(3, -1).values
F.embedding((x[..., 0].abs() * 3).long().clamp(0, 7), self.w[:8])
F.one_hot(x.argmax(-1) % 8, 8).to(x.dtype) @ self.w[:8] | torch.stack([x, x * 2], 2).flatten(1, 2)
F.conv1d(x.transpose(1, 2), self.c[:, : x.shape[2]], padding=1).transpose(1, 2)
"""
BLOCKS = """
self.norm(x) | self.inner(x) | self.inner(F.gelu(self.inner(x))) | x + self.inner(self.norm(x))
x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).type_as(x)
(x @ x.mT * 0.2).softmax(-1) @ x | F.silu(self.inner(x)) * self.inner(x) | x.softmax(-1) @ self.w
torch.cat([-x[..., 16:], x[..., :16]], -1) * x.sin() + x * x.cos()
(x @ x.mT).masked_fill(x.new_ones(x.shape[1], x.shape[1]).triu(1) > 0, -1e4).softmax(-1) @ x
F.softmax(x, -1, dtype=torch.float32).to(x.dtype) | x.unflatten(-1, (4, -1)).amax(-1) @ self.w[:4]
F.group_norm(x.transpose(1, 2), 4).transpose(1, 2) | x.float().softmax(-1).type_as(x) @ self.w
x.to(torch.float64).sum(1, keepdim=True).to(x.dtype) * 0.1 + x | x * self.b + self.b
"""
NETWORKS = """
self.batch(x) | F.relu(self.batch(self.conv(x))) | x + F.silu(self.batch(self.conv(x)))
F.max_pool2d(F.relu(x), 2) | F.avg_pool2d(x, 2) | self.conv(F.gelu(x)) | F.relu6(x)
F.relu(self.batch(F.conv2d(x, self.deep[:16], padding=1, groups=16))) | F.hardswish(self.other(x))
x * torch.sigmoid(self.other(x).mean((2, 3), keepdim=True)) | F.interpolate(x, scale_factor=2)
F.max_pool2d(self.other(self.conv(x)), 3, 2, 1) | self.other(x.mT)
torch.cat([x, self.batch(x)], 1)[:, ::2]
F.interpolate(x, scale_factor=2, mode="bilinear") | F.batch_norm(x, None, None, training=True)
"""
ENDS = """
x | x.sum() | x.mean(1) | x.amax(-1) | x.sum(0) | x.argmax(-1) | x.softmax(1).sum(2)
x.flatten(1).logsumexp(1) | x.std((1, 2)) | (x.max(1).values, x.min(2).values) | x.float()
F.mse_loss(x, x.flip(1)) | {"a": x, "b": (x.mean(), None, 3)} | x.transpose(1, 2)
"""
KINDS = {
    "images": (IMAGES, ("2, 16, 16, 16", "2, 16, 13, 10", "2, 16, 8, 24"), ("float32",)),
    "networks": (NETWORKS, ("4, 16, 16, 16", "3, 16, 13, 10", "2, 16, 8, 24"), ("float32",)),
    "sequences": (SEQUENCES, ("2, 16, 24", "3, 33, 17", "1, 64, 40", "4, 7, 130"), ("float32",)),
    "blocks": (BLOCKS, ("2, 16, 32", "2, 33, 32"), ("float32", "bfloat16", "float16")),
}
FILE = """import torch
from torch import nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.deep = nn.Parameter(torch.randn(64, 1, 3, 3) * 0.2)
        self.single = nn.Parameter(torch.randn(16, 64, 1, 1) * 0.2)
        self.wide = nn.Parameter(torch.randn(16, 64, 3, 3) * 0.1)
        self.c = nn.Parameter(torch.randn(16, 4096, 3) * 0.1)
        self.w = nn.Parameter(torch.randn({rows}, 32) * 0.2)
        self.b = nn.Parameter(torch.randn({wide}))
        self.norm, self.inner = nn.LayerNorm(32), nn.Linear(32, 32)
        self.conv, self.batch = nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.other = nn.BatchNorm2d(16, eps=1e-3, momentum=0.01)
        self.to(torch.{dtype})

    def forward(self, x):
{body}
        return {end}


def get_inputs():
    return [torch.randn({shape}, dtype=torch.{dtype})]
"""


def drawn(source: random.Random, kind: str) -> str:
    """The text of a random module."""
    if kind == "judged":
        return module(source.randrange(1 << 30), 0).source
    own, shapes, dtypes = KINDS[kind]
    pool, ends = parts(own if kind == "networks" else ANY + own), parts(ENDS)
    lines = [f"        x = {source.choice(pool)}" for _ in range(source.randint(2, 4))]
    sizes = (32, 32) if kind == "blocks" else (256, 4096)
    return FILE.format(
        body="\n".join(lines),
        end=source.choice(ends),
        shape=source.choice(shapes),
        dtype=source.choice(dtypes),
        rows=sizes[0],
        wide=sizes[1],
    )


def texts(source: random.Random, kind: str) -> Iterator[str]:
    """The files of a kind, without end, or each operator's where PyTorch itself computes it."""
    while kind != "operators":
        yield drawn(source, kind)
    for text in operator_modules(source):
        in_float32 = re.sub(r"torch\.b?float16", "torch.float32", text)
        yield from [one for one in (text, in_float32) if runs(one)][:1]


def runs(text: str) -> bool:
    """Whether PyTorch takes a module's tensors: some operators know not every type or layout."""
    names: dict[str, Callable] = {}
    exec(compile(text, "<module>", "exec"), names)
    try:
        with torch.no_grad():
            names["Model"]()(*names["get_inputs"]())
    except (RuntimeError, NotImplementedError):
        return False
    return True


def files_of(task: Task, path: Path, *, gradients: bool) -> list[tuple[Path, str]]:
    """The file itself, or those of its backward."""
    if not gradients:
        return [(path, task.source)]
    reference, arguments = Reference.build(task, "cpu"), draw(task, "task", 0, "cpu")
    found = backward_of(reference, task, arguments)
    named = {"forward": found.forward, "backward": found.source}
    return [(path.with_stem(f"{path.stem}_{kind}"), text) for kind, text in named.items() if text]


async def failures(task: Task, hardware: Hardware, drafts: int) -> list[str]:
    """What is wrong with the first drafts for a device."""
    made = await first_drafts(task, hardware, drafts)
    if not made:
        return ["no draft"]
    for draft in made:
        validate_plan(
            draft.candidate.plan, language_of(draft.candidate).parse(draft.candidate.kernel)
        )
    built = await asyncio.gather(
        *(
            compile_candidate(one.candidate, architecture=hardware.architecture, timeout_s=120)
            for one in made
        )
    )
    said = []
    for draft, program in zip(made, built, strict=True):
        if isinstance(program, CompileFailure):
            said.append("not compiled: " + " ".join(program.message.split())[:200])
        elif hardware.kind == "cpu":
            said += far_off(task, draft, program)
    return said


def far_off(task: Task, draft: Draft, program) -> list[str]:
    """Results of a candidate that are further from the truth than the module's own."""
    reference, arguments = Reference.build(task, "cpu"), draw(task, "task", 0, "cpu")
    wanted, truth = reference.forward(arguments), reference.double().forward(arguments)
    runner = load_candidate(draft.candidate, program, "cpu")
    runner.prepare(reference.weights())
    reference.generators.fix()
    said = []
    for got, own, right in zip(runner(arguments, reference.weights()), wanted, truth, strict=True):
        if not got.is_floating_point():
            share = (got != own).float().mean().item()
            said += [f"{share:.1%} of whole numbers differ"] if share > 0.1 else []
            continue
        least = 2e-5 if min([own.dtype.itemsize, *sizes(arguments)]) >= 4 else 4e-3
        mine, theirs = error(got, right), error(own, right)
        if mine > least + 8 * theirs or not torch.equal(got.isnan(), own.isnan()):
            said.append(f"off by {mine:.1e}, the module by {theirs:.1e} ({dict(draft.choices)})")
    return said


def sizes(arguments) -> list[int]:
    """Bytes of an element of each floating argument."""
    tensors = (one for one in arguments if isinstance(one, torch.Tensor))
    return [one.dtype.itemsize for one in tensors if one.is_floating_point()]


def error(got: torch.Tensor, truth: torch.Tensor) -> float:
    """The largest difference over the largest value; what is not finite is left out."""
    largest = truth.abs().nan_to_num(0, 0, 0).amax().clamp_min(1e-3)
    return float((got.double() - truth).abs().nan_to_num(0, 0, 0).amax() / largest)


def tried(path: Path, given: argparse.Namespace, devices: list[Hardware]) -> list[str]:
    """What goes wrong with one module."""
    task = trace(path.read_text(), str(path), TracePolicy(device="cpu"))
    if isinstance(task, Refusal):
        return [f"refused: {task.sentence}"]
    try:
        files = files_of(task, path, gradients=given.gradients)
    except RefusedError as refused:
        return [f"no backward: {refused.refusal.sentence}"]
    said = []
    for place, text in files:
        place.write_text(text)
        policy = TracePolicy(device="cpu", allow=task.allow)
        one = task if place == path else trace(text, str(place), policy)
        if isinstance(one, Refusal):
            said.append(f"{place.name} refused: {one.sentence}")
            continue
        for hardware in devices:
            found = asyncio.run(failures(one, hardware, given.drafts))
            said += [f"{place.name} on {hardware.kind}: {words}" for words in found]
    return said


def main() -> None:
    """Draw until the time is over."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("folder", type=Path)
    kinds = [*KINDS, "judged", "operators"]
    words.add_argument("--kind", choices=kinds, default="images")
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--seconds", type=float, default=120.0)
    words.add_argument("--drafts", type=int, default=2)
    words.add_argument("--gradients", action="store_true")
    given = words.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    source, end = random.Random(given.seed), time.monotonic() + given.seconds
    devices, counts = [detect("cpu"), hardware_profile("h200")], Counter[str]()
    for text in texts(source, given.kind):
        if time.monotonic() > end:
            break
        path = given.folder / f"{given.kind}_{given.seed}_{counts['modules']}.py"
        path.write_text(text)
        counts["modules"] += 1
        try:
            said = tried(path, given, devices)
        except Exception as failure:  # which is what is looked for
            said = [f"{type(failure).__name__}: {' '.join(str(failure).split())[:300]}"]
        counts["with something to tell"] += bool(said)
        for line in said:
            print(f"{path.name}: {line}", flush=True)
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()))


if __name__ == "__main__":
    main()
