"""The loops of the emulator and larger ones on a real device, against float64."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernelwright.profiles.load import Hardware
from kernelwright.tools.candidates import valid_settings
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.ir.rewrites import rewrite
from kernelwright.tools.hardware import detect
from kernelwright.tools.languages import (
    CompileFailure,
    compile_candidate,
    load_candidate,
    new_candidate,
    parse_kernel,
    with_settings,
)

pytestmark = pytest.mark.gpu
EMITTER = CudaEmitter()


def large(toolbox: SimpleNamespace) -> dict[str, Any]:
    """Loops long enough for clusters, relays and waves to fill a device."""
    made = {}
    for rows, columns in ((37, 393216), (5, 1 << 21), (3, 1 << 22)):
        b = toolbox.Build({"n": rows}, {"c": columns})
        x = b.load("x", n=columns, c=1)
        e = b.op("exp", b.op("sub", x, b.reduce("max", x)))
        b.store("y", b.op("div", e, b.reduce("sum", e)), n=columns, c=1)
        made[f"softmax_{columns}"] = b
    b = toolbox.Build({"n": 37}, {"c": 65535})
    x = b.load("x", n=65535, c=1)
    b.store("y", b.op("div", x, b.reduce("sum", b.op("abs", x))), n=65535, c=1)
    made["odd_rows_large"] = b
    b = toolbox.Build({"n": 6, "g": 4}, {"c": 4, "s": 65536})
    steps = {"n": 1 << 20, "g": 1 << 18, "c": 65536, "s": 1}
    x = b.load("x", **steps)
    mean = b.reduce("moments", x)
    variance = b.op("div", f"{mean}_m2", b.const(float(1 << 18)))
    y = b.op("mul", b.op("sub", x, mean), b.op("rsqrt", b.op("add", variance, b.const(1e-5))))
    b.store("y", b.op("fma", y, b.load("w", g=4, c=1), b.load("v", g=4, c=1)), **steps)
    made["group_norm_large"] = b
    b = toolbox.Build({"n": 37, "y": 61, "x": 93})
    steps = {"n": 701 * 1027, "y": 11 * 1027, "x": 11}
    taps = [b.load("x", offset=at * 1027 + k, **steps) for at in range(11) for k in range(11)]
    total = taps[0]
    for tap in taps[1:]:
        total = b.op("add", total, tap)
    b.store("y", total, n=61 * 93, y=93, x=1)
    made["windows_far_apart_large"] = b
    b = toolbox.Build({"n": 7, "c": 67, "s": 30011})
    x = b.load("x", n=67 * 30011, s=67, c=1)
    b.store("y", b.op("mul", b.op("tanh", x), b.load("w", c=1)), n=67 * 30011, c=30011, s=1)
    made["turned_large"] = b
    for positions, channels in ((30011, 68), (30016, 768)):
        b = toolbox.Build({"n": 7, "s": positions}, {"c": channels})
        x = b.load("x", n=channels * positions, s=channels, c=1)
        e = b.op("exp", b.op("sub", x, b.reduce("max", x)))
        y = b.op("div", e, b.reduce("sum", e))
        b.store("y", y, n=channels * positions, c=positions, s=1)
        made[f"turned_rows_{channels}_large"] = b
    b = toolbox.Build({"c": 257}, {"n": 40001})
    b.store("y", b.reduce("sum", b.load("x", n=257, c=1)), c=1)
    made["sum_columns_large"] = b
    b = toolbox.Build({"n": 3}, {"c": 1 << 20})
    b.store("y", b.scan("max", b.load("x", n=1 << 20, c=1)), n=1 << 20, c=1)
    made["running_maximum_large"] = b
    return made


def products(toolbox: SimpleNamespace) -> dict[str, Any]:
    """Products in every type, either factor either way: whole tiles, odd sizes, a single step."""
    made = {}
    for kind in ("float32", "float16", "bfloat16"):
        for m, n, k in ((272, 392, 520), (271, 389, 517), (304, 1544, 40)):
            ways = {
                "plain": ({"m": k, "k": 1}, {"k": n, "n": 1}),
                "turned": ({"m": 1, "k": m}, {"k": 1, "n": k}),
            }
            for way, (left, right) in ways.items():
                b = toolbox.Build({"m": m, "n": n}, {"k": k})
                factors = [b.load("x", kind, **left), b.load("w", kind, **right)]
                if kind != "float32":
                    factors = [b.op("cast", factor, dtype=kind) for factor in factors]
                total = b.reduce("sum", b.op("mul", *factors))
                y = b.op("tanh", b.op("add", total, b.load("bias", kind, n=1)))
                b.store("y", y, kind, m=n, n=1)
                made[f"{kind}_{way}_{m}"] = b
    return made


def convolutions(toolbox: SimpleNamespace) -> dict[str, Any]:
    """Windows in every type, in steps and with gaps, over few and over many channels."""
    return {
        f"{kind}_{step}_{gap}_{channels}": toolbox.convolution(
            toolbox.Build, kind, step, gap, channels
        )
        for kind in ("float32", "float16", "bfloat16")
        for step, gap in ((1, 1), (2, 1), (1, 2))
        for channels in (3, 64, 80)
    }


def candidates(
    build: Any, name: str, hardware: Hardware, buffers: dict[str, torch.Tensor], count: int
) -> list[tuple[str, Any, Any]]:
    """(label, loop, candidate) for every strategy under `count` settings spread over its space."""
    made = []
    for strategy in EMITTER.strategies(build.loop(name), hardware):
        loop = build.loop(name)
        if strategy.rewrite:
            loop = rewrite(loop, strategy.rewrite)
        emitted = EMITTER.emit(loop, strategy, "k", hardware)
        outputs = list(dict.fromkeys(s.access.buffer for s in loop.stores))
        inputs = [n for n in buffers if n not in outputs]
        lines = [f"def forward({', '.join(inputs)}):"]
        for output in outputs:
            dtype = str(buffers[output].dtype).removeprefix("torch.")
            lines.append(f'    {output} = full(({buffers[output].numel()},), -77, dtype="{dtype}")')
        lines += [f"    {line}" for line in emitted.plan]
        lines.append(f"    return ({', '.join(outputs)},)")
        text = EMITTER.header() + emitted.source
        base = new_candidate("cuda", text, "\n".join(lines) + "\n")
        listed = valid_settings(parse_kernel(text, "cuda"))
        step = max(1, len(listed) // count)
        for setting in listed[::step][:count]:
            label = f"{name} {strategy.name} " + " ".join(f"{s.name}={s.value}" for s in setting)
            made.append((label, loop, with_settings(base, setting)))
    return made


async def wrong_ones(toolbox: SimpleNamespace, builds: dict[str, Any], count: int) -> list[str]:
    hardware = detect("cuda")
    wrong = []
    for name, build in builds.items():
        buffers = build.buffers(seed=3, device="cuda")
        wanted = toolbox.truth(build.loop(name), buffers)
        made = candidates(build, name, hardware, buffers, count)
        # Together, as there are hundreds and a compiler uses one core.
        compiled = await asyncio.gather(
            *(
                compile_candidate(candidate, architecture=hardware.architecture, timeout_s=120)
                for _, _, candidate in made
            )
        )
        for (label, loop, candidate), built in zip(made, compiled, strict=True):
            if isinstance(built, CompileFailure):
                wrong.append(f"{label}: {built.message[:300]}")
                continue
            runner = load_candidate(candidate, built, "cuda:0")
            inputs = [buffers[k] for k in buffers if k not in wanted]
            got = dict(zip(wanted, runner(inputs, {}), strict=True))
            torch.cuda.synchronize()
            again = dict(zip(wanted, runner(inputs, {}), strict=True))
            try:
                toolbox.check(got, wanted, loop)
                for key in got:
                    same = torch.equal(got[key].nan_to_num(7), again[key].nan_to_num(7))
                    assert same, "two runs differ"
            except AssertionError as error:
                wrong.append(f"{label}: {error}"[:600])
    return wrong


async def test_small_loops_are_right_under_every_strategy(
    toolbox: SimpleNamespace, builds: dict[str, Any]
):
    wrong = await wrong_ones(toolbox, builds, 2)
    assert not wrong, "\n".join(wrong)


async def test_large_loops_are_right_under_every_strategy(toolbox: SimpleNamespace):
    wrong = await wrong_ones(toolbox, large(toolbox), 4)
    assert not wrong, "\n".join(wrong)


async def test_products_are_right_under_every_strategy(toolbox: SimpleNamespace):
    wrong = await wrong_ones(toolbox, products(toolbox), 6)
    assert not wrong, "\n".join(wrong)


async def test_convolutions_are_right_under_every_strategy(toolbox: SimpleNamespace):
    wrong = await wrong_ones(toolbox, convolutions(toolbox), 6)
    assert not wrong, "\n".join(wrong)
