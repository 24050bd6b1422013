"""What torch does beside a forward's operators, left out of a trace.

A trace takes nothing but a graph from an exported program. Meanwhile torch writes each of its
eighteen graph modules down as Python and compiles that, notes for every operator where the user's
file called it, checks the inputs that it has just exported for, and makes counters of random
numbers that only a compiled program has. None of that is in the graph, and it is a quarter of what
a trace takes. A graph module that is run or printed after all is compiled then.

`torch.distributions` looks at the values of what it is given and raises where they are none that a
distribution can have; nothing that looks at values can be traced. Kernels compute what the forward
does with arguments that pass.

Not covered: threads that trace at the same time, which torch does not bear either, and
`validate_args=True` that a forward says itself.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import fx
from torch._decomp.decompositions_for_rng import PhiloxState
from torch.distributions import Distribution
from torch.export import ExportedProgram
from torch.fx.graph import _PyTreeCodeGen

# What compiling gives a graph module, on its class or on itself.
_COMPILED = ("forward", "_code", "_lineno_map", "_prologue_start")

_torch_compiles: Callable[[fx.GraphModule], object] = fx.GraphModule.recompile
_torch_modules: Callable[..., fx.GraphModule] = ExportedProgram.module
_NO_STATE = torch.empty(0)


@contextmanager
def only_graphs() -> Iterator[None]:
    """While inside, torch exports what a graph is read from and no more."""
    config = fx.config
    replaced = [
        (fx.GraphModule, "recompile", _compile_when_asked),
        (ExportedProgram, "module", _module_without_guards),
        (PhiloxState, "reset", _reset_counters),
        (config, "do_not_emit_stack_traces", True),
    ]
    replaced = [one for one in replaced if hasattr(one[0], one[1])]  # a release may lack one
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in replaced]
    try:
        for owner, name, value in replaced:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


class _WhenAsked:
    """An attribute of a graph module's own class that compiles the module when it is looked up."""

    def __init__(self, module: fx.GraphModule, name: str) -> None:
        self._module, self._name = module, name

    def __get__(self, asked: fx.GraphModule | None, kind: type) -> object:
        for name in _COMPILED:
            if isinstance(vars(type(self._module)).get(name), _WhenAsked):
                delattr(type(self._module), name)
        _torch_compiles(self._module)
        return getattr(kind if asked is None else asked, self._name)


def _compile_when_asked(module: fx.GraphModule) -> None:
    """In place of `GraphModule.recompile`; what a program takes and returns is known at once."""
    generator = module.graph._codegen
    if isinstance(generator, _PyTreeCodeGen):
        module._in_spec = generator.pytree_info.in_spec
        module._out_spec = generator.pytree_info.out_spec
    for name in _COMPILED:
        module.__dict__.pop(name, None)
        setattr(type(module), name, _WhenAsked(module, name))


def _module_without_guards(program: ExportedProgram, check_guards: bool = True) -> fx.GraphModule:
    return _torch_modules(program, check_guards=False)


def _reset_counters(state: PhiloxState) -> None:
    state.seed = state.base_offset = _NO_STATE
    state.relative_offset, state.offset_advanced_at_least_once = 0, False


UNCHECKED = (
    "Kernels do not check the arguments of torch.distributions, where the module raises an error "
    "for those that are out of range."
)


class Checks:
    """What stands for False where `torch.distributions` asks whether to check."""

    asked = False

    def __bool__(self) -> bool:
        """False, and it is remembered that somebody asked."""
        self.asked = True
        return False


@contextmanager
def unchecked_distributions() -> Iterator[Checks]:
    """Distributions check nothing while inside; the checks that were left out are noted."""
    usual: object = Distribution._validate_args
    checks = Checks()
    if usual is True:
        Distribution._validate_args = checks  # type: ignore[assignment]
    try:
        yield checks
    finally:
        Distribution._validate_args = usual  # type: ignore[assignment]
