"""How many digits a candidate really computes with, measured; and the label that follows.

Inputs are drawn whose last digits a short significand drops, always in the same direction: what is
right of the result then tells the significand's length. Where a task reads no floating inputs
(tokens), its weights are made so instead, and where PyTorch's own result is not finite then (the
backward of many layers), the task's own values. A source that names a lower precision and
loses nothing there, nor far beyond and far below the range of half precision, splits its operands
(3xTF32, fp16 in two parts) and counts as the task's own. Otherwise the lower of the two readings
holds, and the candidate is ranked apart unless the person allowed that precision.

Far from a task's own values its answer may hang on roundings: where scores are as large as 1e10,
softmax picks one of its values, and the order of adding decides a near tie. BERT's encoder of 12
layers with weights 1e5 times as large (1,024 tokens, on a CPU): PyTorch's own result was off by
1.8e-2 in the norm, that of float32 products in another order by 3e-6. So what roundings alone move
there is allowed, and only what is too far off on every one of several draws is out of range.
Not covered: a precision lost only on inputs that nobody drew.

`times_eager` asks the same of PyTorch's other ways to do a task. torch.compile may hand a
convolution over in a layout in which the library computes it in TF32, while eager's is in fp32; its
time is then that of coarser answers. That is no reason to leave it out, as PyTorch's settings allow
it, but whoever reads the ratio should know.
"""

from collections.abc import Callable, Iterator, Sequence
from math import isinf, log2

import torch
from torch import Tensor

from kernelwright.tools.evaluate.rules import fresh_seed
from kernelwright.tools.evaluate.verify.comparison import ResultComparator
from kernelwright.tools.evaluate.verify.errors import distance
from kernelwright.tools.evaluate.verify.precision import (
    COARSER,
    SIGNIFICANT_BITS,
    asked_for,
    candidate_precision,
    lower_precisions,
    task_precision,
)
from kernelwright.tools.evaluate.verify.reasons import RejectedError
from kernelwright.tools.evaluate.verify.reference_runtime import (
    PROBED_WEIGHTS,
    Draw,
    ReferenceRuntime,
    Result,
)
from kernelwright.tools.evaluate.verify.rounding_tolerance import RoundingTolerance
from kernelwright.tools.evaluate.verify.trials import Trials
from kernelwright.tools.evaluate.verify.truth import Argument, UnverifiableError
from kernelwright.tools.tasks import PROBES, SHORTENED, applicable
from kernelwright.tools.tasks.loading.packing import leaves_of
from kernelwright.tools.types import Candidate, DType, RefusedError, Task
from kernelwright.tools.types.value import Value

Call = Callable[[Sequence[Argument]], object]


def times_eager(runtime: ReferenceRuntime, call: Call, seed: int) -> float | None:
    """How many times as far from the truth as eager's answers those of another way are.

    The larger of the norm and the worst element, over floating outputs, on one draw of the task's
    own values; None where there is no room for the truth, or nothing floating.
    """
    try:
        arguments = runtime.draw(Draw("task", seed))
        own = runtime.own(arguments)
        right = runtime.right(arguments, own)
        answers = _answers(runtime, call, arguments)
    except (RefusedError, UnverifiableError):
        return None
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return None
    results = zip(answers, own.outputs, right.outputs, strict=True)
    ratios = [
        distance(answer, mine, truth, runtime.chunk_elements).ratio
        for answer, mine, truth in results
        if answer.dtype.is_floating_point
    ]
    return max(ratios, default=None)


def _answers(runtime: ReferenceRuntime, call: Call, arguments: Sequence[Argument]) -> list[Tensor]:
    """What it returns; buffers that it updates are put back."""
    before = runtime.reference.snapshot()
    try:
        return [leaf for leaf in leaves_of(call(arguments)) if isinstance(leaf, Tensor)]
    finally:
        runtime.reference.restore(before)


# A range that is lost is lost on every draw; that a near tie goes wrong is chance.
_DRAWS = 3
# Half-way between the digits of single and of half precision: fewer were lost on purpose.
_SINGLE_ENOUGH = 16.0
_BFLOAT_AT_MOST = 9.5
# How a label says that sums may be kept in less than float32.
_SUMS = {DType.FLOAT16: "fp16"}


