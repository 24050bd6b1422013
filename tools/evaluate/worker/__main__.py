"""`python -m tools.evaluate.worker SOCKET PARENT`: answers requests until the parent is gone."""

import faulthandler
import socket
import sys
import traceback

from tools.evaluate.worker.ground import bind_to_parent, on_fork


def main() -> None:
    """Bind to the parent, load torch, then serve."""
    descriptor, parent = int(sys.argv[1]), int(sys.argv[2])
    bind_to_parent(parent)
    connection = socket.socket(fileno=descriptor)
    connection.set_inheritable(False)
    on_fork(connection.close)
    faulthandler.enable()

    from tools.evaluate.worker.serve import serve

    try:
        serve(connection)
    except (EOFError, ConnectionError):
        return
    except Exception:
        traceback.print_exc()
        sys.exit(70)


main()
