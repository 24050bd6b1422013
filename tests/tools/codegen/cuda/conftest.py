"""Loops to try, what they must compute in float64, and kernels that run on the host.

`emulator/` plays the device, so that a kernel's barriers, indices and exchanges are tested where
there is none. The kernels of a session are compiled together: most of a compile is the headers.
"""

from __future__ import annotations

import ctypes
import importlib.util
import random
import re
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.candidates import valid_settings
from kernelwright.tools.codegen.cuda import CudaEmitter
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
)
from kernelwright.tools.codegen.ir.rewrites import rewrite
from kernelwright.tools.languages import INCLUDE, parse_kernel
from kernelwright.tools.languages.cpp.compile import cpp_identity
from kernelwright.tools.languages.cuda.inspection import disassemble
from kernelwright.tools.types import DType, Setting

HERE = Path(__file__).parent


def _beside(name: str) -> ModuleType:
    """A module of `emulator/`, which is no package."""
    spec = importlib.util.spec_from_file_location(name, HERE / "emulator" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


truth, check = (getattr(_beside("truth"), name) for name in ("truth", "check"))
Buffers = dict[str, torch.Tensor]
Emulated = _beside("launching").Emulated
_COMPUTED = {"float64": "float64", "float32": "float32", "bool": "bool"}


class Build:
    """Writes a loop statement by statement; strides are keywords by axis (or statement) name."""

    def __init__(self, outer: Mapping[str, int], inner: Mapping[str, int] | None = None) -> None:
        self.sizes = {**outer, **(inner or {})}
        self.outer = tuple(Axis(name=n, size=s) for n, s in outer.items())
        self.inner = tuple(Axis(name=n, size=s) for n, s in (inner or {}).items())
        self.body: list[Stmt] = []
        self.stores: list[Store] = []
        self.highs: dict[str, int] = {}
        self.sums = DType.FLOAT32
        self.fills: dict[str, Callable[[torch.Tensor], None]] = {}
        self._truths: dict[tuple[Loop, int], Buffers] = {}

    def _add(self, op: str, dtype: str, **more: object) -> str:
        name = f"s{len(self.body)}"
        self.body.append(
            Stmt.model_validate({"name": name, "op": op, "dtype": DType(dtype), **more})
        )
        return name

    def _access(self, buffer: str, dtype: str, offset: int, steps: Mapping[str, int]) -> Access:
        strides = tuple(Stride(by=by, step=step) for by, step in steps.items())
        return Access(buffer=buffer, dtype=DType(dtype), offset=offset, strides=strides)

    def load(
        self, buffer: str, dtype: str = "float32", offset: int = 0, when: str = "", **steps: int
    ) -> str:
        kind = DType(dtype)
        wanted = "float32" if kind.is_floating else "int64"
        access = self._access(buffer, dtype, offset, steps)
        args = (when,) if when else ()
        return self._add("load", _COMPUTED.get(dtype, wanted), access=access, args=args)

    def const(self, value: float | int | bool, dtype: str = "float32") -> str:
        return self._add("const", dtype, value=value)

    def index(self, axis: str) -> str:
        return self._add("index", "int64", args=(axis,))

    def op(self, op: str, *args: str, dtype: str = "float32") -> str:
        return self._add(op, dtype, args=args)

    def reduce(self, kind: str, arg: str, dtype: str = "float32") -> str:
        return self._add("reduce", dtype, args=(arg,), reduce=ReduceKind(kind))

    def scan(self, kind: str, arg: str, dtype: str = "float32") -> str:
        return self._add("scan", dtype, args=(arg,), scan=kind)

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
            sums=self.sums,
        )

    def buffers(self, seed: int = 0, device: str = "cpu") -> Buffers:
        """Random contents of every buffer; outputs are poisoned."""
        torch.manual_seed(seed)
        reads = [s.access for s in self.body if s.access is not None]
        sizes: dict[str, tuple[Access, int]] = {}
        for access in (*reads, *(s.access for s in self.stores)):
            size = 1 + max(access.offset, self._last(access))
            first, most = sizes.get(access.buffer, (access, 0))
            sizes[access.buffer] = (first, max(most, size))
        made: Buffers = {name: self._filled(access, size) for name, (access, size) in sizes.items()}
        for name, fill in self.fills.items():
            fill(made[name])
        for store in self.stores:
            poison = -77 if not store.access.dtype.is_floating else float("nan")
            made[store.access.buffer].fill_(poison)
        return {name: tensor.to(device) for name, tensor in made.items()}

    def truth(self, loop: Loop, seed: int) -> Buffers:
        """What the loop, rewritten or not, must write; computed once for all of its variants."""
        if (loop, seed) not in self._truths:
            self._truths[loop, seed] = truth(loop, self.buffers(seed))
        return self._truths[loop, seed]

    def _last(self, access: Access) -> int:
        reach = {**self.sizes, **self.highs}
        steps = [(reach[s.by] - 1) * s.step for s in access.strides if s.step > 0]
        return access.offset + sum(steps)

    def _filled(self, access: Access, size: int) -> torch.Tensor:
        dtype = getattr(torch, access.dtype.value)
        if access.dtype is DType.BOOL:
            return torch.rand(size) < 0.5
        if not access.dtype.is_floating:
            return torch.randint(0, self.highs.get(access.buffer, 7), (size,)).to(dtype)
        return torch.randn(size, dtype=torch.float64).to(dtype)


