"""The registry of CUDA's families: whoever adds one adds a line here.

Strategies are listed by their cost, and where that is equal in this order.
"""

from __future__ import annotations

from agents.playbook.cuda.case import Case
from agents.playbook.cuda.columns import COLUMN_FAMILY
from agents.playbook.cuda.partly import PARTLY_FAMILY
from agents.playbook.cuda.pointwise import POINTWISE_FAMILY
from agents.playbook.cuda.relay import RELAY_FAMILY
from agents.playbook.cuda.ring import RING_FAMILY
from agents.playbook.cuda.rows import ROW_FAMILY
from agents.playbook.cuda.rows_turned import TURNED_ROW_FAMILY
from agents.playbook.cuda.scans import SCAN_FAMILY
from agents.playbook.cuda.serial import SERIAL_FAMILY
from agents.playbook.cuda.split import SPLIT_FAMILY
from agents.playbook.cuda.staged import LINE_FAMILY
from agents.playbook.cuda.strips import STRIP_FAMILY
from agents.playbook.cuda.transposed import TRANSPOSED_FAMILY
from agents.playbook.cuda.waves import WAVE_FAMILY
from agents.playbook.emit import KernelFamily

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
