"""What families of kernels are, and how a language's emitter asks them; nothing of one language.

`family` is the seam (`KernelFamily`), `loops` makes one for loops out of three functions,
`walking` holds the emitter that walks a language's registry of families, `emitter` what a program
asks of any emitter. A new family is a file beside its like and one line in the registry
(`cuda/families.py` or `cpp/families.py`).
"""

from agents.playbook.emit.emitter import LIBRARY, Emitter
from agents.playbook.emit.family import Fit, KernelFamily
from agents.playbook.emit.loops import LoopFamily, NodeCase
from agents.playbook.emit.walking import FamilyEmitter

__all__ = [
    "LIBRARY",
    "Emitter",
    "FamilyEmitter",
    "Fit",
    "KernelFamily",
    "LoopFamily",
    "NodeCase",
]
