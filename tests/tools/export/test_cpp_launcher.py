"""What an exported C++ kernel is built with on a machine other than the one it was found on."""

import platform

import pytest

from kernelwright.tools.languages.cpp.compile import cpp_flags
from kernelwright.tools.languages.cpp.launcher import known_here


def test_a_flag_of_one_processor_family_is_left_out_on_another(monkeypatch: pytest.MonkeyPatch):
    flags = ("-O3", "-mprefer-vector-width=512", "-march=native")
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert known_here(flags) == ["-O3", "-march=native"]
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    assert known_here(flags) == list(flags)


def test_where_it_was_found_it_is_built_with_the_same_flags():
    assert known_here(cpp_flags()[0]) == list(cpp_flags()[0])
