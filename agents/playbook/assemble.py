"""x."""
from agents.playbook.ir import Program
def returned(program: Program) -> tuple[str, ...]:
    """What the plan returns, one expression an output."""
    views = dict(program.views)
    return tuple(views.get(name, name) for name in program.returns)
