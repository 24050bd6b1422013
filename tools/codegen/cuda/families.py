"""The registry of CUDA's families: whoever adds one adds a line here.

Strategies are listed by their cost, and where that is equal in this order.
"""

from __future__ import annotations

from kernelwright.tools.codegen.cuda.families.columns import COLUMN_FAMILY
from kernelwright.tools.codegen.cuda.families.partly import PARTLY_FAMILY
from kernelwright.tools.codegen.cuda.families.pointwise import POINTWISE_FAMILY
from kernelwright.tools.codegen.cuda.families.relay import RELAY_FAMILY
from kernelwright.tools.codegen.cuda.families.ring import RING_FAMILY
from kernelwright.tools.codegen.cuda.families.rows import ROW_FAMILY
from kernelwright.tools.codegen.cuda.families.rows_turned import TURNED_ROW_FAMILY
from kernelwright.tools.codegen.cuda.families.scans import SCAN_FAMILY
from kernelwright.tools.codegen.cuda.families.serial import SERIAL_FAMILY
from kernelwright.tools.codegen.cuda.families.split import SPLIT_FAMILY
from kernelwright.tools.codegen.cuda.families.staged import LINE_FAMILY
from kernelwright.tools.codegen.cuda.families.strips import STRIP_FAMILY
from kernelwright.tools.codegen.cuda.families.transposed import TRANSPOSED_FAMILY
from kernelwright.tools.codegen.cuda.families.waves import WAVE_FAMILY
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.codegen.ir.family import KernelFamily

FAMILIES: tuple[KernelFamily[Case], ...] = (
    POINTWISE_FAMILY,
    STRIP_FAMILY,
    LINE_FAMILY,
    TRANSPOSED_FAMILY,
    SCAN_FAMILY,
    COLUMN_FAMILY,
    ROW_FAMILY,
    TURNED_ROW_FAMILY,
    PARTLY_FAMILY,
    RING_FAMILY,
    RELAY_FAMILY,
    WAVE_FAMILY,
    SPLIT_FAMILY,
    SERIAL_FAMILY,
)
