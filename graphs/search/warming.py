"""What a search imports when it first needs it, imported beforehand, where nobody waits.

Not here: torch's compilers and whatever else only workers import (`tools.evaluate.worker`).
"""

from importlib import import_module

from kernelwright.profiles.models import Models
from kernelwright.tools.archive import Target, warm_up


def import_beforehand(target: Target, models: Models | None = None) -> None:
    """Import what the first searches need; takes seconds the first time, and no time after."""
    warm_up()
    for name in needed(target, models):
        import_module(name)


def needed(target: Target, models: Models | None) -> tuple[str, ...]:
    """The modules that searches import late."""
    emitters = {"cpu": ("cpp",), "cuda": ("cuda",)}.get(target, ("cpp", "cuda"))
    names = [
        "kernelwright.tools.codegen.library.repertoire",
        *(f"kernelwright.tools.codegen.{name}" for name in emitters),
    ]
    names += (
        ["kernelwright.agents.llm.chat_model", "langchain_openai"] if models is not None else []
    )
    return ("kernelwright.tools.evaluate.executors.local.executor", *names)
