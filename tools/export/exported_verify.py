"""Verifies and times this export again, on this machine: `python verify.py`.

Every check runs the module and its reference on fresh inputs and compares both with the
reference in float64. Times are taken in pairs, interleaved, and the ratio comes with a bootstrap
interval. On a GPU by two clocks: device time, with each call queued behind a flush of the caches so
that the host is ahead (as Triton's do_bench does), and single calls on an idle device, which hold
the host's time to issue them. Exit status: 0 correct and not slower by either; 1 wrong, or slower
by its interval; 3 the kernels cannot run here. An interval wider than a tenth of its ratio settles
nothing, and says so. What is not covered: the adversarial checks of Kernelwright's own judge.
"""

import argparse
import copy
import dataclasses
import importlib.util
import json
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import nn

FOLDER = Path(__file__).resolve().parent
BOUND = 4.0  # the module's error may be this many times the reference's own
SETTLED_WIDTH = 0.1  # of the ratio: a wider interval settles nothing
ROUNDING = {torch.float64: 2.0**-52, torch.float32: 2.0**-23}
ROUNDING |= {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}


def say(words: str) -> None:
    """One line to the person."""
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


def load_module(name: str) -> ModuleType:
    """A file beside this one as a module."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class Pair:
    """The exported module and its reference with equal weights, on one device."""

    def __init__(self, evidence: dict[str, Any], device: str) -> None:
        self.evidence, self.device = evidence, device
        self.exported = load_module("module")
        self.module, self.reference = self._build(0)
        self.sizes: list[int] | None = None  # of the dimensions; None for the example's
        drawing = (FOLDER / "verify_draws.py").is_file()
        self.draws: Any = load_module("verify_draws") if drawing else None

    def _build(self, seed: int) -> tuple[nn.Module, nn.Module]:
        entry, theirs = self.evidence["task"]["entry"], self.exported.reference
        if self.evidence["task"]["entry_kind"] == "function":
            return self.exported._MODULE, self.exported._Reference()
        target = getattr(theirs, entry)
        if self.evidence["task"]["entry_kind"] == "built":
            module, reference = getattr(self.exported, entry)(), target()
            reference.load_state_dict(module.state_dict())
        elif isinstance(target, nn.Module):
            module, reference = getattr(self.exported, entry), load_module("watch").copied(target)
        else:
            torch.manual_seed(seed)
            arguments = theirs.get_init_inputs() if hasattr(theirs, "get_init_inputs") else []
            torch.manual_seed(seed)
            reference = target(*arguments)
            torch.manual_seed(seed)
            module = getattr(self.exported, entry)(*arguments)
        module.load_state_dict(reference.state_dict())
        training = self.evidence["task"]["training"]
        for made in (module, reference):
            made.to(self.device)
            if made.training != training:  # else parts keep the modes that they were made with
                made.train(training)
        return module, reference

    @property
    def as_turned(self) -> bool:
        """Whether it is held against the reference with channels last as well, which is coarser.

        PyTorch's settings let the library compute convolutions in TF32; it does in that layout.
        """
        found = self.evidence["evaluation"]["verification"]["precision"]
        return found == "tf32" and not self.evidence["apart"] and self.draws is None

    def inputs(self, seed: int, change: Callable[[torch.Tensor], torch.Tensor]) -> list[Any]:
        """Fresh inputs: the file's own under a seed, or drawn as it drew them, then changed."""
        torch.manual_seed(seed)
        task = self.evidence["task"]
        own = getattr(self.exported.reference, "get_inputs", None)
        if self.sizes is not None:
            values = [drawn(spec) for spec in at_sizes(self.evidence, self.sizes)]
        elif own is not None and not task["input_override"] and not packs(self.exported):
            values = list(own())
        else:
            values = [drawn(spec) for spec in task["inputs"]]
        return [
            (change(value) if value.is_floating_point() else value).to(self.device)
            if isinstance(value, torch.Tensor)
            else value
            for value in values
        ]


def at_sizes(evidence: dict[str, Any], sizes: Sequence[int]) -> list[dict[str, Any]]:
    """The inputs' specifications with those sizes of the dimensions that may change."""
    specs = copy.deepcopy(evidence["task"]["inputs"])
    for dimension, size in zip(evidence["shapes"]["dimensions"], sizes, strict=True):
        for number, axis in dimension["places"]:
            specs[number]["tensor"]["shape"][axis] = size
    return list(specs)


