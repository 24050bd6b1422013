"""Surfaces: settings spaces of loops that were measured as a whole, kept as data.

A search policy can be judged on them in no time and without a device: what it asks for is known.
"""

from kernelwright.tools.evaluate.surfaces.record import (
    Point,
    Space,
    Surface,
    Way,
    append,
    known_spaces,
    load_surfaces,
    points_files,
    read_points,
)
from kernelwright.tools.evaluate.surfaces.repertoire import RecordedRepertoire

__all__ = [
    "Point",
    "RecordedRepertoire",
    "Space",
    "Surface",
    "Way",
    "append",
    "known_spaces",
    "load_surfaces",
    "points_files",
    "read_points",
]
