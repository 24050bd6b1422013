"""The short kernels that the playbook writes for small models, run by the emulator."""

from __future__ import annotations

import ctypes
import re
from types import SimpleNamespace

import pytest
import torch

from kernelwright.tools.codegen.ir import Emitted
from kernelwright.tools.learning.contract.launches import candidate_of, interface
from kernelwright.tools.learning.writing.answers import written_answers
from kernelwright.tools.learning.writing.drafts import problem_of
from kernelwright.tools.learning.writing.families import HELD_OUT, LEARNT, modules
from kernelwright.tools.tasks import Reference

pytestmark = pytest.mark.exhaustive


def playable(kernel: str, number: int) -> SimpleNamespace:
    """A kernel under names of its own, as the emulator's compiler wants it."""
    source = re.sub(r"void (\w+)\(", rf"void __launch_bounds__(1024)\n\1_{number}(", kernel)
    return SimpleNamespace(emitted=Emitted(source=source, plan=()), settings={}, library=[])


def test_answers_of_every_family_compute_what_the_module_does(toolbox: SimpleNamespace) -> None:
    found = []
    for held_out, families in ((False, LEARNT), (True, HELD_OUT)):
        for module in modules(len(families), 0, held_out=held_out, small=True):
            problem = problem_of(module)
            assert problem is not None, module.source
            names = interface(problem.task)
            answers = written_answers(problem.task, names, "cuda", count=2, seed=1)
            assert answers or module.family == "log_softmax", module.source
            found += [
                (problem.task, candidate_of(one.answer, names, "cuda"))
                for one in answers
                if "block1024" not in one.way
            ]
    played = [playable(candidate.kernel, at) for at, (_, candidate) in enumerate(found)]
    toolbox.compile_emulated(played)
    wrong = []
    for at, (task, candidate) in enumerate(found):
        library = ctypes.CDLL(str(played[at].library[0]))
        plan = re.sub(r'launch\("(\w+)"', rf'launch("\1_{at}"', candidate.plan)
        reference = Reference.build(task, "cpu")
        inputs = [torch.randn(item.tensor.shape) for item in task.inputs]
        scope = toolbox.Emulated(library, {}, {}).names()
        scope["weights"] = reference.weights()
        exec(plan, scope)
        got = scope["forward"](*inputs)
        (want,) = reference.double().forward(inputs)
        want = want.float()
        if not torch.allclose(got.reshape(want.shape), want, rtol=1e-4, atol=1e-4):
            wrong.append(f"{task.name}: {(got - want).abs().max()}")
    assert not wrong, "\n".join(wrong)