def packs(exported: Any) -> bool:
    """Whether the arguments are more than a list of inputs."""
    return hasattr(exported, "as_called")


def run(exported: Any, module: Callable[..., object], inputs: list[Any]) -> object:
    """Call a module with flat inputs as its forward wants them."""
    args, kwargs = exported.as_called(inputs) if packs(exported) else (inputs, {})
    return module(*args, **kwargs)


def answer(
    pair: Pair, module: Callable[..., object], inputs: list[Any], drawing: str = "fixed"
) -> list[torch.Tensor]:
    """A module's results; `drawing` says how it draws what every module draws."""
    if pair.draws is None:
        return flat(run(pair.exported, module, inputs))
    return flat(getattr(pair.draws, drawing)(lambda: run(pair.exported, module, inputs)))


def drawn(spec: dict[str, Any]) -> Any:
    """An input like the one that the task drew."""
    tensor = spec["tensor"]
    if tensor is None:
        return spec["scalar"]
    dtype = getattr(torch, tensor["dtype"])
    if dtype.is_floating_point:
        deviation = spec["standard_deviation"]
        values = torch.randn(tensor["shape"]) * (1.0 if deviation is None else deviation)
        value = (values + (spec["mean"] or 0.0)).to(dtype)
    else:
        low, high = int(spec["minimum"] or 0), int(spec["maximum"] or 1)
        value = torch.randint(low, high + 1, tensor["shape"]).to(dtype)
    if tensor["strides"] is None:
        return value
    strided = torch.empty_strided(tensor["shape"], tensor["strides"], dtype=dtype)
    return strided.copy_(value)


def flat(result: Any) -> list[torch.Tensor]:
    """A forward's results as a list, whatever they are packed in; constants are left out."""
    if isinstance(result, torch.Tensor):
        return [result]
    if result is None or isinstance(result, bool | int | float | str):
        return []
    if dataclasses.is_dataclass(result):
        result = [getattr(result, item.name) for item in dataclasses.fields(result)]
    elif isinstance(result, dict):
        result = list(result.values())
    return [leaf for item in result for leaf in flat(item)]


def doubled(value: Any) -> Any:
    """A floating tensor in float64; anything else as it is."""
    floating = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.double() if floating else value


def in_doubles(module: nn.Module) -> nn.Module:
    """A copy in float64, whatever types it names; `double` leaves complex weights alone."""
    module = load_module("watch").copied(module).double()
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_complex():
            tensor.data = tensor.data.to(torch.complex128)
    forward = module.forward

    def in_float64(*args: object, **kwargs: object) -> object:
        with float64_throughout():
            return forward(*args, **kwargs)

    module.forward = in_float64
    return module


