"""A large model as regions between boundary operators, and classes of equal regions."""

from kernelwright.tools.tasks.regions.classes import model_regions
from kernelwright.tools.tasks.regions.partition import boundaries, find_regions, in_order
from kernelwright.tools.tasks.regions.source import keeps_layout, region_source

__all__ = [
    "boundaries",
    "find_regions",
    "in_order",
    "keeps_layout",
    "model_regions",
    "region_source",
]
