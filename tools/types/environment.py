"""What this machine lacks, as an exception that every layer may raise."""


class EnvironmentLacksError(Exception):
    """This machine lacks something needed; the message names the command that would fix it."""
