"""`python -m kernelwright.tools.evaluate.worker.importing`: imports what workers and guests do.

Started outside of walls, so that Python keeps the bytecode (`tools.evaluate.sandbox.filling`).
No file of anybody's is read and no device is opened; the exporter is tried on a module of ours.
"""

from kernelwright.tools.evaluate.foreign.guest import steps as _guest  # noqa: F401  # imported to be compiled
from kernelwright.tools.evaluate.worker import request_handler as _worker  # noqa: F401
from kernelwright.tools.evaluate.worker.compiled import import_compiler
from kernelwright.tools.tasks import rehearse


def main() -> None:
    """Everything up to the first compilation."""
    rehearse()
    import_compiler()


if __name__ == "__main__":
    main()
