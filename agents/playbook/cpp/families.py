"""The registry of C++ families: whoever adds one adds a line here.

Strategies are listed by how well their family fits a loop, and where that is equal in this order.
"""

from __future__ import annotations

from agents.playbook.cpp.case import Case
from agents.playbook.cpp.columns import COLUMN_FAMILY
from agents.playbook.cpp.columns_split import COLUMN_SPLIT_FAMILY
from agents.playbook.cpp.flat import FLAT_FAMILY
from agents.playbook.cpp.rows import ROW_FAMILY
from agents.playbook.cpp.split import SPLIT_FAMILY
from agents.playbook.emit import KernelFamily

FAMILIES: tuple[KernelFamily[Case], ...] = (
    FLAT_FAMILY,
    ROW_FAMILY,
    SPLIT_FAMILY,
    COLUMN_FAMILY,
    COLUMN_SPLIT_FAMILY,
)
