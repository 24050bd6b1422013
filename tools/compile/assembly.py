"""Reads the compiler's assembly of a C++ kernel for what no C++ of a kernel's comes to.

Source can be disguised (pasted tokens, directives smuggled in through the name of a section); what
the compiler wrote cannot. This is a list of what is refused, by instruction and by directive: a
system call, a clock, a change of the processor's rounding, text that only an assembler's
own language makes.
"""

import re

_LITERAL = re.compile(r'"(?:\\.|[^"\\\n])*"')
# The compiler brackets assembly with #APP however the source disguised the keyword.
_INLINE = re.compile(r"^\s*#\s*APP", re.MULTILINE)
_WORDS = {
    "ask the system": r"syscall|sysenter|int\s+\$(?:0x80|128)|svc|hvc|smc",
    "read a clock": r"rdtscp?|rdpmc|mrs\s+\w+,\s*cnt\w+",
    "change how the processor rounds": (
        r"v?ldmxcsr|fldcw|fldenv|frstor|f?xrstors?(?:64)?|msr\s+fpcr"
    ),
    "change the thread's own registers": r"wr[fg]sbase\w*|wrpkru|msr\s+tpidr\w*",
    "contain an assembler's directive": (
        r"\.(?:incbin|include|macro|altmacro|rept|irpc?|pushsection|popsection|subsection|previous"
        r"|org|insn|reloc|symver|gnu_indirect_function)"
    ),
}
_FORBIDDEN = {
    what: re.compile(rf"(?<![\w.$@%])(?:{words})(?![\w.$@])") for what, words in _WORDS.items()
}
_SECTION = re.compile(r'\.section\s+([^,\s]+)(?:\s*,\s*"([^"]*)")?')
_PLAIN_SECTION = re.compile(
    r"\.(?:text|rodata|data|bss|tbss|tdata|note|gnu|eh_frame|comment|init_array|fini_array|ctors|dtors)[\w.$-]*"
)


def found_in(assembly: str) -> str:
    """What the assembly does that a kernel may not, as a verb and its object; empty if nothing."""
    if _INLINE.search(assembly):
        return "contain assembly"
    bare = _LITERAL.sub('""', assembly)
    for what, pattern in _FORBIDDEN.items():
        if pattern.search(bare):
            return what
    for name, flags in _SECTION.findall(assembly):
        runs = "x" in flags and not name.startswith(".text")
        if runs or not _PLAIN_SECTION.fullmatch(name):
            return f"make a section of its own ({name[:40]})"
    return ""
