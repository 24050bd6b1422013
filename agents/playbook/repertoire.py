"""The playbook's repertoire for one task: lowered, spread by an emitter, timed by the roofline."""

from collections.abc import Mapping
from functools import cached_property

from agents.playbook.assemble import assemble
from agents.playbook.emitter import Emitter
from agents.playbook.ideas import Draft, Option
from agents.playbook.ir import Loop, PlanLine, Program, Strategy
from agents.playbook.lower import lower
from agents.playbook.predict import line_ms, predict_ms
from profiles.load import Hardware
from tools.nouns import Language, Task


def repertoire_for(task: Task, hardware: Hardware) -> "PlaybookRepertoire":
    """What the playbook can do for a task in the device's own language."""
    program = lower(task.graph, tuple(spec.name for spec in task.inputs))
    return PlaybookRepertoire(program, _emitter(hardware), hardware)


def _emitter(hardware: Hardware) -> Emitter:
    if hardware.kind == "cuda":
        from agents.playbook.cuda import CudaEmitter

        return CudaEmitter()
    from agents.playbook.cpp import CppEmitter

    return CppEmitter()


class PlaybookRepertoire:
    """A program, the strategies that fit its loops, and how to write them down."""

    def __init__(self, program: Program, emitter: Emitter, hardware: Hardware) -> None:
        self._program = program
        self._emitter = emitter
        self._hardware = hardware

    @property
    def language(self) -> Language:
        """The emitter's."""
        return self._emitter.language

    @cached_property
    def fixed_ms(self) -> float:
        """Predicted time of the library calls between the loops."""
        lines = [step for step in self._program.steps if isinstance(step, PlanLine)]
        return sum(line_ms(line, self._hardware) for line in lines)

    @cached_property
    def _options(self) -> dict[str, tuple[Option, ...]]:
        """Options by loop, in the emitter's order, the loop with the longest best time first."""
        known = {loop.name: self._of(loop) for loop in self._program.loops}
        best = {name: min(option.predicted_ms for option in of) for name, of in known.items()}
        return {name: known[name] for name in sorted(known, key=lambda name: (-best[name], name))}

    def options(self) -> tuple[Option, ...]:
        """Every option of every loop."""
        return tuple(option for of in self._options.values() for option in of)

    def draft(self, choices: Mapping[str, str]) -> Draft:
        """Assemble the program under these choices; loops left out take their first strategy."""
        chosen = {
            loop: self._named(loop, choices.get(loop, options[0].strategy.name))
            for loop, options in self._options.items()
        }
        assembled = assemble(self._program, self._emitter, chosen, self._hardware)
        return Draft(kernel=assembled.kernel, plan=assembled.plan, strategies=_attributes(chosen))

    def _of(self, loop: Loop) -> tuple[Option, ...]:
        return tuple(
            Option(
                loop=loop.name,
                family=loop.family,
                strategy=strategy,
                predicted_ms=predict_ms(loop, strategy, self._hardware),
            )
            for strategy in self._emitter.strategies(loop, self._hardware)
        )

    def _named(self, loop: str, strategy: str) -> Strategy:
        for option in self._options[loop]:
            if option.strategy.name == strategy:
                return option.strategy
        raise ValueError(f"loop {loop} has no strategy {strategy!r}")


def _attributes(chosen: Mapping[str, Strategy]) -> tuple[str, ...]:
    """The choices, and the labels of the dominant loop, which stands first."""
    if not chosen:
        return ()
    first = next(iter(chosen.values()))
    labels = {"memory": first.memory, "compute": first.compute, "parallel": first.parallel}
    named = {loop: strategy.name for loop, strategy in sorted(chosen.items())}
    return tuple(f"{name}={value}" for name, value in (named | labels).items())
