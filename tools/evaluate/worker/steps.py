"""What a worker says while it judges one candidate: what runs now, on whose account, how long.

A step that does not come back in time, or takes its worker along, is told by its last words.
"""

from collections.abc import Callable

from kernelwright.tools.evaluate.messages import JudgeRequest, Stage
from kernelwright.tools.evaluate.metering import Meter

_TIMED_RUNS = 10


class Steps:
    """The steps of one request.

    Args:
        request: What is judged.
        announce: Told before a step, as it may not come back.
        meter: Counts the seconds of each.
    """

    def __init__(
        self, request: JudgeRequest, announce: Callable[[Stage], None], meter: Meter
    ) -> None:
        self._request, self._announce, self._meter = request, announce, meter

    @property
    def seconds(self) -> float:
        """How long a candidate is timed at this effort."""
        rules = self._request.rules
        return rules.certify_s if self._request.effort == "certify" else rules.precise_s

    def begin(self, step: str) -> None:
        """Count seconds for this step from now on."""
        self._meter.begin(f"{self._request.effort}: {step}")

    def candidate_runs(self, words: str, *, often: bool = False) -> None:
        """Announce a step of the candidate's; how long it may take follows from eager's time.

        One that is timed has shown before that it comes back, and runs many times.
        """
        rules, known = self._request.rules, self._request.baselines
        eager = known.named("eager") if known else None
        usual_s = eager.measurement.median_ms / 1e3 if eager and eager.measurement else 0.0
        limit = rules.candidate_s + rules.candidate_slowdown * usual_s
        if often:
            limit = _TIMED_RUNS * limit + self.seconds
        self._announce(Stage(words=words, limit_s=limit, blame="candidate"))

    def reference_runs(self) -> None:
        """Announce that PyTorch's own forward runs."""
        self.say("the reference runs", self._request.rules.reference_s)

    def say(self, words: str, limit_s: float, baseline: str = "") -> None:
        """Announce a step that is not the candidate's."""
        self._announce(Stage(words=words, limit_s=limit_s, blame="reference", baseline=baseline))
