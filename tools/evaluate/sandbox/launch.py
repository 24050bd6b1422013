"""A script: the first process of a walled tree, parent of the one that runs the code of others.

`python -I -S launch.py SETTINGS COMMAND...`, settings as JSON (see `walled`). Bubblewrap runs it as
process 1 of its namespaces; the wall `namespaces` is put up here; `none` only keeps the tree
together. It starts the command, collects orphans and writes the command's wait status to a pipe
of the parent's. When it ends, everything below it has ended.

Where the process comes from elsewhere (`forked`), it only keeps the namespaces: it says that they
stand, and collects orphans until it is killed.

It must stay a plain script without imports of ours: its start is part of every worker's.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import signal
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any

_DEATH_SIGNAL, _DUMPABLE, _DROP_BOUND, _SUBREAPER, _NO_NEW_PRIVILEGES = 1, 4, 24, 36, 38
_NEW_USERS = 0x10000000
_NEW_REST = 0x00020000 | 0x08000000 | 0x20000000 | 0x40000000  # mounts, IPC, processes, network
_BIND, _RECURSIVE, _PRIVATE = 4096, 16384, 1 << 18
_CAPSET, _MOUNT_SETATTR = 126 if os.uname().machine == "x86_64" else 91, 442
_CAPABILITY_VERSION, _CAPABILITIES = 0x20080522, 64
_SET_FLAGS, _UP_AND_RUNNING = 0x8914, 0x41
_HERE, _AT_RECURSIVE, _READ_ONLY = -100, 0x8000, 1
# Landlock's system calls, and its rights over files by their bits.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF, _BENEATH, _ASK_VERSION = 444, 445, 446, 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE = 1, 2, 4, 8, 1 << 14
_REMOVE_DIR, _REMOVE_FILE, _MAKE_DIR, _MAKE_REG = 1 << 4, 1 << 5, 1 << 7, 1 << 8
_MAKE_CHAR, _MAKE_SOCK, _MAKE_FIFO, _MAKE_BLOCK = 1 << 6, 1 << 9, 1 << 10, 1 << 11
_MAKE_SYM, _REFER, _NO_SIGNALS = 1 << 12, 1 << 13, 2
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_OF_FILES = _EXECUTE | _READ_FILE | _WRITE_FILE | _TRUNCATE
_SHARED = _READ_FILE | _WRITE_FILE | _TRUNCATE | _MAKE_REG | _REMOVE_FILE
_WRITE = _READ | _SHARED | _MAKE_DIR | _REMOVE_DIR | _MAKE_SOCK | _MAKE_FIFO | _MAKE_SYM | _REFER
_EVERY_RIGHT = _WRITE | _MAKE_CHAR | _MAKE_BLOCK
_TRUNCATES_FROM, _SIGNALS_FROM = 3, 6
_ENDING_S = 2.0
READY = b"ready"

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Put up what is left to put up, run the command, say how it ended."""
    settings: dict[str, Any] = json.loads(sys.argv[1])
    wall, status_fd = settings["wall"], settings["status_fd"]
    if wall == "namespaces":
        enter_namespaces(settings)
    elif wall == "none":
        _libc.prctl(_SUBREAPER, 1, 0, 0, 0)
        signal.signal(signal.SIGTERM, leave)
        die_with(settings["parent"], signal.SIGTERM)
    with contextlib.suppress(OSError):
        # When memory runs out, this tree is the first to go.
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="utf-8")
    if wall == "namespaces":
        raise_loopback()
        close_files(settings)
        if "privileges" not in settings["without"]:
            drop_privileges()
    limit(settings["limits"])
    if (ready_fd := settings.get("ready_fd")) is not None:
        keep_namespaces(ready_fd)
    launcher = os.getpid()
    child = os.fork()
    if child == 0:
        run(sys.argv[2:], launcher, status_fd, settings)
    # Nobody of the same user may look into this process.
    _libc.prctl(_DUMPABLE, 0, 0, 0, 0)
    keep_only(status_fd)
    status = wait_for(child)
    if wall == "none":
        end_descendants()
    os.write(status_fd, f"{status}\n".encode())
    os._exit(0)


