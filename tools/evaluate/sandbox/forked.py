"""`python -P -m kernelwright.tools.evaluate.sandbox.forked SOCKET MODULE PARENT`: a fork server.

It imports MODULE, which brings torch and whatever else workers need, and never runs anybody's code.
Whoever asks gets a fork of it that joins the namespaces which bubblewrap has made (as `nsenter`
does) and goes on as `python -m` another module would, with all imports behind it: 20 ms instead of
seconds of a processor. `fork_server` is the other side. The server ends when its socket is closed.

A fork has its own copy of everything: nothing that one does is seen by the server or by another.
Memory of the server holds no secret, as its environment is a worker's. Nothing is computed here, so
that no pool of threads is lost in a fork (OpenBLAS ends its own before one).
"""

import ctypes
import fcntl
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TypedDict

from kernelwright.tools.evaluate.sandbox import launch
from kernelwright.tools.runtime import imports_out_of_sight

READY, JOINED = b"ready", b"joined"
MESSAGE_BYTES, DESCRIPTORS_MAX = 1 << 18, 32
_NAMESPACES = ("mnt", "net", "ipc", "uts", "cgroup", "pid")
_OWNER_OF_NAMESPACE = 0xB701  # ioctl NS_GET_USERNS, linux/nsfs.h
_DEATH_SIGNAL, _DUMPABLE = 1, 4
_ABOVE_ALL = 256  # descriptors are moved out of each other's way to above this number
_STANDARD = 3  # descriptors: input, output, errors

_libc = ctypes.CDLL(None, use_errno=True)


class Job(TypedDict):
    """What a fork is to become; its descriptors come beside.

    First the end of a pipe for the wait status, a socket to the first process of the namespaces, a
    pipe for the word that it joined, and its output; the others get the `numbers` under which
    `arguments` know them. `first` is that first process, as this machine numbers it, `number` what
    the answer is told by.
    """

    number: int
    first: int
    module: str
    arguments: list[str]
    environment: dict[str, str]
    folder: str
    limits: dict[str, int]
    niceness: int
    heeds_interrupts: bool
    numbers: list[int]


def main() -> None:
    """Import, say so, and fork until nobody asks any more."""
    launch.die_with(int(sys.argv[3]), signal.SIGKILL)  # its socket is looked at after all imports
    connection = socket.socket(fileno=int(sys.argv[1]))
    connection.set_inheritable(False)
    ahead = importlib.import_module(sys.argv[2])
    with imports_out_of_sight():
        ahead.main()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # whoever asked learns of an end by its pipe
    connection.sendall(READY)
    while True:
        said, descriptors, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, DESCRIPTORS_MAX)
        if not said:
            return
        server = os.getpid()
        if (pid := os.fork()) == 0:
            connection.close()
            job: Job = json.loads(said)
            begin(job, descriptors, server)
            return  # what ran has returned: this process ends as Python does
        for descriptor in descriptors:
            os.close(descriptor)
        connection.sendall(f"{json.loads(said)['number']} {pid}".encode())


def begin(job: Job, descriptors: list[int], server: int) -> None:
    """Join the namespaces, and become the module in a child, which alone is in all of them."""
    status, first, word = descriptors.pop(0), descriptors.pop(0), descriptors[0]
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        os.setpriority(os.PRIO_PROCESS, 0, max(job["niceness"], os.getpriority(os.PRIO_PROCESS, 0)))
        join(job["first"])
        os.write(first, b"\n")
        os.read(first, 1)  # until it does not let itself be looked at any more
        os.close(first)
        launch.die_with(server, signal.SIGKILL)
        child = os.fork()
    except OSError as error:
        os.write(word, f"{error}".encode())
        os._exit(126)
    if child:
        launch.keep_only(status)
        report(launch.wait_for(child), status, job["first"])
    become(job, descriptors)


def join(first: int) -> None:
    """Enter the namespaces of a process: those of a user last, as they take our rights away.

    Raises:
        OSError: it is gone, or may not be joined.
    """
    opened = {name: _namespace(first, name) for name in (*_NAMESPACES, "user")}
    own = _namespace(os.getpid(), "user")
    try:
        if os.path.samestat(os.fstat(opened["pid"]), os.stat("/proc/self/ns/pid")):
            raise OSError(f"process {first} is behind no wall")
        # Bubblewrap may nest two namespaces of users; the outer one owns all that there is to join.
        owner = fcntl.ioctl(opened["mnt"], _OWNER_OF_NAMESPACE)
        if not os.path.samestat(os.fstat(owner), os.fstat(own)):
            _enter(owner, "user")
        for name in _NAMESPACES:
            _enter(opened[name], name)
        inner = os.fstat(opened["user"])
        if not any(os.path.samestat(inner, os.fstat(there)) for there in (owner, own)):
            _enter(opened["user"], "user")
        os.close(owner)
    finally:
        for descriptor in (*opened.values(), own):
            os.close(descriptor)


def _namespace(pid: int, name: str) -> int:
    return os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)


def _enter(descriptor: int, name: str) -> None:
    if _libc.setns(descriptor, 0):
        number = ctypes.get_errno()
        raise OSError(number, f"the {name} namespace cannot be joined: {os.strerror(number)}")


def report(status: int, status_fd: int, first: int) -> None:
    """Say how it ended, and take the wall down; whoever took it down before does not listen."""
    with suppress(OSError):
        os.write(status_fd, f"{status}\n".encode())
        os.kill(first, signal.SIGKILL)
    os._exit(0)


def become(job: Job, descriptors: list[int]) -> None:
    """Give up every right that a worker does not have, and run the module."""
    word = settle(job, descriptors)
    os.environ.clear()
    os.environ.update(job["environment"])
    tempfile.tempdir = None
    if (numpy := sys.modules.get("numpy.random")) is not None:
        numpy.seed()  # as a process of its own would; `random` does so by itself
    os.write(word, JOINED)
    os.close(word)
    sys.argv = [job["module"], *job["arguments"]]
    runpy.run_module(job["module"], run_name="__main__", alter_sys=True)


def settle(job: Job, descriptors: list[int]) -> int:
    """The process's folder, limits, rights and descriptors; the one for its last word."""
    os.chdir(job["folder"])
    launch.limit(job["limits"])
    launch.drop_privileges()
    # Joining has made it undumpable, which hides its own files from it where it is not root's.
    _libc.prctl(_DUMPABLE, 1, 0, 0, 0)
    _libc.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="utf-8")
    above = max(_ABOVE_ALL, *(number + 1 for number in job["numbers"]), 0)
    word, output, *given = [fcntl.fcntl(n, fcntl.F_DUPFD_CLOEXEC, above) for n in descriptors]
    for standard in (1, 2):
        os.dup2(output, standard)
    heeds = signal.default_int_handler if job["heeds_interrupts"] else signal.SIG_IGN
    signal.signal(signal.SIGINT, heeds)  # as it would inherit it, whatever the server does
    os.closerange(_STANDARD, above)
    for number, descriptor in zip(job["numbers"], given, strict=True):
        os.dup2(descriptor, number)
    for descriptor in (output, *given):
        os.close(descriptor)
    return word


if __name__ == "__main__":
    main()
