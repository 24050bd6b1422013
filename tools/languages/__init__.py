"""The kernel languages: one object each, and what works on candidates of any of them.

A language reads signatures, compiles for the device here or for a named architecture, loads,
inspects what was compiled, and says what an export prints. Compilers run in child processes that
can be killed; objects are kept by the content that made them. Loading imports torch and is for
workers.
"""

from kernelwright.tools.languages.base.c_source import INCLUDE
from kernelwright.tools.languages.base.compilers import (
    Built,
    CompileFailure,
    CompileRefusedError,
    shutdown_compilers,
)
from kernelwright.tools.languages.base.language import (
    CodeLine,
    Compiled,
    CompileJob,
    ExportParts,
    Language,
    LanguageSpec,
)
from kernelwright.tools.languages.registry import (
    compile_candidate,
    default_language,
    in_mode,
    language_named,
    language_of,
    languages,
    load_candidate,
    new_candidate,
    parse_kernel,
    register,
    with_settings,
)
from kernelwright.tools.languages.settings import only_measured, settings_to_try

__all__ = [
    "INCLUDE",
    "Built",
    "CodeLine",
    "CompileFailure",
    "CompileJob",
    "CompileRefusedError",
    "Compiled",
    "ExportParts",
    "Language",
    "LanguageSpec",
    "compile_candidate",
    "default_language",
    "in_mode",
    "language_named",
    "language_of",
    "languages",
    "load_candidate",
    "new_candidate",
    "only_measured",
    "parse_kernel",
    "register",
    "settings_to_try",
    "shutdown_compilers",
    "with_settings",
]
