"""`python -m kernelwright.tools.evaluate.foreign.guest SOCKET`: carries out a judge's orders."""

import ctypes
import faulthandler
import signal
import socket
import sys

from kernelwright.tools.runtime import imports_out_of_sight

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Die with whoever started us, then serve."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    connection = socket.socket(fileno=int(sys.argv[1]))
    connection.set_inheritable(False)
    faulthandler.enable()

    with imports_out_of_sight():
        from kernelwright.tools.evaluate.foreign.guest.steps import serve

    try:
        serve(connection)
    except (EOFError, ConnectionError):
        return


main()
