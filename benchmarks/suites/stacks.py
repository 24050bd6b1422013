"""Searches stacks of equal layers of two depths, region by region, and prints what each took.

    python benchmarks/suites/stacks.py --target cuda --layers 1 12 --seconds 300 --width 1024
        [--out stacks.jsonl]

The same seconds for both: what is to be seen is that as many classes are searched, that the whole
is certified, and how the seconds and the speed-ups of the two compare. `--out` keeps the whole
summary of each, its phases too.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kernelwright.graphs.regions.search import by_regions
from kernelwright.graphs.search.run import start_search
from kernelwright.profiles.load import search_profile
from kernelwright.tools.types import Refusal, TracePolicy

MODEL = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.one, self.two = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        parts = self.qkv(self.one(x)).chunk(3, -1)
        q, k, v = (part.view(b, t, d // 64, 64).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.two(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(*(Block(WIDTH) for _ in range(LAYERS)))
        self.to(torch.DTYPE)

    def forward(self, x):
        return self.blocks(x)


def get_inputs():
    return [torch.randn(BATCH, TOKENS, WIDTH).to(torch.DTYPE)]
"""


async def searched(layers: int, given: argparse.Namespace, home: Path) -> None:
    """One stack, told in a few lines."""
    sizes = {"LAYERS": layers, "WIDTH": given.width, "TOKENS": given.tokens, "BATCH": given.batch}
    text = MODEL.replace("DTYPE", given.dtype)
    for name, size in sizes.items():
        text = text.replace(name, str(size))
    path = home / f"stack{layers}.py"
    path.write_text(text)
    profile = search_profile("standard").limited(seconds=given.seconds)
    summary = await start_search(
        path, TracePolicy(), given.target, profile, home=home, prepare=by_regions("on"), fresh=True
    )
    if isinstance(summary, Refusal):
        print(f"{layers} layers: {summary.sentence}")
        return
    if given.out:
        line = {"layers": layers, "asked": vars(given) | {"out": ""}}
        with given.out.open("a") as out:
            out.write(json.dumps(line | {"summary": summary.model_dump(mode="json")}) + "\n")
    best = summary.best
    ratio = f"{best.speedup_vs_best_baseline:.3f}x the best baseline" if best else "nothing"
    print(f"{layers} layers: {summary.status}, {ratio}, in {summary.seconds:.0f} s")
    for region in summary.regions:
        after = f"{region.after_ms:.4g} ms" if region.after_ms else region.why
        print(
            f"  {region.name} {region.share:.0%} in {region.places} places: "
            f"{region.before_ms:.4g} ms -> {after} ({region.words})"
        )


def main() -> None:
    """Every depth, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--layers", type=int, nargs="+", default=[1, 12])
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kernelwright-stacks-") as folder:
        for layers in given.layers:
            asyncio.run(searched(layers, given, Path(folder)))


if __name__ == "__main__":
    main()
