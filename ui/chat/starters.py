"""What a person can begin with: examples to press, each a whole message."""

from chainlit.types import Starter

EXAMPLE = """\
Make this faster:

```python
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.randn(2048, 4096)]
```
"""

STARTERS = (
    Starter(label="Try it with a softmax", message=EXAMPLE, icon=None),
    Starter(label="What can you do?", message="What can you do?", icon=None),
    Starter(label="What works on this machine?", message="What works on this machine?", icon=None),
    Starter(label="Show my runs", message="Show my runs", icon=None),
)
