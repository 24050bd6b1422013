"""What a person takes home: a verified candidate as files that do not need Kernelwright.

`export_folder` and `export_zip` write a drop-in module with its evidence, `export_kernelbench` a
single file for that benchmark. Nothing here runs what it writes.
"""

from kernelwright.tools.export.folder import (
    check_place,
    export_files,
    export_folder,
    export_kernelbench,
    export_zip,
    kernelbench,
)
from kernelwright.tools.export.guards import ExportRefusedError, Material, OwnBackward, check
from kernelwright.tools.export.render import package_name, snippet

__all__ = [
    "ExportRefusedError",
    "Material",
    "OwnBackward",
    "check",
    "check_place",
    "export_files",
    "export_folder",
    "export_kernelbench",
    "export_zip",
    "kernelbench",
    "package_name",
    "snippet",
]
