"""Nested arguments and results: flat for the judge, as they were for the forward."""

from collections.abc import Callable

import pytest
import torch

from kernelwright.tools.tasks.inputs.draws import draw
from kernelwright.tools.tasks.reference import Reference
from kernelwright.tools.types import Refusal, RefusedError, Task

FILE = """
import itertools
from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

COUNT = itertools.count()


class Pair(NamedTuple):
    a: torch.Tensor
    b: torch.Tensor


@dataclass
class Answer:
    logits: torch.Tensor
    more: object
    absent: object = None


class Model(nn.Module):
    def forward(self, x, {arguments}):
        return {result}


def get_inputs():
    return {inputs}
"""
X = "torch.randn(4, 8)"


def made(attempt: Callable[..., object], arguments: str, result: str, inputs: str) -> Task:
    text = FILE.format(arguments=arguments, result=result, inputs=inputs)
    found = attempt(text)
    assert isinstance(found, Task), found
    return found


@pytest.mark.parametrize(
    ("result", "outputs"),
    [
        ("Answer(x + y, {'k': (x, [y * 2])})", 3),
        ("Answer(logits=x + y, more=None)", 1),
        ("{'a': x + y, 'b': Pair(x * 2, y)}", 3),
        ("OrderedDict(a=x + y)", 1),
        ("(x + y, (x, None))", 2),
    ],
)
def test_a_result_is_flat_for_the_judge_and_its_own_for_the_caller(attempt, result, outputs):
    task = made(attempt, "y", result, f"[{X}, {X}]")
    assert task.call is None
    assert task.returns is not None
    assert len(task.outputs) == outputs
    reference = Reference.build(task, "cpu")
    given = draw(task, "task", 1, "cpu")
    assert len(reference.forward(given)) == outputs
    assert not isinstance(reference.module(*given), torch.Tensor)
    assert len(reference.double().forward(given)) == outputs


def test_numbers_and_words_beside_tensors_are_returned_as_they_are(attempt):
    kept = """{'y': x + y, 'n': 3, 'on': True, 'rows': x.shape, 'kind': "it's", 'far': -1e999}"""
    task = made(attempt, "y", kept, f"[{X}, {X}]")
    assert len(task.outputs) == 1
    assert task.returns is not None
    names = {name: f"class_{n}" for n, name in enumerate(task.returns.classes)}
    printed = task.returns.printed(iter(["y"]), names.__getitem__)
    space = {names["torch:Size"]: torch.Size, "y": 0}
    wanted = Reference.build(task, "cpu").module(*draw(task, "task", 1, "cpu"))
    assert eval(printed, space) == {**wanted, "y": 0}
    assert type(eval(printed, space)["rows"]) is torch.Size
    conditions, leaves = task.returns.taken_apart("given", names.__getitem__)
    assert leaves == ["given['y']"]
    assert all(eval(condition, {**space, "given": wanted}) for condition in conditions)
    other = {**wanted, "n": 4}
    assert not all(eval(condition, {**space, "given": other}) for condition in conditions)


def test_a_number_that_changes_from_call_to_call_is_refused_by_the_reference(attempt):
    """What is computed from values cannot be traced; what a counter says is seen by the judge."""
    task = made(attempt, "y", "(x + y, next(COUNT))", f"[{X}, {X}]")
    reference = Reference.build(task, "cpu")
    with pytest.raises(RefusedError, match="what it returns beside tensors must not change"):
        reference.forward(draw(task, "task", 1, "cpu"))


@pytest.mark.parametrize("result", ["x + y", "(x + y, x)", "[x + y, x]"])
def test_plain_results_are_as_ever(attempt, result):
    assert made(attempt, "y", result, f"[{X}, {X}]").returns is None


@pytest.mark.parametrize(
    ("arguments", "inputs", "names"),
    [
        ("*, y", f"{{'x': {X}, 'y': {X}}}", ["x", "y"]),
        ("*, y", f"{{'y': {X}, 'x': {X}}}", ["y", "x"]),
        ("y", f"[{X}, Pair({X}, {X})]", ["x", "y_a", "y_b"]),
        ("y", f"[{X}, {{'lambda': {X}, 'k': [{X}, 3]}}]", ["x", "y_lambda", "y_k_0", "y_k_1"]),
    ],
)
def test_arguments_may_be_named_and_nested(attempt, arguments, inputs, names):
    value = "y if isinstance(y, torch.Tensor) else y[0] if isinstance(y, tuple) else y['k'][0]"
    task = made(attempt, arguments, f"x * ({value})", inputs)
    assert [spec.name for spec in task.inputs] == names
    reference = Reference.build(task, "cpu")
    drawn = draw(task, "normal", 1, "cpu")
    (got,) = reference.forward(drawn)
    by_name = dict(zip(names, drawn, strict=True))
    other = next(by_name[name] for name in ("y", "y_a", "y_k_0") if name in by_name)
    torch.testing.assert_close(got, by_name["x"] * other)


@pytest.mark.parametrize(
    ("result", "inputs", "words"),
    [
        ("{1: x}", f"[{X}, {X}]", "a dictionary whose keys are not all words"),
        ("Answer(x, object())", f"[{X}, {X}]", "The forward returns a object; tensors, tuples"),
        ("{}", f"[{X}, {X}]", "returns no tensor"),
        ("x", f"[{X}, {{1: {X}}}]", "Input 2 is a dictionary whose keys"),
        ("x", f"[{X}, {{1, 2}}]", "Input 2 is a set"),
        ("x", f"{{'x': {X}, 'a=1); f(': {X}}}", "no name that Python can call"),
        ("x", f"{{'x': {X}, 'class': {X}}}", "no name that Python can call"),
        ("x", f"{{1: {X}}}", "must return a list, but it returned a dict"),
        ("x", f"{{'x': {X}, 'z': {X}}}", "unexpected keyword argument 'z'"),
    ],
)
def test_other_things_are_one_sentence(attempt, result, inputs, words):
    found = attempt(FILE.format(arguments="y", result=result, inputs=inputs))
    assert isinstance(found, Refusal)
    assert words in found.sentence
