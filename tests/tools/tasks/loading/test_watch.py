"""What a module computes by beside its tensors: as it is written down, and as it is held to it."""

import copy
import pickle
import warnings

import pytest
import torch
from torch import nn

from kernelwright.tools.tasks.loading.watch import Watch, agreed, copied, described, difference


class Part(nn.Module):
    usual = 1.0
    table = None

    def __init__(self):
        super().__init__()
        self.scale, self.size, self.words, self.empty = 0.5, (2, 3), "same", None
        self.table, self.items, self.device, self.home = {}, [1], "cuda:0", "/somewhere"
        self.not_a_number, self.kind = float("nan"), torch.float32
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x):
        return self.norm(x)


class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList([Part(), Part()])
        self.again = self.parts[0]
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(self.first(self.again(self.parts[1](x))))


def test_plain_attributes_are_written_down_as_python_and_places_are_not():
    found = described(Whole())
    kind, hooks, attributes, shared = found["parts.0"]
    assert (kind, hooks, shared) == ("Part", 0, {})
    assert attributes == {
        "scale": "0.5", "size": "(2, 3)", "words": "'same'", "empty": "None", "table": "a dict",
        "not_a_number": "nan", "kind": "torch.float32",
    }  # fmt: skip
    assert found["again"] == ("= parts.0", 0, {}, {})
    assert found["parts.1.norm"][0] == "torch.BatchNorm1d"
    assert found["parts.1.norm"][2]["training"] == "True"
    assert "training" not in found["first"][2], "nothing in it asks for the mode"
    assert found["second"][3] == {"weight": "first.weight"}


def test_what_a_forward_changes_may_be_anything():
    one = {"": ("Part", 0, {"scale": "1.0", "calls": "0"}, {})}
    other = {"": ("Part", 0, {"scale": "1.0", "calls": "3", "late": "1"}, {})}
    assert agreed(one, other)[""][2] == {"scale": "1.0", "calls": "?", "late": "?"}


CHANGES = [
    ("parts.1", "scale", 2.0),
    ("parts.1", "scale", nn.Parameter(torch.ones(1))),
    ("parts.1", "size", (2, 4)),
    ("parts.1", "words", "another"),
    ("parts.1", "empty", 0),
    ("parts.1", "usual", 2.0),
    ("parts.1", "kind", torch.float16),
    ("parts.1.norm", "eps", 1.0),
    ("parts.1.norm", "momentum", None),
    ("parts.1.norm", "track_running_stats", False),
    ("first", "in_features", 5),
]


@pytest.mark.parametrize(("path", "name", "value"), CHANGES)
def test_it_hears_of_an_attribute_and_of_it_again_when_it_is_set_back(path, name, value):
    module = Whole()
    watch, part = Watch(module), module.get_submodule(path)
    before = getattr(part, name)
    assert watch.look(module) == ""
    setattr(part, name, value)
    assert watch.why is None
    assert watch.look(module) == f"attribute {path}.{name}" == watch.why
    delattr(part, name)
    setattr(part, name, before)
    assert watch.look(module) == ""


def test_nothing_that_a_module_is_used_for_makes_it_look_again():
    module = Whole()
    watch = Watch(module)
    module(torch.randn(3, 4)).sum().backward()
    module.zero_grad()
    module.load_state_dict(module.state_dict())
    module.double().float().to("cpu")
    module.requires_grad_(False)
    copy.deepcopy(module)
    pickle.dumps(module)
    assert [*module.buffers()]
    module.parts[0].norm.weight = nn.Parameter(torch.ones(4))
    assert watch.changes == 1, "a parameter is heard where it may be a module"
    assert watch.look(module) == ""


def test_a_part_in_another_mode_than_it_was_in_is_noticed_and_the_whole_is_asked_by_others():
    module = Whole()
    module.parts[1].eval()
    watch = Watch(module)
    assert watch.look(module) == ""
    module.train()
    assert watch.look(module) == "attribute parts.1.norm.training"
    module.parts[1].eval()
    assert watch.look(module) == ""
    assert "training" not in watch.was[""][2]


