"""What can be wrong with a run that somebody names; each message is one sentence for a person."""


class RunError(ValueError):
    """A run cannot be used as asked; the message says why in one sentence."""


class UnknownRunError(RunError):
    """No run has that name."""


class CorruptRunError(RunError):
    """The run's folder exists, but what is in it cannot be read."""


class NotRecordedError(Exception):
    """A replay wants to know what the recorded run never found out; the message names it."""


class RunBusyError(RunError):
    """Another search works on this run right now."""
