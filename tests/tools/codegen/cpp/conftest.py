"""Evaluates loops two ways: by PyTorch in float64 over the whole grid, and by emitted kernels.

Buffers are flat tensors, as a kernel sees them. Kernels of one test are compiled together, since
most of a compile is the headers.
"""

import ctypes
import itertools
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.candidates import valid_settings
from kernelwright.tools.codegen.cpp import CppEmitter
from kernelwright.tools.codegen.cpp.strategies import EVERY
from kernelwright.tools.codegen.ir import (
    Access,
    Axis,
    Emitted,
    Loop,
    ReduceKind,
    Stmt,
    Store,
    Strategy,
    Stride,
    results,
)
from kernelwright.tools.codegen.ir.rewrites import rewrite
from kernelwright.tools.languages import INCLUDE, parse_kernel
from kernelwright.tools.languages.cpp.compile import (
    PRELUDE,
    cpp_compiler,
    cpp_flags,
    cpp_identity,
    openmp_library,
)
from kernelwright.tools.types import DType

Buffers = dict[str, torch.Tensor]


class Case:
    """A loop with data, and what it must compute."""

    def __init__(self, loop: Loop, buffers: Buffers) -> None:
        self.loop, self.buffers = loop, buffers
        self.outputs = tuple(dict.fromkeys(store.access.buffer for store in loop.stores))
        self.truth = evaluate(loop, buffers)


class Kernel:
    """One emitted kernel under one setting, with the loop it came from."""

    def __init__(self, case: Case, strategy: Strategy, emitted: Emitted, settings: dict[str, int]):
        self.case, self.strategy, self.emitted, self.settings = case, strategy, emitted, settings

    def __repr__(self) -> str:
        return f"{self.case.loop.name}/{self.strategy.name}/{self.settings}"


def evaluate(loop: Loop, buffers: Buffers) -> Buffers:
    """What the loop's stores write, computed in float64 over the full grid."""
    axes = (*loop.outer, *loop.inner)
    shape = tuple(axis.size for axis in axes)
    rank, kept = len(axes), len(loop.outer)
    at = {
        axis.name: torch.arange(axis.size).reshape([-1 if k == i else 1 for k in range(rank)])
        for i, axis in enumerate(axes)
    }
    values: dict[str, torch.Tensor] = {}

    def place(access: Any) -> torch.Tensor:
        total = torch.full([1] * rank, access.offset)
        for stride in access.strides:
            by = at[stride.by] if stride.by in at else values[stride.by]
            total = total + stride.step * by
        return total

    for stmt in loop.body:
        if stmt.op == "load":
            inside = values[stmt.args[0]].bool() if stmt.args else torch.ones((), dtype=torch.bool)
            flat = buffers[stmt.access.buffer][torch.where(inside, place(stmt.access), 0)]
            flat = flat.double() if flat.is_floating_point() else _whole(flat)
            values[stmt.name] = torch.where(inside, flat, 0)
        elif stmt.op == "const":
            values[stmt.name] = torch.tensor(stmt.value).reshape([1] * rank)
        elif stmt.op == "index":
            values[stmt.name] = at[stmt.args[0]]
        elif stmt.op in ("reduce", "scan"):
            full = values[stmt.args[0]].expand(shape).reshape(*shape[:kept], -1)
            if stmt.op == "scan":
                values[stmt.name] = _scanned(stmt, full).reshape(shape)
            else:
                for name, value in zip(results(stmt), _reduced(stmt, full), strict=True):
                    values[name] = value.reshape(*shape[:kept], *([1] * (rank - kept)))
        else:
            values[stmt.name] = _pointwise(stmt, [values[arg] for arg in stmt.args])
    written = {}
    for store in loop.stores:
        target = written.setdefault(
            store.access.buffer, buffers[store.access.buffer].double().clone()
        )
        where, value = torch.broadcast_tensors(place(store.access), values[store.value].double())
        target[where.reshape(-1)] = value.reshape(-1)
    return written


def _whole(flat: torch.Tensor) -> torch.Tensor:
    return flat if flat.dtype is torch.bool else flat.long()


def _scanned(stmt: Stmt, full: torch.Tensor) -> torch.Tensor:
    if stmt.scan in ("sum", "prod"):
        return getattr(torch, f"cum{stmt.scan}")(full, -1)
    return getattr(torch, f"cum{stmt.scan}")(full, -1).values


def _reduced(stmt: Stmt, full: torch.Tensor) -> tuple[torch.Tensor, ...]:
    kind = stmt.reduce.value
    if kind in ("max", "min"):
        return (getattr(torch, f"a{kind}")(full, -1),)
    if kind in ("argmax", "argmin"):
        return (getattr(torch, kind)(full, -1),)
    if kind == "moments":
        mean = full.mean(-1, keepdim=True)
        return mean, (full - mean).square().sum(-1)
    if kind == "softmax":
        most = full.amax(-1, keepdim=True)
        return most, (full - most).exp().sum(-1)
    if kind in ("any", "all"):
        return (getattr(torch, kind)(full.bool(), -1),)
    return (getattr(torch, kind)(full, -1),)


