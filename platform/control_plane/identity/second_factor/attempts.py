"""Limits on guessing codes, and the error for a wrong one.

Only somebody who knows the password can guess, so a strict limit locks nobody else out. Three of a million codes are
valid at a time: 50 guesses a day succeed once in 18 years on average.
"""

from __future__ import annotations

from control_plane.core.config import Rate
from control_plane.core.errors import LorikeetError
from control_plane.identity.accounts.attempts import count_account
from control_plane.identity.accounts.models import User

# Codes for one account, right or wrong, from any address.
CODES = Rate(10, 600)
CODES_PER_DAY = Rate(50, 86_400)


class WrongCodeError(LorikeetError):
    def __init__(self) -> None:
        super().__init__(
            "wrong_code",
            "The code is wrong, or was used already.",
            "Enter the code that your authenticator app shows now, or a recovery code that you have not used. If codes "
            "of the app are never accepted, set the clock of its device.",
            param="code",
        )


def count_code(user: User) -> None:
    """Count an attempt with a code. Raises TooManyAttemptsError."""
    count_account("second-factor", user.email, CODES)
    count_account("second-factor-day", user.email, CODES_PER_DAY)