class Precision(Value):
    """The label of a candidate, and why it is ranked apart; "" where it is not."""

    label: str
    bits: float | None = None
    apart: str = ""


class Digits(Value):
    """What probes show: correct bits, and whether results were as close as PyTorch's own.

    `exact` is of inputs that short significands get wrong, `in_range` of sizes that half precision
    does not have; `as_turned` that they were as close as PyTorch's own with channels last, where
    that is coarser.
    """

    bits: float
    exact: bool
    in_range: bool
    as_turned: bool = False


class Ruler(ResultComparator):
    """Measures how far results are off, and rejects nothing.

    Args:
        runtime: the task.
        excuses: whether what roundings alone move is no error.
    """

    def __init__(self, runtime: ReferenceRuntime, *, excuses: bool = False) -> None:
        super().__init__(runtime)
        self._excuses = excuses
        self.error = 0.0
        self.ratio = 0.0
        self.turned_ratio = 0.0

    def judge(
        self,
        draw: Draw,
        arguments: Sequence[Argument],
        got: Result,
        own: Result,
        right: Result,
        *,
        before: Sequence[Tensor],
    ) -> None:
        """Keep the largest error of any floating output, and its ratio to PyTorch's own."""
        chunk, bound = self._runtime.chunk_elements, self._runtime.rules.error_bound
        tolerance = RoundingTolerance(self._runtime, draw, arguments, own, right)
        results = zip(got.outputs, own.outputs, right.outputs, strict=True)
        for number, (value, mine, truth) in enumerate(results):
            if value.dtype.is_floating_point:
                found = distance(value, mine, truth, chunk)
                if self._excuses and found.ratio > bound and not found.misplaced:
                    found = tolerance.taken_out(found, truth, number)
                off = float("inf") if found.misplaced else max(found.norm, found.rounding / 2)
                self.error, self.ratio = max(self.error, off), max(self.ratio, found.ratio)
                turned = tolerance.turned(found, truth, number) if found.ratio > bound else found
                self.turned_ratio = max(self.turned_ratio, turned.ratio)


def measured(
    trials: Trials,
    runtime: ReferenceRuntime,
    candidate: Candidate,
    seed: int,
    settle: Callable[[], None],
    *,
    is_brief: bool = False,
) -> Precision:
    """Probe a candidate that is right so far.

    Args:
        trials: runs it.
        runtime: the task.
        candidate: its source.
        seed: of the draws.
        settle: told when the reference's turn begins.
        is_brief: whether it is looked at again; each probe of weights moves all of a model's.
    """
    task, named = runtime.task, lower_precisions(runtime.task, candidate)
    ranges = bool(named) and not (is_brief and _reads_tokens(runtime))
    found = probed(trials, runtime, seed, settle, ranges=ranges)
    if found is None:
        return by_source(task, candidate)
    exact = found.exact and found.in_range
    return resolve(task, named, found.bits, exact=exact, as_turned=found.as_turned)


def probed(
    trials: Trials,
    runtime: ReferenceRuntime,
    seed: int,
    settle: Callable[[], None],
    *,
    ranges: bool,
    strict: bool = False,
) -> Digits | None:
    """What the probes show; None where they mean nothing for the task.

    Args:
        trials: runs the candidate.
        runtime: the task.
        seed: of the draws.
        settle: told when the reference's turn begins.
        ranges: whether values far beyond and far below half precision's are tried as well.
        strict: whether a candidate that fails on a probe is rejected, and not only labelled.

    Raises:
        RejectedError: it failed, where that is strict.
    """
    if task_precision(runtime.task) != "fp32":
        return None

    def probe(name: str, draw: int = 0) -> Ruler | None:
        drawn = fresh_seed(seed, name, *([draw] if draw else []))
        return _probe(trials, runtime, name, drawn, settle, strict=strict)

    def holds(name: str) -> bool:
        """Whether on any draw it is near enough; a result that is no number ends it."""
        for draw in range(_DRAWS):
            found = probe(name, draw)
            if found is None or found.ratio <= bound:
                return True
            if isinf(found.ratio):
                break
        return False

    significand = probe(PROBES[0])
    if significand is None:
        return None
    bits = -log2(significand.error) if significand.error > 0 else 24.0
    bound = runtime.rules.error_bound
    return Digits(
        bits=max(0.0, bits),
        exact=significand.ratio <= bound,
        in_range=not ranges or all(map(holds, PROBES[1:])),
        as_turned=significand.ratio > bound >= significand.turned_ratio,
    )


