"""When this machine cannot do what is asked: there is no GPU, no compiler, no wall."""


class EnvironmentLacksError(Exception):
    """This machine lacks something needed; the message names the command that would fix it."""