def run(command: list[str], launcher: int, status_fd: int, settings: dict[str, Any]) -> None:
    """Become the command, which dies with the launcher."""
    try:
        os.close(status_fd)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        die_with(launcher, signal.SIGKILL)
        if settings.get("open_places"):
            if settings["wall"] == "none":
                drop_privileges()
            hide(settings["open_places"])
        os.execv(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]} cannot be started: {error}\n".encode())
    os._exit(127)


def keep_namespaces(ready_fd: int) -> None:
    """Say that they stand, and be their first process until somebody kills it.

    Who does not let itself be looked at cannot be joined either, so that comes after.
    """
    keep_only(ready_fd)
    os.write(ready_fd, READY)
    os.read(ready_fd, 1)
    _libc.prctl(_DUMPABLE, 0, 0, 0, 0)
    os.close(ready_fd)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        signal.sigwait({signal.SIGCHLD})


def die_with(parent: int, how: signal.Signals) -> None:
    """Get a signal when the parent dies; leave at once when it is gone already."""
    _libc.prctl(_DEATH_SIGNAL, how, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def wait_for(child: int) -> int:
    """Collect whatever ends until the child does; its wait status."""
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == child:
            return status


def keep_only(status_fd: int) -> None:
    """Close what was inherited, so that a pipe is closed when the command's side is."""
    os.closerange(3, status_fd)
    os.closerange(max(3, status_fd + 1), 1 << 20)


def limit(limits: dict[str, int]) -> None:
    """Resource limits by their names, such as FSIZE, as far as the hard limits allow."""
    for name, value in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


# What holds a tree together where there are no namespaces.


def leave(*_: object) -> None:
    """End everything below and go."""
    end_descendants()
    os._exit(0)


def end_descendants() -> None:
    """Kill every descendant until none is left; orphans come to us, as we are a subreaper."""
    deadline = time.monotonic() + _ENDING_S
    while (found := descendants(os.getpid())) and time.monotonic() < deadline:
        for how in (signal.SIGSTOP, signal.SIGKILL):  # one that is stopped starts no other
            for pid in found:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, how)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def descendants(pid: int) -> list[int]:
    """Everything below a process, as the system lists it."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        children: list[int] = []
        for listed in Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                children += [int(word) for word in listed.read_text(encoding="utf-8").split()]
        found += children
        waiting += children
    return found


# What hides files where bubblewrap is missing, whether there are namespaces or not.


def hide(places: dict[str, list[str]]) -> None:
    """Give up every file but these, for good and for all that is started from here (Landlock).

    Other processes cannot be looked into either: their memory, environment and open files.
    """
    version = _libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _ASK_VERSION)
    rights = _EVERY_RIGHT if version >= _TRUNCATES_FROM else _EVERY_RIGHT & ~_TRUNCATE
    scoped = _NO_SIGNALS if version >= _SIGNALS_FROM else 0
    attributes = (ctypes.c_uint64 * 3)(rights, 0, scoped)
    ruleset = _libc.syscall(_CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(24), 0)
    check(min(ruleset, 0), "landlock_create_ruleset")
    given = {"read": _READ, "list": _READ_DIR, "share": _SHARED, "write": _WRITE}
    for kind, right in given.items():
        for place in places[kind]:
            allow(ruleset, place, right & rights)
    check(_libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "no_new_privs")
    check(_libc.syscall(_RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")
    os.close(ruleset)


def allow(ruleset: int, place: str, rights: int) -> None:
    """Give rights over a file, or over a folder and what lies in it; nothing where it is not."""
    try:
        opened = os.open(place, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    if not os.path.isdir(place):
        rights &= _OF_FILES
    rule = struct.pack("=Qi", rights, opened)
    check(_libc.syscall(_ADD_RULE, ruleset, _BENEATH, rule, 0), f"landlock_add_rule {place}")
    os.close(opened)


# A wall of our own, where bubblewrap is missing.


def enter_namespaces(settings: dict[str, Any]) -> None:
    """Go on as process 1 of new namespaces; the process that was started only waits."""
    user, group = os.getuid(), os.getgid()
    users = "users" not in settings["without"]
    if users and _libc.unshare(_NEW_USERS | _NEW_REST) == 0:
        Path("/proc/self/setgroups").write_text("deny", encoding="utf-8")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="utf-8")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="utf-8")
    else:
        check(_libc.unshare(_NEW_REST), "unshare")  # root may, where others may not
    die_with(settings["parent"], signal.SIGKILL)
    inner = os.fork()
    if inner:
        keep_only(2)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1]) & 0xFF)
    _libc.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def raise_loopback() -> None:
    """Switch on the new network's own loopback, which tools talk to themselves over."""
    # A kernel that refuses leaves it off, and the wall is no lower for that.
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as some,
    ):
        fcntl.ioctl(some, _SET_FLAGS, struct.pack("16sh14x", b"lo", _UP_AND_RUNNING))


