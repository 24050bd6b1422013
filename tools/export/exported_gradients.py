"""Verifies and times the gradients of this export; `verify.py` calls it.

Where the export can run its kernels under autograd, gradients by every way that module.py offers,
and what a step leaves in buffers, are compared with those of the reference in float64, by the same
bound as results. Where the export
has kernels both ways, or with `--steps`, a whole training step (forward, backward, AdamW as PyTorch
has it for the device) is then timed in turns with that of the reference in eager mode: each way in
few pairs as a first look, kernels both ways and what may be the fastest in as many as other times
have. The fastest that is certainly faster, and kernels both ways, are timed in turns
with torch.compile's as well. Times are no part of the exit status. `--choose` writes that fastest
way into module.py, "reference" where there is none. What is not covered: losses (each result is
given a fixed random gradient), and data loading.
"""

import hashlib
import json
import re
import statistics
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

CHOICE = re.compile(r'^GRADIENTS = "\w+"$', re.MULTILINE)
WHY = re.compile(r"^# Why this one: .*$", re.MULTILINE)
FIRST_LOOK_PAIRS, FIRST_LOOK_SHARE = 5, 0.2  # of the seconds that a comparison has
RAN = ("kernel", "kernel (recorded)", "reference (compiled)")  # instead of the reference


def examine(verify: SimpleNamespace, pair: Any, asked: Any) -> bool:
    """Compare gradients, then time steps; whether all gradients were right.

    Args:
        verify: what verify.py has.
        pair: the exported module and its reference.
        asked: what verify.py was called with.
    """
    steps = asked.choose or (not asked.no_timing and (asked.steps or _has_own_backward(pair)))
    if why := _why_none(pair):
        if asked.steps or asked.choose:
            verify.say(f"  no gradients by kernels: {why}")
        return True
    compiles = steps and not asked.no_compile
    choices = _to_check(pair, compiles)
    right = check(verify, pair, choices)
    if steps:
        verify.say("Time of a training step (forward, backward, AdamW), as the other's over ours:")
        chosen = time_steps(verify, pair, asked.seconds, [c for c in right if right[c]], compiles)
        if asked.choose:
            write(verify.FOLDER, *chosen)
            verify.say(f"  module.py has GRADIENTS = {chosen[0]!r} now")
    # What torch.compile makes of the reference is nothing of this export's.
    return all(fine for choice, fine in right.items() if choice != "compile")


def _has_own_backward(pair: Any) -> bool:
    return pair.evidence["training"] is not None


def _why_none(pair: Any) -> str:
    """Why no gradients are computed with kernels of this export; "" where they can be."""
    if not hasattr(pair.exported, "GRADIENTS"):
        return str(pair.evidence["gradients_refused"])
    given = _given(pair, pair.inputs(1, lambda x: x))
    return (
        "" if _leaves(pair.reference, given) else "all parameters are frozen, inputs are integers"
    )


def _to_check(pair: Any, compiles: bool) -> list[str]:
    """The ways to compare with the reference's.

    A whole model's own backward has the parameters' gradients alone: with all of them frozen it is
    never called.
    """
    frozen = _is_built(pair) and [*pair.reference.parameters()] and not _trained(pair.reference)
    left_out = {"reference"} if compiles else {"reference", "compile"}
    left = [choice for choice in pair.exported._CHOICES if choice not in left_out]
    return [choice for choice in left if not (frozen and choice.startswith("own"))]


def check(verify: SimpleNamespace, pair: Any, choices: list[str]) -> dict[str, bool]:
    """Compare gradients by these ways; says each, and which ways were right everywhere."""
    right = dict.fromkeys(choices, True)
    for seed, words in ((1, "own inputs"), (2, "another seed")):
        expected = _expected(verify, pair, seed)  # of one draw at a time: these are large
        for choice in choices:
            try:
                ratio, wrong = _worst(verify, pair, seed, choice, expected)
            except Exception as problem:  # the other ways are compared all the same
                ratio, wrong = float("inf"), verify.in_short(problem)
            name = f"gradients {choice!r}, {words}"
            right[choice] = verify.right(f"{name:<36}", ratio, wrong) and right[choice]
    return right


