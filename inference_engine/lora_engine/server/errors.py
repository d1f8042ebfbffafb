"""The error that keeps an engine from starting."""


class StartupError(Exception):
    """The engine cannot start; the message says what to do."""