def close_files(settings: dict[str, Any]) -> None:
    """Own /proc and /dev/shm, some places covered, all else read-only but the scratch."""
    scratch = settings["scratch"]
    check(_libc.mount(None, b"/", None, _RECURSIVE | _PRIVATE, None), "mount /")
    check(_libc.mount(b"proc", b"/proc", b"proc", 0, None), "mount /proc")
    shm = f"size={settings['shared_bytes']},mode=1777".encode()
    check(_libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, shm), "mount /dev/shm")
    for place in settings["covered"]:
        if Path(place).is_dir():
            check(_libc.mount(b"tmpfs", place.encode(), b"tmpfs", 0, b"size=4k"), place)
        else:
            check(_libc.mount(b"/dev/null", place.encode(), None, _BIND, None), place)
    # Root may write to the system's settings through a new /proc without any capability.
    check(_libc.mount(b"/proc/sys", b"/proc/sys", None, _BIND, None), "mount /proc/sys")
    read_only("/proc/sys", True, 0)
    if "files" in settings["without"]:
        return
    path = scratch.encode()
    check(_libc.mount(path, path, None, _BIND | _RECURSIVE, None), scratch)
    read_only("/", True, _AT_RECURSIVE)
    # A GPU's driver does not start where device nodes or its own process's files are read-only.
    for place in (scratch, "/dev/shm", "/dev", "/proc"):
        read_only(place, False, 0)
    os.chdir(scratch)  # the folder as it was mounted now


def read_only(path: str, on: bool, flags: int) -> None:
    """Set or clear the mount attribute."""
    attributes = (ctypes.c_uint64 * 4)(_READ_ONLY if on else 0, 0 if on else _READ_ONLY, 0, 0)
    done = _libc.syscall(
        _MOUNT_SETATTR, _HERE, path.encode(), flags, ctypes.byref(attributes), ctypes.c_size_t(32)
    )
    check(done, f"mount_setattr {path}")


def drop_privileges() -> None:
    """No capability, none to be gained: otherwise the mounts could be taken off again."""
    for capability in range(_CAPABILITIES):
        _libc.prctl(_DROP_BOUND, capability, 0, 0, 0)
    check(_libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "no_new_privs")
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    none = (ctypes.c_uint32 * 6)()
    check(_libc.syscall(_CAPSET, ctypes.byref(header), ctypes.byref(none)), "capset")


def check(result: int, what: str) -> None:
    """Say which step of the wall could not be taken, and give up."""
    if result != 0:
        number = ctypes.get_errno()
        os.write(2, f"{what}: {os.strerror(number)}\n".encode())
        os._exit(126)


if __name__ == "__main__":
    main()