@dataclass
class Variant:
    """A loop under one strategy and one setting of its tunables."""

    label: str
    build: Build
    loop: Loop
    strategy: Strategy
    emitted: Emitted
    settings: dict[str, int]
    library: list[Path] = field(default_factory=list)

    def run(self, seed: int = 0) -> tuple[Buffers, Buffers]:
        """(what the kernels wrote, what they should have written)."""
        buffers, wanted = self.build.buffers(seed), self.build.truth(self.loop, seed)
        namespace = Emulated(ctypes.CDLL(str(self.library[0])), buffers, self.settings).names()
        exec("\n".join(self.emitted.plan), namespace)
        return {name: buffers[name] for name in wanted}, wanted


def make_variants(
    builds: Mapping[str, Build],
    hardware: Hardware,
    *,
    settings: int,
    most_threads: int = 128,
    names: Collection[str] = (),
    start: int = 0,
) -> list[Variant]:
    """Every strategy of every loop under a few settings, the default first where it is small.

    Args:
        builds: The loops by name.
        hardware: Whose limits hold.
        settings: Tried of each strategy.
        most_threads: A block's, so that emulation stays quick.
        names: Only these strategies; none names all.
        start: The number of the first kernel, where variants of several calls share a library.
    """
    emitter = CudaEmitter()
    variants = []
    for name, build in builds.items():
        for strategy in emitter.strategies(build.loop(name), hardware):
            if names and strategy.name not in names:
                continue
            loop = build.loop(name)
            if strategy.rewrite:
                loop = rewrite(loop, strategy.rewrite)
            listed = valid_settings(
                parse_kernel(
                    emitter.header() + emitter.emit(loop, strategy, "k", hardware).source,
                    "cuda",
                )
            )
            for chosen in _chosen(listed, f"{name}{strategy.name}", settings, most_threads):
                prefix = f"k{start + len(variants)}_"
                emitted = emitter.emit(loop, strategy, prefix, hardware)
                values = {key.replace("K_", prefix.upper(), 1): v for key, v in chosen.items()}
                label = f"{name}-{strategy.name}-" + "-".join(
                    f"{key.removeprefix('K_')}{value}" for key, value in chosen.items()
                )
                variants.append(Variant(label, build, loop, strategy, emitted, values))
    return variants


def _chosen(listed: list[tuple], seed: str, count: int, most_threads: int) -> list[dict[str, int]]:
    every = [{one.name: one.value for one in setting} for setting in listed]

    def threads(values: dict[str, int]) -> int:
        warps = values.get("K_WARPS", 4)
        side = values["K_TX"] * values["K_TY"] if "K_TX" in values else 32 * warps
        return values.get("K_THREADS", side)

    least = min(threads(values) for values in every)
    small = [values for values in every if threads(values) <= max(most_threads, least)]
    rest = small[1:]
    return [small[0], *random.Random(seed).sample(rest, min(len(rest), count - 1))]


_KERNEL = re.compile(r'extern "C" __global__ void __launch_bounds__\(.*\)\s*(\w+)\(([^)]*)\) \{')


# Half types are converted by an instruction where the processor has one, which is most of what
# products cost without; multiplications and additions stay the two roundings that they are.
_FLAGS = (
    "-std=c++20 -O1 -march=native -ffp-contract=off -shared -fPIC -w -pthread "
    # Libraries must not share their thread-local "shared memory" with each other.
    "-fno-strict-aliasing -fvisibility=hidden"
)
_COMMAND = ["g++", *_FLAGS.split()]
_FOLDERS = ["-I", str(HERE / "emulator"), "-I", str(INCLUDE)]
_EVERYTHING = HERE / "emulator" / "everything.hpp"
Precompiled = Callable[[Sequence[str], Path], Path]
BuiltOnce = Callable[..., Path]


def compile_emulated(
    variants: list[Variant], *, precompiled: Precompiled, built_once: BuiltOnce, shard: int = 32
) -> None:
    """Compile the variants into libraries, a few at a time."""
    shards = [variants[i : i + shard] for i in range(0, len(variants), shard)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda one: _compile(one, precompiled, built_once), shards))


