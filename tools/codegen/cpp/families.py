"""The registry of C++ families: whoever adds one adds a line here.

Strategies are listed by how well their family fits a loop, and where that is equal in this order.
"""

from __future__ import annotations

from kernelwright.tools.codegen.cpp.case import Case
from kernelwright.tools.codegen.cpp.columns import COLUMN_FAMILY
from kernelwright.tools.codegen.cpp.columns_split import COLUMN_SPLIT_FAMILY
from kernelwright.tools.codegen.cpp.flat import FLAT_FAMILY
from kernelwright.tools.codegen.cpp.rows import ROW_FAMILY
from kernelwright.tools.codegen.cpp.split import SPLIT_FAMILY
from kernelwright.tools.codegen.ir.family import KernelFamily

FAMILIES: tuple[KernelFamily[Case], ...] = (
    FLAT_FAMILY,
    ROW_FAMILY,
    SPLIT_FAMILY,
    COLUMN_FAMILY,
    COLUMN_SPLIT_FAMILY,
)
