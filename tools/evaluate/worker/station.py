"""One task in one worker: its bench, timing harness and baselines, each made when needed."""

from functools import cached_property

from profiles.load import Hardware
from tools.evaluate.clock.baselines import BaselineCalls
from tools.evaluate.clock.harness import Harness
from tools.evaluate.judge.bench import Bench, Draw, tensors
from tools.evaluate.judge.nulls import passing_nulls
from tools.evaluate.judge.threads import small_steps
from tools.evaluate.judge.truth import UnverifiableError
from tools.evaluate.rules import Rules
from tools.evaluate.seeds import fresh_seed
from tools.evaluate.worker.ground import no_new_processes
from tools.nouns import Task


class Station:
    """What a worker keeps while it is asked about the same task."""

    def __init__(self, task: Task, hardware: Hardware, rules: Rules, seed: int) -> None:
        self.task = task
        self.bench = Bench(task, hardware, rules, seed, no_new_processes)

    @cached_property
    def harness(self) -> Harness:
        """Timing inputs and stopwatch."""
        return Harness(self.bench)

    @cached_property
    def baselines(self) -> BaselineCalls:
        """What PyTorch itself does, ready to be timed."""
        return BaselineCalls(self.bench, self.harness, no_new_processes)

    @cached_property
    def nulls(self) -> tuple[str, ...]:
        """Which answers without work pass for this task; a warning each."""
        arguments = self.bench.draw(Draw("task", fresh_seed(self.bench.seed, "nulls")))
        own = self.bench.own(arguments)
        try:
            right = self.bench.right(arguments, own)
        except UnverifiableError as error:
            return (f"null answers were not tried: {error}",)
        with small_steps():
            return passing_nulls(own.outputs, right.outputs, tensors(arguments), self.bench.rules)