def _expected(
    verify: SimpleNamespace, pair: Any, seed: int
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The reference's gradients for that draw of inputs and its buffers, and those in float64."""
    inputs, reference = pair.inputs(seed, lambda x: x), pair.reference
    doubles, in_doubles = [*map(verify.doubled, inputs)], verify.in_doubles(reference)
    names = verify.shared_buffers(pair.module, reference)
    before = verify.state(reference, names)
    theirs = _gradients(verify, pair, reference, inputs) | _buffers(verify, pair, reference)
    for name, value in zip(names, before, strict=True):  # every way begins with these
        reference.get_buffer(name).copy_(value)
    throughout = verify.float64_throughout  # a backward of one's own names types as well
    exact = _gradients(verify, pair, in_doubles, doubles, throughout)
    return theirs, exact | _buffers(verify, pair, in_doubles)


def _buffers(verify: SimpleNamespace, pair: Any, module: Any) -> dict[str, torch.Tensor]:
    """What a step left in the buffers, by name; numbers of calls as fractions like the rest."""
    names = verify.shared_buffers(pair.module, pair.reference)
    held = zip(names, verify.state(module, names), strict=True)
    return {f"buffer {n}": x if x.is_floating_point() else x.double() for n, x in held}


def _worst(
    verify: SimpleNamespace,
    pair: Any,
    seed: int,
    choice: str,
    expected: tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]],
) -> tuple[float, str]:
    """How many times the reference's own error the gradients' is, and what went wrong."""
    exported, inputs = pair.exported, pair.inputs(seed, lambda x: x)
    exported.GRADIENTS = choice
    pair.module.load_state_dict(pair.reference.state_dict())
    counters = _counters(exported, choice)
    before = [_ran(counts) for counts in counters]
    mine = _gradients(verify, pair, pair.module, inputs) | _buffers(verify, pair, pair.module)
    if any(_ran(counts) == then for counts, then in zip(counters, before, strict=True)):
        return float("inf"), f"the kernels did not run ({[*map(dict, counters)]})"
    theirs, exact = expected
    worst, where = 0.0, ""
    for name, value in exact.items():
        if (name in mine) != (name in theirs):
            return float("inf"), f"{name} has a gradient on one side only"
        if name not in mine:
            continue
        least = verify.ROUNDING[mine[name].dtype] / 2
        allowed = max(verify.error(theirs[name], value), least)
        if name.startswith("buffer ") and verify.error(mine[name], value) > verify.BOUND * allowed:
            allowed = max(allowed, _moved(verify, pair, inputs, name, value))
        ratio = max(verify.error(mine[name], value), least) / allowed
        worst, where = max((worst, where), (ratio, name))
    return worst, "" if worst <= verify.BOUND else f"the error of {where} is too large"


def _moved(
    verify: SimpleNamespace, pair: Any, inputs: list[Any], name: str, exact: torch.Tensor
) -> float:
    """How far roundings move a buffer's new value: a mean that cancels may be exact by chance."""
    truth_of = verify.in_doubles(pair.reference)
    names = verify.shared_buffers(pair.module, pair.reference)
    before = names, verify.state(truth_of, names)
    place = names.index(name.removeprefix("buffer ")) - len(names)
    moved = verify.roundings(pair, truth_of, before, inputs, (1, 2))
    return max(float(verify.error(one[place], exact)) for one in moved)


def _counters(exported: Any, choice: str) -> list[Any]:
    """How calls ended in every part that has kernels for this way."""
    if not choice.startswith("own"):
        return [exported.COUNTS]
    names = ("backward", "forward") if choice == "own" else (choice.removeprefix("own_"),)
    parts = [getattr(exported, name, None) for name in names]
    return [part.COUNTS for part in parts if part is not None]


def _ran(counts: Any) -> int:
    return sum(counts[name] for name in RAN)


