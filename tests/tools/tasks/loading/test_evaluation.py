"""A module with dropout in training mode is a task in evaluation mode, where that is asked for."""

import torch

from kernelwright.tools.tasks import Reference, draw, trace
from kernelwright.tools.types import Task, TracePolicy

DROPOUT = """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.drop = nn.BatchNorm1d(8), nn.Dropout(0.5)

        def forward(self, x):
            return self.drop(torch.relu(self.norm(x)))

    def get_inputs():
        return [torch.randn(4, 8)]
"""


def test_evaluation_mode_is_the_tasks_whatever_the_constructor_left(write):
    path = write(DROPOUT)
    as_it_is = trace(path.read_text(), str(path), TracePolicy())
    task = trace(path.read_text(), str(path), TracePolicy(evaluation=True))
    assert isinstance(as_it_is, Task)
    assert as_it_is.draws_random
    assert isinstance(task, Task)
    assert (task.draws_random, task.training, task.evaluation) == (False, False, True)
    assert not task.graph.mutations
    reference = Reference.build(task, "cpu")
    (x,) = draw(task, "task", 0, "cpu")
    assert not reference.module.training
    torch.testing.assert_close(reference.forward([x]), reference.forward([x]))
