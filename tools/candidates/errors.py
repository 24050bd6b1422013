"""What can be wrong with a candidate, always as one sentence that names the rule."""


class ContractError(ValueError):
    """A kernel or plan that breaks the candidate contract; found before anything runs.

    Attributes:
        line: 1-based line of the kernel or plan, 0 when it concerns the whole text.
        rule: Short stable name of the rule, for a critic to count.
        words: The sentence a person or a model reads.
    """

    def __init__(self, line: int, rule: str, words: str):
        super().__init__(f"line {line}: {words} [{rule}]")
        self.line = line
        self.rule = rule
        self.words = words


class LaunchRefused(Exception):  # noqa: N818 - it says what happened, not that we are broken
    """A plan that could not be carried out: a wrong argument, shape, grid or library call.

    Attributes:
        line: 1-based line of the plan where it happened, 0 when unknown.
        words: The sentence a person or a model reads.
    """

    def __init__(self, words: str, line: int = 0):
        super().__init__(f"plan line {line}: {words}" if line else words)
        self.line = line
        self.words = words


class DeviceError(RuntimeError):
    """The device reported an error that belongs to earlier work, such as an illegal access.

    The context is poisoned: whoever catches this retires the process.
    """
