"""Shapes that a candidate was not written for: right on them too, or right for this shape only.

Tried after everything else, in a worker that may be lost over it: what reads or writes outside of
smaller inputs says nothing against the candidate on its own shape, as exports run the reference
everywhere else. Not covered: other element types and layouts, sizes above the task's own, and on a
GPU tasks with integer inputs, as an index that is too large would poison the device.
"""

from collections.abc import Callable

from kernelwright.tools.evaluate.rules import fresh_seed
from kernelwright.tools.evaluate.verify.comparison import ResultComparator
from kernelwright.tools.evaluate.verify.memory import GuardedMemory
from kernelwright.tools.evaluate.verify.reasons import RejectedError
from kernelwright.tools.evaluate.verify.reference_runtime import Draw, ReferenceRuntime
from kernelwright.tools.evaluate.verify.runners import plan_runner
from kernelwright.tools.evaluate.verify.trials import Trials
from kernelwright.tools.evaluate.verify.truth import UnverifiableError
from kernelwright.tools.languages import Built
from kernelwright.tools.tasks.inputs.variations import changeable, variants
from kernelwright.tools.types import Candidate, RefusedError, Task, TensorSpec
from kernelwright.tools.types.value import Value


class HeldOut(Value):
    """What other shapes showed: those that passed, and why one did not.

    `why_not` is "" where all passed; `tried` is False where the reference takes no other shape.
    """

    passed: tuple[str, ...] = ()
    why_not: str = ""
    tried: bool = True

    @property
    def words(self) -> str:
        """The label of the candidate."""
        if not self.tried:
            return f"this shape only: {self.why_not}"
        if self.why_not:
            return f"this shape only: {self.why_not}"
        return f"shape-generic, verified on {', '.join(self.passed)}"


def held_out(
    runtime: ReferenceRuntime,
    candidate: Candidate,
    built: Built,
    seed: int,
    announce: Callable[[str], None],
    settle: Callable[[], None],
) -> HeldOut:
    """Run a candidate on other shapes of its task.

    Args:
        runtime: the task on its device.
        candidate: right on the task's own shapes.
        built: what the compiler made of it.
        seed: of the draws.
        announce: told before the candidate runs.
        settle: told when the reference's turn begins.
    """
    if runtime.device == "cuda" and _takes_integers(runtime.task):
        return HeldOut(tried=False, why_not="others were not tried, as it takes integers")

    def attempt(name: str, other: ReferenceRuntime) -> str:
        announce(f"the candidate runs on {name}, {_shape(other.task)}")
        seed_there = fresh_seed(seed, name)
        return _fails(other, candidate, built, seed_there, announce, settle)

    found = tried_on_others(runtime, seed, attempt, settle)
    if not found.tried or not found.why_not:
        return found
    # Kernels that rules write have the example's sizes in them.
    return found.model_copy(update={"why_not": f"{found.why_not}; --shapes asks for more sizes"})


def tried_on_others(
    runtime: ReferenceRuntime,
    seed: int,
    attempt: Callable[[str, ReferenceRuntime], str],
    settle: Callable[[], None],
) -> HeldOut:
    """Try something on every other shape that the reference takes, until it fails on one.

    Args:
        runtime: the task on its device.
        seed: of the draws that show what the reference returns there.
        attempt: given what the shape is called and the reference's runtime with it, says why
            it is not right there; "" where it is.
        settle: told when the reference's turn begins.
    """
    settle()
    free = changeable(runtime.task, lambda task: _outputs(runtime, task, seed) is not None)
    passed: list[str] = []
    for name, task in variants(runtime.task, free).items():
        settle()
        outputs = _outputs(runtime, task, seed)
        if outputs is None:
            continue
        other = runtime.resized(task.model_copy(update={"outputs": outputs}))
        if why_not := attempt(name, other):
            words = f"on {name}, {_shape(task)}: {why_not}"
            return HeldOut(passed=tuple(passed), why_not=words)
        passed.append(f"{name} ({_shape(task)})")
    if not passed:
        return HeldOut(tried=False, why_not="the reference takes no other")
    return HeldOut(passed=tuple(passed))


def _fails(
    runtime: ReferenceRuntime,
    candidate: Candidate,
    built: Built,
    seed: int,
    announce: Callable[[str], None],
    settle: Callable[[], None],
) -> str:
    """Why a candidate is not right there; "" where it is."""
    memory = GuardedMemory(runtime.device, runtime.rules.guard_bytes)
    try:
        runner = plan_runner(runtime, candidate, built, memory)
        trials = Trials(runtime, memory, runner, announce)
        trials.prepare()
        trials.run(Draw("normal", seed), ResultComparator(runtime), twice=False, settle=settle)
    except (RejectedError, UnverifiableError) as found:
        return getattr(found, "reason", str(found))
    return f"{trials.skipped[0]}" if trials.skipped else ""


def _outputs(runtime: ReferenceRuntime, task: Task, seed: int) -> tuple[TensorSpec, ...] | None:
    """What the reference returns for inputs of those sizes; None where it refuses them."""
    other = runtime.resized(task)
    try:
        own = other.own(other.draw(Draw("normal", seed)))
    except (RefusedError, RuntimeError, IndexError, ValueError):
        return None
    return tuple(
        spec.model_copy(update={"shape": tuple(value.shape), "strides": None})
        for spec, value in zip(task.outputs, own.outputs, strict=True)
    )


def _takes_integers(task: Task) -> bool:
    specs = (spec.tensor for spec in task.inputs)
    return any(spec is not None and not spec.dtype.is_floating for spec in specs)


def _shape(task: Task) -> str:
    shapes = (item.tensor.shape for item in task.inputs if item.tensor)
    return " and ".join("x".join(map(str, shape)) for shape in shapes if shape)