def _compile(variants: list[Variant], precompiled: Precompiled, built_once: BuiltOnce) -> None:
    text = "\n".join(_text(variants))

    def made(folder: Path) -> None:
        headers = precompiled([*_COMMAND, *_FOLDERS], _EVERYTHING)
        (folder / "kernels.cpp").write_text(text)
        command = [*_COMMAND, "-I", str(headers), *_FOLDERS, "-include", _EVERYTHING.name]
        command += ["kernels.cpp", "-o", "kernels.so"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:6000]

    library = built_once(made, text, *_COMMAND, cpp_identity(), _headers()) / "kernels.so"
    for variant in variants:
        variant.library.append(library)


@cache
def _headers() -> str:
    files = (*(HERE / "emulator").iterdir(), *INCLUDE.iterdir())
    return "\n".join(path.read_text() for path in sorted(files) if path.is_file())


def _text(variants: list[Variant]) -> list[str]:
    parts = []
    for variant in variants:
        parts += [f"#define {name} {value}" for name, value in variant.settings.items()]
        parts.append(variant.emitted.source)
        for name, parameters in _KERNEL.findall(variant.emitted.source):
            types = [p.rsplit(" ", 1)[0].replace("__restrict__", "") for p in parameters.split(",")]
            args = ", ".join(
                f"*(const kw::TensorMap*)a[{i}]" if "TensorMap" in kind else f"({kind})a[{i}]"
                for i, kind in enumerate(types)
            )
            parts.append(
                f'extern "C" __attribute__((visibility("default"))) void run_{name}(unsigned grid, '
                f"unsigned block, unsigned cluster, unsigned shared, void** a) "
                f"{{ emulator::launch(grid, block, cluster, shared, [=] {{ {name}({args}); }}); }}"
            )
    return parts


# A trap, and a memory descriptor in an odd uniform register: ptxas 13.0 writes one where it joins a
# uniform address and a cache policy, and a device stops there.
_NEVER_RUNS = re.compile(r"\bBPT\.TRAP\b|[A-Z][A-Z.0-9]+ [^;]*desc\[UR\d*[13579]\][^;]*")


async def never_runs(cubin: Path) -> list[str]:
    """The instructions of a compiled candidate that no device goes beyond."""
    return _NEVER_RUNS.findall(await disassemble(cubin))


@dataclass
class Playable:
    """A candidate's kernels as the emulator takes them, for a module of that name."""

    name: str
    plan: str
    emitted: Any
    settings: dict[str, int]
    library: list[Path] = field(default_factory=list)


def renamed(name: str, draft: Any, settings: Sequence[Setting], own: str) -> Playable:
    """A draft whose loops have names of their own, as many are compiled into one library."""
    kernel, plan = (re.sub(r"\b([A-Z]?L\d+_)", rf"{own}\1", t) for t in (draft.kernel, draft.plan))
    emitted = SimpleNamespace(source=kernel.replace('#include "kernelwright.cuh"\n', ""))
    values = {f"{own}{one.name}": int(one.value) for one in settings}
    return Playable(name, plan, emitted, values)


def play(
    one: Playable, model: torch.nn.Module, x: torch.Tensor
) -> tuple[Any, dict[str, torch.Tensor]]:
    """What the plan returns with the model's weights, and what it makes of its buffers."""
    updates: dict[str, torch.Tensor] = {}
    words = Emulated(ctypes.CDLL(str(one.library[0])), {}, one.settings).names()
    words["weights"] = {name: value.detach().clone() for name, value in model.state_dict().items()}
    words["update"] = lambda name, value: updates.update({name: value})
    exec(one.plan, words)
    if "prepare" in words:
        words["prepared"] = words["prepare"](words["weights"])
    return words["forward"](x), updates


@pytest.fixture(scope="session")
def toolbox(precompiled: Precompiled, built_once: BuiltOnce) -> SimpleNamespace:
    """What the tests of this folder share."""
    return SimpleNamespace(
        Build=Build,
        convolution=_beside("convolutions").convolution,
        truth=truth,
        check=check,
        make_variants=make_variants,
        compile_emulated=partial(compile_emulated, precompiled=precompiled, built_once=built_once),
        Emulated=Emulated,
        renamed=renamed,
        play=play,
        never_runs=never_runs,
    )


@pytest.fixture(scope="session")
def small_device() -> Hardware:
    """A device with four multiprocessors, so that few blocks already fill it."""
    return hardware_profile("H200").model_copy(update={"sm_count": 4, "cache_mib": 1.0})


@pytest.fixture(scope="session")
def builds() -> dict[str, Build]:
    """The loops of `emulator/cases.py` by name."""
    found: dict[str, Build] = _beside("cases").cases(Build)
    return found