@contextmanager
def float64_throughout() -> Iterator[None]:
    """While inside, types that are named are float64, and so is what is made without one."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with load_module("verify_widened").Widened():
            yield
    finally:
        torch.set_default_dtype(usual)


def error(value: torch.Tensor, truth: torch.Tensor) -> float:
    """The norm-wise relative error; where truth is not finite, values must agree."""
    value, truth = value.double(), truth.double()
    finite = torch.isfinite(truth)
    if not torch.equal(torch.nan_to_num(value[~finite]), torch.nan_to_num(truth[~finite])):
        return float("inf")
    distance = torch.linalg.vector_norm(value[finite] - truth[finite]).item()
    size = torch.linalg.vector_norm(truth[finite]).item()
    return float(distance / size) if size else float(distance)


def turned(value: Any) -> Any:
    """An image or a volume with channels last; anything else as it is."""
    layouts = {4: torch.channels_last, 5: torch.channels_last_3d}
    layout = layouts.get(value.dim()) if isinstance(value, torch.Tensor) else None
    return value if layout is None else value.contiguous(memory_format=layout)


def with_channels_last(module: nn.Module) -> nn.Module:
    """A copy whose weights lie so."""
    module = load_module("watch").copied(module)
    for tensor in (*module.parameters(), *module.buffers()):
        tensor.data = turned(tensor.data)
    return module


def shared_buffers(module: nn.Module, reference: nn.Module) -> list[str]:
    """Names of those that a forward may update; a table that it makes for itself is no result."""
    own = {name for name, _ in module.named_buffers()}
    return [name for name, _ in reference.named_buffers() if name in own]


def state(module: nn.Module, buffers: list[str]) -> list[torch.Tensor]:
    """What these hold now."""
    return [module.get_buffer(name).detach().clone() for name in buffers]


def worst_ratio(pair: Pair, inputs: list[Any]) -> tuple[float, str]:
    """How many times the reference's own error the module's is, and what went wrong if it did."""
    before = pair.exported.COUNTS["kernel"]
    module, reference = pair.module, pair.reference
    module.load_state_dict(reference.state_dict())
    truth_of, buffers = in_doubles(reference), shared_buffers(module, reference)
    first = state(truth_of, buffers)
    kept = [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]
    got = answer(pair, module, inputs) + state(module, buffers)
    if pair.exported.COUNTS["kernel"] == before:
        return float("inf"), f"the kernel did not run ({dict(pair.exported.COUNTS)})"
    for now, then in zip(inputs, kept, strict=True):
        if isinstance(now, torch.Tensor) and not torch.equal(now, then):
            return float("inf"), "an input was written to"
    coarser: list[torch.Tensor] = []
    if pair.as_turned:
        other = with_channels_last(reference)
        coarser = flat(run(pair.exported, other, [*map(turned, inputs)])) + state(other, buffers)
    expected = answer(pair, reference, inputs, "noted") + state(reference, buffers)
    exactly = answer(pair, truth_of, [*map(doubled, inputs)], "widened")
    truth = exactly + state(truth_of, buffers)
    worst, moved = 0.0, list[list[torch.Tensor]]()
    results = zip(got, expected, coarser or expected, truth, strict=True)
    for place, (mine, theirs, coarse, exact) in enumerate(results):
        if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
            return float("inf"), f"{mine.dtype} {tuple(mine.shape)} instead of {theirs.dtype}"
        if not mine.is_floating_point():
            wrong = (mine != theirs) & (mine != exact)
            # Where the largest of values lies that tie is decided by roundings, of which one is
            # counted for a product, however many terms it adds up. Every fourth time a tie flips.
            for seed in range(32):
                if wrong.any():
                    (one,) = roundings(pair, truth_of, (buffers, first), inputs, (seed,), 16.0)
                    wrong &= mine != one[place]
            if wrong.any():
                return float("inf"), f"{int(wrong.sum())} of {wrong.numel()} integers differ"
            continue
        least = ROUNDING[mine.dtype] / 2
        allowed = max(error(theirs, exact), error(coarse, exact), least)
        ratio = max(error(mine, exact), least) / allowed
        if ratio > BOUND:
            # PyTorch's own error may be next to nothing by chance, as of a sum that cancels.
            moved = moved or roundings(pair, truth_of, (buffers, first), inputs, (1, 2))
            allowed = max(allowed, *(error(one[place], exact) for one in moved))
            ratio = max(error(mine, exact), least) / allowed
        worst = max(worst, ratio)
    return worst, "" if worst <= BOUND else "its error is too large"


def roundings(
    pair: Pair,
    truth_of: nn.Module,
    before: tuple[list[str], list[torch.Tensor]],
    inputs: list[Any],
    seeds: Iterable[int],
    steps: float = 1.0,
) -> list[list[torch.Tensor]]:
    """The truth again, with every operator's result off by its rounding, as the judge does."""
    rounded, found = load_module("verify_roundings"), []
    table = rounded.plain_table()
    wide = any(isinstance(x, torch.Tensor) and x.dtype == torch.float64 for x in inputs)
    unit = steps * torch.finfo(torch.float64 if wide else torch.float32).eps / 2
    for seed in seeds:
        for name, value in zip(*before, strict=True):
            truth_of.get_buffer(name).copy_(value)
        with torch.no_grad(), rounded.Rounded(seed, unit, table):
            outputs = answer(pair, truth_of, [*map(doubled, inputs)], "widened")
        found.append([*outputs, *state(truth_of, before[0])])
    return found


def right(name: str, ratio: float, wrong: str) -> bool:
    """Say how large an error is beside the reference's own; whether nothing is wrong."""
    say(f"  {name} error {ratio:.2f} times the reference's{f'  WRONG: {wrong}' if wrong else ''}")
    return not wrong


def in_short(problem: Exception) -> str:
    """Its first line; what kind it is where it has no words."""
    return (str(problem) or repr(problem)).splitlines()[0][:100]