def test_attributes_of_the_same_value_or_of_no_consequence_are_no_difference():
    module = Whole()
    watch = Watch(module)
    part = module.parts[0]
    part.scale, part.device, part.home, part.items, part.new = 0.5, "cpu", "/there", [2], 3
    part.table = {"a": 1}
    assert watch.look(module) == ""


def test_kinds_parts_hooks_and_ties_are_compared():
    def changed(change):
        module = Whole()
        watch = Watch(module)
        change(module)
        return watch.look(module)

    def hooked(part):
        return part.register_forward_hook(lambda *_: None)

    assert changed(lambda m: setattr(m, "first", nn.Tanh())) == "kind of part first"
    assert changed(lambda m: setattr(m, "third", nn.Tanh())) == "part third"
    assert changed(lambda m: setattr(m, "again", m.parts[1])) == "kind of part again"
    assert changed(lambda m: hooked(m.first)) == "hooks of first"
    assert changed(hooked) == ""
    assert changed(lambda m: hooked(m.first).remove()) == ""
    untied = nn.Parameter(torch.ones(4, 4))
    assert changed(lambda m: setattr(m.first, "weight", untied)) == "tied weights"
    again = {"weight": untied.data, "bias": torch.ones(4)}
    assert changed(lambda m: m.second.load_state_dict(again, assign=True)) == "tied weights"


def test_hooks_that_were_there_before_stay_and_can_be_removed():
    module = Whole()
    handle = module.first.register_forward_hook(lambda *_: None)
    watch = Watch(module)
    assert watch.look(module) == ""
    handle.remove()
    assert watch.look(module, again=True) == "hooks of first"


def test_two_may_watch_one_module_and_copies_have_plain_containers():
    module = Whole()
    one, other = Watch(module), Watch(module)
    module.first.in_features = 5
    assert one.why is other.why is None
    again = copy.deepcopy(module.first)
    assert {type(vars(again)[name]) for name in ("_parameters", "_buffers", "_modules")} == {dict}
    assert type(again._non_persistent_buffers_set) is set
    assert difference(copy.deepcopy(module), described(Whole())) == "attribute first.in_features"


class Capturing(Whole):
    """Puts hooks into its parts as it is first called, as transformers' models do."""

    def forward(self, x):
        if not self.first._forward_hooks:
            self.first.register_forward_hook(lambda *_: None)
            self.parts[1].norm.register_forward_pre_hook(lambda *_: None)
        return super().forward(x)


def test_hooks_that_a_module_s_own_forward_puts_into_its_parts_are_no_change():
    module = Capturing()
    watch = Watch(module)
    with watch.during_reference(module):
        module(torch.rand(2, 4))
    assert watch.look(module) == ""
    module.first.register_forward_hook(lambda *_: None)
    assert watch.look(module) == "hooks of first"
    with watch.during_reference(module):
        module(torch.rand(2, 4))
    assert watch.look(module) == "hooks of first", "a person's own stay one"


def test_other_changes_of_an_own_forward_count():
    module = Capturing()
    watch = Watch(module)
    with watch.during_reference(module):
        module(torch.rand(2, 4))
        module.first.in_features = 5
    assert watch.look(module) == "attribute first.in_features"


def test_a_weight_that_a_hook_made_under_autograd_is_copied_without_its_history():
    with warnings.catch_warnings(action="ignore"):
        made = nn.utils.weight_norm(nn.Linear(3, 3))
    x = torch.randn(2, 3)
    expected = made(x)
    assert not made.weight.is_leaf
    other = copied(made)
    torch.testing.assert_close(other(x), expected)
    assert other.weight_g is not made.weight_g
    assert not made.weight.is_leaf  # and what was copied is as it was