def _gradients(
    verify: SimpleNamespace,
    pair: Any,
    module: Any,
    inputs: list[Any],
    backward_in: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> dict[str, torch.Tensor]:
    """The gradients of one call, by what they belong to."""
    given = _given(pair, inputs)
    leaves = _leaves(module, given)
    with torch.enable_grad():
        results = _results(verify, pair.exported, module, given)
        upstream = _upstream(results)
        with backward_in():
            found = torch.autograd.grad(results, [*leaves.values()], upstream, allow_unused=True)
    return {n: _as_real(value) for n, value in zip(leaves, found, strict=True) if value is not None}


def _given(pair: Any, inputs: list[Any]) -> list[Any]:
    """The inputs; a layer's come from another and have gradients, a trained model's are data."""
    if _is_built(pair) and _trained(pair.reference):
        return inputs
    return [
        x.detach().requires_grad_() if isinstance(x, torch.Tensor) and x.is_floating_point() else x
        for x in inputs
    ]


def _is_built(pair: Any) -> bool:
    """Whether it is a whole model, as its own program builds it."""
    return bool(pair.evidence["task"]["entry_kind"] == "built")


def _trained(module: Any) -> list[Any]:
    """The parameters that have gradients; others are frozen."""
    return [p for p in module.parameters() if p.requires_grad]


def _leaves(module: Any, given: list[Any]) -> dict[str, torch.Tensor]:
    """What has gradients, by name."""
    leaves = {f"input {n}": x for n, x in enumerate(given) if getattr(x, "requires_grad", False)}
    return leaves | {name: p for name, p in module.named_parameters() if p.requires_grad}


def _results(
    verify: SimpleNamespace, exported: Any, module: Any, given: list[Any]
) -> list[torch.Tensor]:
    results = verify.flat(verify.run(exported, module, given))
    return [value for value in results if value.requires_grad]


def _upstream(results: list[torch.Tensor]) -> list[torch.Tensor]:
    """A gradient for each result, drawn in float32 for all, so that each side has the same ones."""
    torch.manual_seed(0)
    drawn = [torch.randn(value.shape) for value in results]
    return [d.to(v) for d, v in zip(drawn, results, strict=True)]


def _as_real(value: torch.Tensor) -> torch.Tensor:
    """Both parts of complex numbers beside each other."""
    return torch.view_as_real(value.resolve_conj()) if value.is_complex() else value


def _step(
    verify: SimpleNamespace, pair: Any, module: Any, owner: Any, inputs: list[Any]
) -> Callable[[], None]:
    """Forward, backward and optimiser as a call. The rate is 0, so that weights stay equal.

    Args:
        verify: what verify.py has.
        pair: the exported module and its reference.
        module: what is called.
        owner: whose parameters it has.
        inputs: of every call.
    """
    weights = _trained(owner)
    given = _given(pair, inputs)
    leaves = [x for x in given if isinstance(x, torch.Tensor) and x.requires_grad]
    upstream: list[torch.Tensor] = []
    optimiser = torch.optim.AdamW(weights, lr=0.0, fused=pair.device != "cpu") if weights else None

    def step() -> None:
        with torch.enable_grad():
            results = _results(verify, pair.exported, module, given)
            if not upstream:
                upstream.extend(_upstream(results))
            torch.autograd.backward(results, upstream)
        if optimiser is not None:
            optimiser.step()
        for leaf in (*weights, *leaves):
            leaf.grad = None

    return step


def time_steps(
    verify: SimpleNamespace, pair: Any, seconds: float, choices: list[str], compiled: bool
) -> tuple[str, str]:
    """Time a whole training step by every way in turns with others'; the way to choose, and why."""
    inputs = pair.inputs(1, lambda x: x)
    eager = _step(verify, pair, pair.reference, pair.reference, inputs)
    chosen, most = "reference", 1.0
    why = "no way's training step was certainly faster than eager PyTorch's"
    for choice in _closely(verify, pair, inputs, seconds, choices, eager):
        ratios = _beside(verify, pair, inputs, seconds, choice, "eager", eager)
        if ratios and verify.interval(ratios)[0] > 1 and statistics.median(ratios) > most:
            chosen, most = choice, statistics.median(ratios)
            low, high = verify.interval(ratios)
            why = (
                f"eager PyTorch's training step takes {most:.3f} times as long (95 % {low:.3f} to "
                f"{high:.3f})"
            )
    again = [chosen, *(choice for choice in choices if choice == "own" != chosen)]
    for choice in again if compiled else ():
        if choice != "compile":  # which is the rival itself
            rival = _compiled_step(verify, pair, inputs, choices)
            _beside(verify, pair, inputs, seconds, choice, "torch.compile", rival)
    pair.exported.GRADIENTS = chosen
    return chosen, why


def _closely(
    verify: SimpleNamespace,
    pair: Any,
    inputs: list[Any],
    seconds: float,
    choices: list[str],
    eager: Callable[[], None],
) -> list[str]:
    """The ways that are worth more pairs than a few: kernels both ways, and what may be fastest.

    That is each but those whose fastest pair is behind the slowest pair of the fastest way.
    """
    looks: dict[str, list[float]] = {}
    for choice in choices:
        ratios = _ratios(
            verify, pair, inputs, choice, eager, seconds * FIRST_LOOK_SHARE, FIRST_LOOK_PAIRS
        )
        if isinstance(ratios, str):
            verify.say(f"  GRADIENTS {choice!r} could not run: {ratios}")
            continue
        looks[choice] = ratios
        middle = statistics.median(ratios)
        verify.say(f"  a first look at GRADIENTS {choice!r}: {middle:.3f}x eager's")
    least = min(max(looks.values(), key=statistics.median, default=[0.0]))
    return [choice for choice, found in looks.items() if choice == "own" or max(found) >= least]


def _compiled_step(
    verify: SimpleNamespace, pair: Any, inputs: list[Any], choices: list[str]
) -> Callable[[], None]:
    """A step of the reference by torch.compile; of a large model that takes a minute to build.

    Where it is one of the ways, the forward that was compiled for its check is called again.
    """
    if "compile" not in choices:
        return _step(verify, pair, torch.compile(pair.reference), pair.reference, inputs)
    forward = pair.exported._compiled_reference()

    def called(*args: Any, **kwargs: Any) -> Any:
        return forward(pair.module, args, kwargs)

    return _step(verify, pair, called, pair.module, inputs)


def write(folder: Path, choice: str, why: str) -> None:
    """Write a way and its reason into module.py, and the file's new hash into evidence.json."""
    path, evidence = folder / "module.py", folder / "evidence.json"
    words = CHOICE.sub(f'GRADIENTS = "{choice}"', path.read_text(encoding="utf-8"))
    words = WHY.sub(lambda _: f"# Why this one: by `verify.py --choose`, {why}.", words)
    path.write_text(words, encoding="utf-8")
    text = evidence.read_text(encoding="utf-8")
    before = json.loads(text)["files_sha256"]["module.py"]
    after = hashlib.sha256(words.encode("utf-8")).hexdigest()
    evidence.write_text(
        text.replace(f'"module.py": "{before}"', f'"module.py": "{after}"'), encoding="utf-8"
    )


def _beside(
    verify: SimpleNamespace,
    pair: Any,
    inputs: list[Any],
    seconds: float,
    choice: str,
    name: str,
    theirs: Callable[[], None],
) -> list[float]:
    """How many times as fast a step by one way is, pair by pair; nothing where one cannot run."""
    ratios = _ratios(verify, pair, inputs, choice, theirs, seconds)
    if isinstance(ratios, str):
        verify.say(f"  {name}, GRADIENTS {choice!r} could not run: {ratios}")
        return []
    verify.judged(f"{name}, GRADIENTS {choice!r}", ratios)
    return ratios


def _ratios(
    verify: SimpleNamespace,
    pair: Any,
    inputs: list[Any],
    choice: str,
    theirs: Callable[[], None],
    seconds: float,
    least: int = 20,
) -> list[float] | str:
    """The pairs' ratios; why there are none where one side cannot run."""
    pair.exported.GRADIENTS = choice
    mine = _step(verify, pair, pair.module, pair.module, inputs)
    clock = verify.Clock(pair.device, queued=False)
    try:
        found: list[float] = verify.compare(mine, theirs, clock, seconds, least)
    except Exception as problem:  # that a module cannot be compiled is a fact about it
        return str(verify.in_short(problem))
    return found
