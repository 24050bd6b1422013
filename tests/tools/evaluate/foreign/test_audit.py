"""What a foreign candidate computes in decides which ranking it is in."""

from tools.evaluate.foreign.audit import apart, label
from tools.evaluate.foreign.reading import Reading
from tools.evaluate.foreign.request import Foreign, ForeignRequest
from tools.evaluate.rules import Rules
from tools.hardware import detect


def test_a_lower_precision_is_ranked_apart_unless_the_person_allowed_it(task):
    request = ForeignRequest(
        task=task,
        hardware=detect("cpu"),
        rules=Rules(),
        foreign=Foreign(name="it", source=""),
        seed=1,
    )
    read = Reading(own=False)
    usual, _ = label(request, read, ())
    assert apart(request, usual) == ""
    lower, remarks = label(request, read, ("cuda tf32: True",))
    assert remarks == ("it changed torch's setting of cuda tf32: True",)
    assert "tf32" in apart(request, lower)
    allowed = request.model_copy(update={"task": task.model_copy(update={"allow": ("tf32",)})})
    assert apart(allowed, lower) == ""
