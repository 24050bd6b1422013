"""Reads the little of an ELF object that the symbol check needs: sections and undefined symbols.

64-bit little-endian only, which is every host that CPython and torch ship for on Linux.
"""

import struct
from collections.abc import Sequence
from pathlib import Path

from kernelwright.tools.types import Value

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_TAG = struct.Struct("<qQ")
_DYNSYM, _INDIRECT = 11, 10
_LOAD, _DYNAMIC, _TLS, _RELRO = 1, 2, 7, 0x6474E552
_WRITABLE = 2


class SharedObject(Value):
    """What an object needs from others, and how its parts are called.

    `writable_bytes` is what stays writable once it is loaded, thread-local storage included;
    `dynamic` the tags of the loader's table; `chooses_when_loaded` whether a function's address
    is decided by code of its own.
    """

    undefined: tuple[str, ...]
    defined: tuple[str, ...]
    sections: tuple[str, ...]
    writable_bytes: int = 0
    dynamic: tuple[int, ...] = ()
    chooses_when_loaded: bool = False


def read_shared_object(path: Path) -> SharedObject:
    """Read a shared object; ValueError when it is none of ours to read."""
    data = path.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{path.name} is no 64-bit little-endian ELF object")
    header = _HEADER.unpack_from(data)
    offset, size, count, names_index = header[6], header[11], header[12], header[13]
    sections = [_SECTION.unpack_from(data, offset + size * index) for index in range(count)]
    names = _table(data, sections[names_index])
    segments = [
        _SEGMENT.unpack_from(data, header[5] + header[9] * index) for index in range(header[10])
    ]
    undefined: list[str] = []
    defined: list[str] = []
    indirect = False
    for section in sections:
        if section[1] == _DYNSYM:
            strings = _table(data, sections[section[6]])
            for start in range(section[4], section[4] + section[5], _SYMBOL.size):
                name, kind, _, index, _, _ = _SYMBOL.unpack_from(data, start)
                indirect = indirect or kind & 15 == _INDIRECT
                if name:
                    (defined if index else undefined).append(_string(strings, name))
    return SharedObject(
        undefined=tuple(undefined),
        defined=tuple(defined),
        sections=tuple(_string(names, section[0]) for section in sections),
        writable_bytes=_writable_bytes(segments),
        dynamic=_dynamic(data, segments),
        chooses_when_loaded=indirect,
    )


def _writable_bytes(segments: Sequence[tuple[int, ...]]) -> int:
    """Bytes that can be written after loading: writable, and not made read-only by the loader."""
    fixed = [(item[3], item[3] + item[6]) for item in segments if item[0] == _RELRO]
    total = sum(item[6] for item in segments if item[0] == _TLS)
    for item in segments:
        if item[0] == _LOAD and item[1] & _WRITABLE:
            start, end = item[3], item[3] + item[6]
            covered = [max(0, min(end, to) - max(start, at)) for at, to in fixed]
            total += end - start - sum(covered)
    return total


def _dynamic(data: bytes, segments: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    tags: list[int] = []
    for item in segments:
        if item[0] == _DYNAMIC:
            for start in range(item[2], item[2] + item[5], _TAG.size):
                tag, _ = _TAG.unpack_from(data, start)
                if tag == 0:
                    break
                tags.append(tag)
    return tuple(tags)


def _table(data: bytes, section: tuple[int, ...]) -> bytes:
    return data[section[4] : section[4] + section[5]]


def _string(table: bytes, start: int) -> str:
    return table[start : table.index(b"\0", start)].decode("ascii", errors="replace")
