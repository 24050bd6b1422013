"""The step of a module that updates buffers: gradients as autograd's, values as it writes."""

import copy

import pytest
import torch

from kernelwright.tools.tasks import trace
from kernelwright.tools.tasks.gradients.backward import backward_of
from kernelwright.tools.tasks.gradients.beside_autograd import check_updates
from kernelwright.tools.types import RefusedError, Task, TracePolicy
from kernelwright.tools.types.backward import BackwardRead

SOURCE = """
import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = {part}
        self.norm = {norm}

    def forward(self, x):
        return {result}


def get_inputs():
    return [torch.randn({shape}, dtype={dtype})]
"""
AVERAGED = """class Averaged(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x):
        with torch.no_grad():
            self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return {}
"""
LINEAR, PLAIN = "nn.Linear(8, 6)", "F.gelu(self.norm(self.part(x)))"


def source(
    norm="nn.BatchNorm1d(6)",
    part=LINEAR,
    result=PLAIN,
    shape="16, 8",
    before="",
    dtype="torch.float32",
):
    text = SOURCE.format(part=part, norm=norm, result=result, shape=shape, dtype=dtype)
    return text.replace("\n\nclass Model", f"\n\n{before}\n\nclass Model")


IMAGES = source(
    "nn.BatchNorm2d(6)", "nn.Conv2d(3, 6, 3)", "F.max_pool2d(" + PLAIN + ", 2)", "4, 3, 9, 9"
)
CASES = {
    "rows": source(),
    "images": IMAGES,
    "sequences": source("nn.BatchNorm1d(5)", shape="4, 5, 8"),
    "without-weights": source("nn.BatchNorm1d(6, affine=False)"),
    "another-momentum": source("nn.BatchNorm1d(6, momentum=0.5, eps=1e-3)"),
    "without-products": source("nn.BatchNorm1d(8)", "nn.Identity()"),
    "twice": source("nn.BatchNorm1d(6)", result="self.norm(self.norm(self.part(x)))"),
    "in-half": source("nn.BatchNorm1d(8)", "nn.Identity()", dtype="torch.bfloat16"),
    "instances": source("nn.InstanceNorm1d(5, track_running_stats=True)", shape="4, 5, 8"),
    "an-average-of-its-own": source("Averaged()", before=AVERAGED.format("torch.tanh(x)")),
}


def called(file, reads, held):
    names = {}
    exec(file, names)
    with torch.no_grad():
        found = names["Model"]()(*(held[read.kind, read.name] for read in reads))
    return (found,) if isinstance(found, torch.Tensor) else found


@pytest.mark.parametrize("text", CASES.values(), ids=CASES)
def test_gradients_and_new_values_are_those_of_the_module(built, text):
    read = built(text)
    task, reference, (x,) = read.task, read.reference, read.arguments
    assert task.graph.mutations
    module = copy.deepcopy(reference.module).requires_grad_(True)
    found = backward_of(reference, task, [x])
    for name, value in module.state_dict().items():
        assert torch.equal(reference.module.state_dict()[name], value), "the module stays"
    held = {("weight", name): value.clone() for name, value in module.state_dict().items()}
    held["input", "x"] = x.requires_grad_()
    y = module(x)
    held["result", ""], held["gradient", ""] = y.detach(), torch.randn_like(y)
    leaves = {("input", "x"): x} | {("weight", n): p for n, p in module.named_parameters()}
    expected = torch.autograd.grad(y, [*leaves.values()], held["gradient", ""])
    assert set(found.updates) == {item.target for item in task.graph.mutations}
    if found.forward:
        mine, *rest = called(found.forward, found.forward_reads, held)
        torch.testing.assert_close(mine, y)
        for name, value in zip(found.updates, rest, strict=False):
            torch.testing.assert_close(value, module.state_dict()[name], msg=name)
        kept = rest[len(found.updates) :]
        assert len(kept) == found.kept > 0
        held |= {("kept", str(at)): value for at, value in enumerate(kept)}
    got = called(found.source, found.reads, held)
    places = {(item.kind, item.name): item.place for item in found.gives}
    for key, value in zip(leaves, expected, strict=True):
        torch.testing.assert_close(got[places[key]], value, msg=str(key))
    assert not {read.name for read in found.reads} & set(found.updates)
    assert isinstance(trace(found.source, "backward.py", TracePolicy()), Task)


def test_a_backward_that_reads_what_the_forward_writes_is_refused(built):
    text = source("Averaged()", before=AVERAGED.format("x * self.mean"))
    read = built(text)
    with pytest.raises(RefusedError, match=r"reads the buffer 'norm.mean', which the forward upd"):
        backward_of(read.reference, read.task, read.arguments)


def test_new_values_that_the_module_would_not_write_are_refused(built):
    read = built(CASES["rows"])
    task, reference, (x,) = read.task, read.reference, read.arguments
    found = backward_of(reference, task, [x])
    held = {
        BackwardRead(kind="weight", name=n): v for n, v in reference.module.state_dict().items()
    }
    held[BackwardRead(kind="input", name="x")] = x

    def forward(tensors):
        weights = {read.name: value for read, value in tensors.items() if read.kind == "weight"}
        return (torch.func.functional_call(reference.module, weights, (x,)),)

    check_updates(forward, held, held, found)
    other = found.model_copy(update={"forward": found.forward.replace("0.9)", "0.8)")})
    assert other != found
    with pytest.raises(RefusedError, match=r"writes into 'norm.running_var' is not what was tr"):
        check_updates(forward, held, held, other)
