"""Why an engine does not start."""


class StartupError(Exception):
    """The engine cannot start; the message says what to do."""
