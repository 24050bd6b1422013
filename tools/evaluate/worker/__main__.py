"""`python -m kernelwright.tools.evaluate.worker SOCKET`: answers until the parent is gone."""

import faulthandler
import socket
import sys
import traceback

from kernelwright.tools.evaluate.process_setup import on_fork, watch_processes
from kernelwright.tools.runtime import imports_out_of_sight


def main() -> None:
    """Load torch, then serve."""
    watch_processes()
    connection = socket.socket(fileno=int(sys.argv[1]))
    connection.set_inheritable(False)
    on_fork(connection.close)
    faulthandler.enable()

    with imports_out_of_sight():
        from kernelwright.tools.evaluate.worker.request_handler import serve

    try:
        serve(connection)
    except (EOFError, ConnectionError):
        return
    except Exception:
        traceback.print_exc()
        sys.exit(70)


main()
