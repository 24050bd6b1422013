"""Reads the little of an ELF object that the symbol check needs: sections and undefined symbols.

64-bit little-endian only, which is every host that CPython and torch ship for on Linux.
"""

import struct
from pathlib import Path

from tools.nouns import Value

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_DYNSYM = 11


class SharedObject(Value):
    """What an object needs from others, and how its parts are called."""

    undefined: tuple[str, ...]
    defined: tuple[str, ...]
    sections: tuple[str, ...]


def read_shared_object(path: Path) -> SharedObject:
    """Read a shared object; ValueError when it is none of ours to read."""
    data = path.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{path.name} is no 64-bit little-endian ELF object")
    header = _HEADER.unpack_from(data)
    offset, size, count, names_index = header[6], header[11], header[12], header[13]
    sections = [_SECTION.unpack_from(data, offset + size * index) for index in range(count)]
    names = _table(data, sections[names_index])
    undefined: list[str] = []
    defined: list[str] = []
    for section in sections:
        if section[1] == _DYNSYM:
            strings = _table(data, sections[section[6]])
            for start in range(section[4], section[4] + section[5], _SYMBOL.size):
                name, _, _, index, _, _ = _SYMBOL.unpack_from(data, start)
                if name:
                    (defined if index else undefined).append(_string(strings, name))
    return SharedObject(
        undefined=tuple(undefined),
        defined=tuple(defined),
        sections=tuple(_string(names, section[0]) for section in sections),
    )


def _table(data: bytes, section: tuple[int, ...]) -> bytes:
    return data[section[4] : section[4] + section[5]]


def _string(table: bytes, start: int) -> str:
    return table[start : table.index(b"\0", start)].decode("ascii", errors="replace")
