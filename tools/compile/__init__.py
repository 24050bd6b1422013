"""Turns a candidate's kernel into an object that can be loaded, for CUDA and for the host's CPU.

Compilers run in child processes that can be killed; objects are kept by the content that made
them. Nothing here loads or runs what was built.
"""

from tools.compile.arrange import with_macros
from tools.compile.build import compile_candidate
from tools.compile.cpp import cpp_compiler, cpp_flags
from tools.compile.cuda import INCLUDE
from tools.compile.pool import shutdown_compilers
from tools.compile.results import Built, CompileFailure
from tools.compile.vectorising import VectorisingTold, vector_report

__all__ = [
    "INCLUDE",
    "Built",
    "CompileFailure",
    "VectorisingTold",
    "compile_candidate",
    "cpp_compiler",
    "cpp_flags",
    "shutdown_compilers",
    "vector_report",
    "with_macros",
]