def _pointwise(stmt: Stmt, args: list[torch.Tensor]) -> torch.Tensor:
    op = stmt.op
    dtype = {"bool": torch.bool, "int64": torch.long}.get(stmt.dtype.value, torch.double)
    if op == "cast":
        rounded = args[0].to(getattr(torch, stmt.dtype.value))
        return rounded.to(dtype) if dtype is not torch.bool else rounded
    if op == "where":
        return torch.where(args[0].bool(), args[1].to(dtype), args[2].to(dtype))
    if op == "fma":
        return args[0] * args[1] + args[2]
    if op in ("floordiv", "truncdiv"):
        return torch.div(*args, rounding_mode={"floordiv": "floor", "truncdiv": "trunc"}[op])
    if op in ("shift_left", "shift_right"):
        return getattr(torch, f"bitwise_{'left' if op == 'shift_left' else 'right'}_shift")(*args)
    if op == "neg" or op == "sub":
        return getattr(torch, op)(*(arg.to(dtype) for arg in args))
    if op in ("eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf") or op.startswith("logical"):
        return getattr(torch, op)(*args)
    return getattr(torch, op)(*(arg.to(dtype) for arg in args))


def compile_kernels(
    kernels: Sequence[Kernel],
    precompiled: Callable[[Sequence[str], Path], Path],
    built_once: Callable[..., Path],
) -> ctypes.CDLL:
    """One shared object with every kernel, built with the flags candidates are built with."""
    parts = ['#include "kernelwright.hpp"\n']
    for kernel in kernels:
        parts += [f"#define {name} {value}\n" for name, value in kernel.settings.items()]
        parts.append(kernel.emitted.source)
    code, link = cpp_flags()

    def made(folder: Path) -> None:
        (folder / "kernels.cpp").write_text("".join(parts))
        command = [*cpp_compiler(), *code]
        command += [f"-I{precompiled(command, PRELUDE)}", f"-I{INCLUDE}", "kernels.cpp", *link]
        command += ["-o", "kernels.so", *openmp_library(), "-lm"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[:4000]

    return ctypes.CDLL(str(built_once(made, *parts, cpp_identity()) / "kernels.so"))


def call(library: ctypes.CDLL, kernel: Kernel) -> Buffers:
    """Carries out a kernel's plan lines on fresh outputs; gives these back."""
    live = {
        name: buffer.clone() if name in kernel.case.outputs else buffer
        for name, buffer in kernel.case.buffers.items()
    }
    for line in kernel.emitted.plan:
        made = re.fullmatch(r'(\w+) = empty\(\((\d+),\), dtype="(\w+)"\)', line)
        if made:
            dtype = getattr(torch, made[3])
            live[made[1]] = torch.full((int(made[2]),), 99).to(dtype)
            continue
        launched = re.fullmatch(r'launch\("(\w+)", args=\((.*?),?\)\)', line)
        assert launched, line
        pointers = [ctypes.c_void_p(live[name].data_ptr()) for name in launched[2].split(", ")]
        getattr(library, launched[1])(*pointers)
    return {name: live[name] for name in kernel.case.outputs}


@pytest.fixture(scope="session")
def cpu() -> Hardware:
    """A small CPU, whatever this machine is."""
    return hardware_profile("cpu")


@pytest.fixture
def everything(cpu: Hardware) -> Any:
    """Every strategy that can print some cases, each under some of its settings.

    Also those that would not be proposed at a case's size: tests are small.
    """

    def listed(cases: Sequence[Case], settings: int = 1) -> list[Kernel]:
        emitter, kernels, count = CppEmitter(), [], itertools.count()
        for case in cases:
            for strategy in dict.fromkeys((*emitter.strategies(case.loop, cpu), *EVERY)):
                loop = rewrite(case.loop, strategy.rewrite) if strategy.rewrite else case.loop
                try:
                    probe = emitter.emit(loop, strategy, "probe", cpu)
                except ValueError:
                    continue
                tried = valid_settings(parse_kernel(probe.source, "cpp"))
                for _ in range(min(settings, len(tried))):
                    number = next(count)
                    # A stride that shares no factor with the numbers of values visits them all.
                    setting, prefix = tried[number * 7 % len(tried)], f"k{number}"
                    named = {s.name.replace("PROBE", prefix.upper()): s.value for s in setting}
                    emitted = emitter.emit(loop, strategy, prefix, cpu)
                    kernels.append(Kernel(case, strategy, emitted, named))
        return kernels

    return listed


@pytest.fixture
def check(
    precompiled: Callable[[Sequence[str], Path], Path], built_once: Callable[..., Path]
) -> Any:
    """Compiles kernels together, runs each twice, and compares it with the truth."""

    def checked(kernels: Sequence[Kernel], tolerance: float = 2e-6, *, each: bool = False) -> None:
        library = compile_kernels(kernels, precompiled, built_once)
        for kernel in kernels:
            got, again = call(library, kernel), call(library, kernel)
            for name, want in kernel.case.truth.items():
                assert_close(kernel, name, got[name], want, tolerance, each=each)
                assert torch.equal(got[name].view(torch.uint8), again[name].view(torch.uint8))

    return checked


def assert_close(
    kernel: Kernel,
    name: str,
    got: torch.Tensor,
    want: torch.Tensor,
    tolerance: float,
    *,
    each: bool,
) -> None:
    """Within a tolerance of the truth, relative to each element or to the largest."""
    resolution = {torch.float16: 1e-3, torch.bfloat16: 8e-3}.get(got.dtype, tolerance)
    want = want.to(got.dtype).double() if each else want
    got = got.double()
    assert torch.equal(got.isnan(), want.isnan()), f"{kernel}: {name} has NaN elsewhere"
    infinite = want.isinf()
    assert torch.equal(got[infinite], want[infinite]), f"{kernel}: {name} has other infinities"
    off, size = (got - want)[want.isfinite()].abs(), want[want.isfinite()].abs()
    if not len(off):
        return
    scale = size + 1e-30 if each else size.max().clamp_min(1e-6)
    error = (off / scale).max().item()
    assert error <= resolution, f"{kernel}: {name} is off by {error:.3g}"


@pytest.fixture
def case() -> Any:
    """Makes a case; outputs are filled with NaN (or 77) first, so that gaps show."""

    def made(loop: Loop, inputs: Mapping[str, torch.Tensor], **outputs: tuple[int, Any]) -> Case:
        buffers = {name: value.reshape(-1).contiguous() for name, value in inputs.items()}
        for name, (size, dtype) in outputs.items():
            fill = float("nan") if dtype.is_floating_point else (dtype is not torch.bool) * 77
            buffers[name] = torch.full((size,), fill, dtype=dtype)
        return Case(loop, buffers)

    return made


@pytest.fixture
def axes() -> Any:
    """Axes by name and size: axes(a=3, b=5)."""

    def made(**sizes: int) -> tuple[Axis, ...]:
        return tuple(Axis(name=name, size=size) for name, size in sizes.items())

    return made


class Builder:
    """Writes a loop statement by statement; strides are given by axis name."""

    def __init__(self, outer: Mapping[str, int], inner: Mapping[str, int]) -> None:
        self.outer = tuple(Axis(name=n, size=s) for n, s in outer.items())
        self.inner = tuple(Axis(name=n, size=s) for n, s in inner.items())
        self.body: list[Stmt] = []
        self.stores: list[Store] = []

    def _add(self, **fields: Any) -> str:
        name = f"t{len(self.body)}"
        self.body.append(Stmt(name=name, **fields))
        return name

    def load(
        self, buffer: str, dtype: str = "float32", offset: int = 0, when: str = "", **steps: int
    ) -> str:
        computed = DType.FLOAT32 if dtype in ("float16", "bfloat16") else DType(dtype)
        access = self._access(buffer, dtype, offset, steps)
        return self._add(op="load", dtype=computed, access=access, args=(when,) if when else ())

    def const(self, value: Any, dtype: str = "float32") -> str:
        return self._add(op="const", dtype=DType(dtype), value=value)

    def index(self, axis: str) -> str:
        return self._add(op="index", dtype=DType.INT64, args=(axis,))

    def op(self, op: str, *args: str, dtype: str = "float32") -> str:
        return self._add(op=op, dtype=DType(dtype), args=args)

    def reduce(self, kind: str, arg: str, dtype: str = "float32") -> str:
        return self._add(op="reduce", dtype=DType(dtype), args=(arg,), reduce=ReduceKind(kind))

    def scan(self, kind: Any, arg: str, dtype: str = "float32") -> str:
        return self._add(op="scan", dtype=DType(dtype), args=(arg,), scan=kind)

    def store(
        self, buffer: str, value: str, dtype: str = "float32", offset: int = 0, **steps: int
    ) -> None:
        access = self._access(buffer, dtype, offset, steps)
        self.stores.append(Store(access=access, value=value))

    def loop(self, name: str) -> Loop:
        return Loop(
            name=name,
            outer=self.outer,
            inner=self.inner,
            body=tuple(self.body),
            stores=tuple(self.stores),
        )

    def _access(self, buffer: str, dtype: str, offset: int, steps: Mapping[str, int]) -> Access:
        strides = tuple(Stride(by=by, step=step) for by, step in steps.items())
        return Access(buffer=buffer, dtype=DType(dtype), offset=offset, strides=strides)


@pytest.fixture
def build() -> type[Builder]:
    """Builder of loops."""
    return Builder