def verify(pair: Pair) -> bool:
    """Compare on several kinds of inputs; says each, and whether all were right."""
    kinds: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "own inputs": lambda x: x,
        "own inputs, another seed": lambda x: x,
        "a hundredth of them": lambda x: x * 0.01,
        "ten times them": lambda x: x * 10,
    }
    fine = True
    if pair.device == "cpu":
        # PyTorch's first call of a function there can be less exact than all others (issue 188792).
        worst_ratio(pair, pair.inputs(0, lambda x: x))
    for seed, (name, change) in enumerate(kinds.items(), start=1):
        fine = right(f"{name:<26}", *worst_ratio(pair, pair.inputs(seed, change))) and fine
    return fine


def verify_sizes(pair: Pair) -> bool:
    """Compare at every other size that was verified; says each, and whether all were right."""
    shapes, fine = pair.evidence["shapes"], True
    for check in shapes["checks"] if shapes else ():
        pair.sizes = check["sizes"]
        named = zip(shapes["dimensions"], pair.sizes, strict=True)
        name = ", ".join(f"{dimension['name']}={size}" for dimension, size in named)
        found = worst_ratio(pair, pair.inputs(1, lambda x: x))
        fine = right(f"{name:<26}", *found) and fine
    pair.sizes = None
    return fine


@cache
def clocks_file() -> ModuleType:
    """How times are taken, beside this file."""
    return load_module("verify_clocks")


def time_all(pair: Pair, seconds: float, compiled: bool) -> bool:
    """Time against eager and torch.compile; whether the module is nowhere slower."""
    timing, inputs = clocks_file(), pair.inputs(1, lambda x: x)
    gpu = pair.device.startswith("cuda")
    clocks = {"device time": timing.Clock(pair.device, queued=True)} if gpu else {}
    clocks["single calls" if gpu else "time"] = timing.Clock(pair.device, queued=False)
    rivals: dict[str, Callable[..., object]] = {"eager": pair.reference}
    if compiled:
        rivals["torch.compile"] = torch.compile(load_module("watch").copied(pair.reference))
    fine = True
    for name, rival in rivals.items():
        try:
            run(pair.exported, rival, inputs)
        except Exception as problem:  # that a module cannot be compiled is a fact about it
            say(f"  {name:<14} could not run: {in_short(problem)}")
            continue
        calls = [lambda of=of: run(pair.exported, of, inputs) for of in (pair.module, rival)]
        for what, clock in clocks.items():
            clock.late = 0
            ratios = timing.compare(calls[0], calls[1], clock, seconds / len(clocks))
            fine = judged(f"{name}, {what}", ratios) and fine
            if clock.late:
                say(f"    in {clock.late} samples the device waited for the host all the same")
    return fine


def judged(name: str, ratios: Sequence[float]) -> bool:
    """Say what the pairs show; whether the module is not slower by them."""
    low, high = clocks_file().interval(ratios)
    middle = statistics.median(ratios)
    word = "faster" if low > 1 else "SLOWER" if high < 1 else "not distinguishable"
    if high >= 1 and high - low > SETTLED_WIDTH * middle:
        word = "not settled: the interval is too wide, measure again"
    say(f"  against {name:<28} {middle:.3f}x, 95 % interval {low:.3f} to {high:.3f}: {word}")
    return bool(high >= 1)


def main() -> int:
    """Verify, time, and say so."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="of timing for each baseline")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--no-timing", action="store_true", help="verify only")
    parser.add_argument("--steps", action="store_true", help="gradients and training steps only")
    parser.add_argument("--choose", action="store_true", help="write the fastest step's GRADIENTS")
    chosen = parser.parse_args()
    evidence = json.loads((FOLDER / "evidence.json").read_text(encoding="utf-8"))
    device = evidence["hardware"]["kind"]
    if device == "cuda" and not torch.cuda.is_available():
        say("this export needs an NVIDIA GPU, and torch sees none")
        return 3
    with torch.no_grad():
        pair = Pair(evidence, device)
        index = -1 if device == "cpu" else torch.cuda.current_device()
        if pair.exported.kernels_for(index) is None:
            return 3  # the module has said why
        say("Correctness, against the reference in float64:")
        if not chosen.steps and not (verify(pair) and verify_sizes(pair)):
            return 1
        known = SimpleNamespace(**(vars(clocks_file()) | globals()))
        fine = load_module("verify_gradients").examine(known, pair, chosen)
        if not chosen.no_timing and not chosen.steps:
            say("Time, as the reference's over the module's:")
            fine = time_all(pair, chosen.seconds, not chosen.no_compile) and fine
        return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
