"""A task's forms are options of the search: proved in words, predicted and written down."""

import pytest

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.codegen.library.forms.forms import AS_WRITTEN, FORM_KINDS, FormKind, forms
from kernelwright.tools.codegen.library.kernel_library import (
    FORM,
    PlaybookRepertoire,
    fastest,
    in_form,
    repertoire_for,
)
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Task, TracePolicy

SOURCE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2048, 2048)

    def forward(self, x):
        return torch.relu((self.linear(x) * 0.5).sum(1, keepdim=True)) + x

def get_inputs():
    return [torch.randn(2048, 2048)]
"""


@pytest.fixture(scope="module")
def repertoire() -> PlaybookRepertoire:
    task = trace(SOURCE, "/tmp/summed.py", TracePolicy())
    assert isinstance(task, Task)
    return repertoire_for(task, hardware_profile("h200"))


def test_algebra_is_an_idea_with_its_proof_and_conditions(repertoire: PlaybookRepertoire) -> None:
    ideas = {o.strategy.name: o.strategy for o in repertoire.options() if o.loop == FORM}
    assert set(ideas) == {AS_WRITTEN, "algebra"}
    assert "finite double sum" in ideas["algebra"].mechanism
    assert "computed in every call" in ideas["algebra"].mechanism
    assert "nothing else reads the outputs" in ideas["algebra"].reason


def test_each_form_is_written_with_its_own_loops(repertoire: PlaybookRepertoire) -> None:
    written = repertoire.draft({FORM: AS_WRITTEN})
    changed = repertoire.draft({FORM: "algebra"})
    assert "aten.addmm" in written.plan
    assert "aten" not in changed.plan
    assert f"{FORM}=algebra" in changed.strategies
    with pytest.raises(ValueError, match="no form"):
        repertoire.draft({FORM: "magic"})


def test_choices_keep_to_the_loops_of_their_form(repertoire: PlaybookRepertoire) -> None:
    options = repertoire.options()
    assert fastest(options)[FORM] == "algebra"
    back = in_form(options, fastest(options) | {FORM: AS_WRITTEN})
    loops = {option.loop for option in options if option.form == AS_WRITTEN}
    assert set(back) == {FORM, *loops}


def test_a_kind_of_form_is_added_by_its_own_value() -> None:
    task = trace(SOURCE, "/tmp/summed.py", TracePolicy())
    assert isinstance(task, Task)
    words = forms(task)[0].idea.model_copy(update={"name": "again"})
    again = FormKind("again", "Z", lambda lowerings: lowerings.written, lambda lowerings: words)
    never = FormKind("never", "N", lambda lowerings: None, lambda lowerings: words)
    found = {form.name: form for form in forms(task, kinds=(*FORM_KINDS, again, never))}
    assert list(found) == [AS_WRITTEN, "algebra", "again"]
    assert [loop.name for loop in found["again"].program.loops] == ["ZL0"]


ATTENDS = """
import torch
from torch import nn
from torch.nn import functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.made, self.back = nn.Linear(256, 768), nn.Linear(256, 256)

    def forward(self, x):
        q, k, v = (one.view(4, 512, 4, 64).transpose(1, 2) for one in self.made(x).chunk(3, -1))
        keeps = torch.arange(512)[None] <= torch.arange(512)[:, None]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=keeps)
        return self.back(y.transpose(1, 2).reshape(4, 512, 256))

def get_inputs():
    return [torch.randn(4, 512, 256)]
"""


def test_attention_in_float32_is_also_one_call_beside_products_of_ours() -> None:
    task = trace(ATTENDS, "/tmp/attends.py", TracePolicy())
    assert isinstance(task, Task)
    repertoire = repertoire_for(task, hardware_profile("h200"))
    named = {o.strategy.name: o.strategy for o in repertoire.options() if o.loop == FORM}
    assert {"products", "called_attention_products"} <= set(named)
    assert "leave a mask that is known" in named["called_attention_products"].title
    by_call = {o.loop: set[str]() for o in repertoire.options() if "attention" in o.loop}
    for option in repertoire.options():
        if option.loop in by_call:
            by_call[option.loop].add(option.strategy.name)
    assert any(loop.startswith("T") and "split_attention" in of for loop, of in by_call.items())
    plan = repertoire.draft({FORM: "called_attention_products"}).plan
    assert "aten.addmm" not in plan
    assert "keeps" not in plan
    assert not any(o.loop.startswith("P") and "attention" in o.loop for o in repertoire.options())


def test_where_no_attention_is_made_of_products_no_form_leaves_it_a_call() -> None:
    halves = ATTENDS.replace("torch.randn(4, 512, 256)", "torch.randn(4, 512, 256).half()")
    task = trace(halves.replace("nn.Linear(256, 256)", "nn.Linear(256, 256)\n        self.half()"),
                 "/tmp/halves.py", TracePolicy())  # fmt: skip
    assert isinstance(task, Task), task
    options = repertoire_for(task, hardware_profile("h200")).options()
    assert not [o for o in options if o.loop == FORM and "called_attention" in o.strategy.name]
