"""torch imports some of its parts when they are first needed, which may be inside of a plan."""

import subprocess
import sys

import pytest

from kernelwright.tools.candidates.run.guards import BUILTINS

FIRST_VIEW = """
import torch
from kernelwright.tools.candidates.run.guards import BUILTINS
from kernelwright.tools.evaluate.profiling.coverage import LibraryClock

plan = {"__builtins__": dict(BUILTINS) if KEPT else {}}
exec("def forward(x):\\n    return x.reshape((6,))", plan)
x = torch.zeros(2, 3)
with LibraryClock(lambda: None):
    plan["forward"](x)
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize(("kept", "ends"), [(True, 0), (False, 1)])
def test_the_first_view_of_a_process_may_be_a_timed_plans(kept: bool, ends: int) -> None:
    program = FIRST_VIEW.replace("KEPT", repr(kept))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    # Without anything to import with, the same plan fails: that is what this guards against.
    assert done.returncode == ends, done.stderr
    assert ("__import__" in done.stderr) is bool(ends)


def test_nothing_but_torch_is_imported() -> None:
    take = BUILTINS["__import__"]
    assert callable(take)
    for name in ("os", "sys", "builtins", "torchvision"):
        with pytest.raises(ImportError):
            take(name)
