"""Emitted kernels keep to the candidate contract, are deterministic text, and vectorise."""

import asyncio
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kernelwright.profiles.load import Hardware
from kernelwright.tools.candidates.plan import validate_plan
from kernelwright.tools.codegen.cpp import CppEmitter
from kernelwright.tools.codegen.cpp.strategies import EVERY
from kernelwright.tools.languages import (
    INCLUDE,
    Built,
    compile_candidate,
    new_candidate,
    parse_kernel,
)
from kernelwright.tools.languages.cpp.compile import cpp_compiler, cpp_flags


def softmax(build: Any, rows: int, columns: int) -> Any:
    b = build({"r": rows}, {"c": columns})
    x = b.load("x", r=columns, c=1)
    e = b.op("exp", b.op("sub", x, b.reduce("max", x)))
    b.store("y", b.op("div", e, b.reduce("sum", e)), r=columns, c=1)
    return b.loop("softmax")


def test_every_strategy_is_a_valid_candidate(build: Any, cpu: Hardware):
    emitter = CppEmitter()
    for strategy in emitter.strategies(softmax(build, 4096, 4096), cpu):
        if strategy.rewrite:
            continue
        emitted = emitter.emit(softmax(build, 4096, 4096), strategy, "L0_", cpu)
        body = ["y = empty((4096, 4096))", *emitted.plan, "return y"]
        plan = "\n    ".join(["def forward(x):", *body]) + "\n"
        kernel = emitter.header() + emitted.source
        source = parse_kernel(kernel, "cpp")
        validate_plan(plan, source)
        assert all(tunable.name.startswith("L0_") for tunable in source.tunables)
        assert all(function.name.startswith("l0") for function in source.functions)
        candidate = new_candidate("cpp", kernel, plan)
        built = asyncio.run(compile_candidate(candidate, architecture=None, timeout_s=120))
        assert isinstance(built, Built), built


def test_the_same_loop_prints_the_same_text(build: Any, cpu: Hardware):
    texts = {CppEmitter().emit(softmax(build, 40, 99), EVERY[1], "k", cpu).source for _ in range(3)}
    assert len(texts) == 1


def test_strategies_follow_the_layout(build: Any, cpu: Hardware):
    def first(loop: Any) -> str:
        return CppEmitter().strategies(loop, cpu)[0].name

    across = build({"c": 512}, {"k": 3000})
    across.store("y", across.reduce("max", across.load("x", c=1, k=512)), c=1)
    total = build({}, {"k": 1 << 22})
    total.store("y", total.reduce("sum", total.load("x", k=1)))
    chain = build({"n": 1 << 20}, {})
    chain.store("y", chain.op("tanh", chain.load("x", n=1)), n=1)
    turned = build({"n": 4096}, {"c": 256})
    x = turned.load("x", n=256, c=1)
    turned.store("y", turned.op("sub", x, turned.reduce("max", x)), n=1, c=4096)
    assert first(turned.loop("turned")).startswith("columns")
    best = max(one.efficiency for one in CppEmitter().strategies(turned.loop("turned"), cpu))
    assert best < 0.2, "a form with such rows is no match for one without"
    assert first(softmax(build, 4096, 4096)) == "rows_kept"
    assert first(softmax(build, 2, 1 << 20)).startswith("split")
    assert first(across.loop("across")) in ("columns", "columns_split")
    assert first(total.loop("total")) == "split"
    assert first(chain.loop("chain")) == "flat"


def test_a_strategy_for_another_kind_of_loop_is_refused(build: Any, cpu: Hardware):
    chain = build({"n": 100}, {})
    chain.store("y", chain.op("tanh", chain.load("x", n=1)), n=1)
    for strategy in EVERY[1:]:
        with pytest.raises(ValueError, match="chain"):
            CppEmitter().emit(chain.loop("chain"), strategy, "k", cpu)


@pytest.mark.parametrize(
    "name",
    [
        "rows_kept",
        *(pytest.param(n, marks=pytest.mark.exhaustive) for n in ("rows", "split", "columns")),
    ],
)
def test_softmax_vectorises_throughout(build: Any, cpu: Hardware, tmp_path: Path, name: str):
    (strategy,) = (item for item in EVERY if item.name == name)
    emitted = CppEmitter().emit(softmax(build, 128, 8192), strategy, "k", cpu)
    source = parse_kernel(emitted.source, "cpp")
    macros = [f"-D{tunable.name}={tunable.values[0]}" for tunable in source.tunables]
    (tmp_path / "kernel.cpp").write_text(CppEmitter().header() + emitted.source)
    command = [*cpp_compiler(), *cpp_flags()[0], *macros, f"-I{INCLUDE}", "-S", "-o", "-"]
    command += ["-fopt-info-vec-optimized", "kernel.cpp"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    walks = emitted.source.count("kw::lanes<")
    lines = re.findall(r"kernelwright\.hpp:\d+:\d+: optimized: loop vectorized", done.stderr)
    assert len(lines) >= walks
    assert not re.search(r"call\s+expf?\b", done.stdout)