def by_source(task: Task, candidate: Candidate) -> Precision:
    """What the source alone tells, where nothing can be measured."""
    found = ranked(task, candidate_precision(task, candidate), None)
    if task.graph.sums is DType.FLOAT32:
        return found
    return found.model_copy(update={"label": f"{found.label}, sums in {_SUMS[task.graph.sums]}"})


def resolve(
    task: Task, named: Sequence[str], bits: float, *, exact: bool, as_turned: bool = False
) -> Precision:
    """The label from what the source names and from what was measured, the lower of the two.

    Args:
        task: its own precision, and what the person allowed.
        named: lower precisions in the source, the finest first.
        bits: correct bits on inputs that short significands get wrong.
        exact: whether every probe was as close to the truth as PyTorch's own result.
        as_turned: whether it was as close as that with channels last, which PyTorch's settings
            let be coarser.
    """
    own = task_precision(task)
    if as_turned and not exact and set(named) <= {COARSER}:
        return Precision(label=COARSER, bits=bits)
    if exact and named:
        # PyTorch itself may compute in TF32 here, and then so may everybody.
        via = f"{own} via {named[-1]}"
        return Precision(label=via if bits >= _SINGLE_ENOUGH else named[-1], bits=bits)
    if exact or (not named and bits >= _SINGLE_ENOUGH):
        return Precision(label=own, bits=bits)
    seen = "bf16" if bits <= _BFLOAT_AT_MOST else "tf32"
    if not named:
        return ranked(task, seen, bits)
    lower = min((named[-1], seen), key=SIGNIFICANT_BITS.__getitem__)
    return ranked(task, named[-1] if bits >= _SINGLE_ENOUGH else lower, bits)


def ranked(task: Task, label: str, bits: float | None) -> Precision:
    """The label, with a reason to rank it apart where nobody asked for or allowed it."""
    own = task_precision(task)
    if label == own or label in task.allow or label in asked_for(task):
        return Precision(label=label, bits=bits)
    words = f"computes in {label}, the task in {own}"
    return Precision(label=label, bits=bits, apart=words)


def _probe(
    trials: Trials,
    runtime: ReferenceRuntime,
    name: str,
    own_seed: int,
    settle: Callable[[], None],
    *,
    strict: bool,
) -> Ruler | None:
    """What one probe shows; None where it means nothing for this task."""
    for draw, weights in _probes(runtime, name, own_seed, strict=strict):
        ruler, before = Ruler(runtime, excuses=name != PROBES[0]), len(trials.skipped)
        change = PROBED_WEIGHTS[name]
        try:
            trials.run(draw, ruler, twice=False, settle=settle, weights=weights, change=change)
        except RejectedError:
            if strict:
                raise
            ruler.error = ruler.ratio = float("inf")
        except (torch.OutOfMemoryError, UnverifiableError):
            if weights is None:
                raise
            torch.cuda.empty_cache()  # weights of that size leave no room to move them
            return None
        if len(trials.skipped) == before:
            return ruler
        del trials.skipped[before:]  # PyTorch's own result is no number there
    return None


def _probes(
    runtime: ReferenceRuntime, name: str, own_seed: int, *, strict: bool
) -> Iterator[tuple[Draw, int | None]]:
    """The draws that a probe may be made with, and of which weights; the next where one is none."""
    task = runtime.task
    if applicable(task, name):
        if runtime.tells(name):
            yield Draw(name, own_seed), None
    elif not strict and _reads_tokens(runtime):  # a foreign module may keep its own weights
        yield Draw("task", own_seed), own_seed
    if name == PROBES[0] and applicable(task, SHORTENED):
        yield Draw(SHORTENED, own_seed), None


def _reads_tokens(runtime: ReferenceRuntime) -> bool:
    """Whether all that is floating of a task are its weights."""
    inputs = (spec.tensor for spec in runtime.task.tensor_inputs if spec.tensor is not None)
    weights = runtime.reference.weights().values()
    return not any(tensor.dtype.is_floating for tensor in inputs) and any(
        weight.is_floating_point() for weight in weights
    )
