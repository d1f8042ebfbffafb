"""E-mail addresses in the one form in which accounts are stored and looked up.

Databases disagree about case outside ASCII: PostgreSQL folds a dotless i (U+0131) and "i" to the same upper case, so a
lookup that ignores case could find another person's account. Addresses are therefore normalised here and compared
exactly, and a new one must have a local part in ASCII.
"""

from __future__ import annotations

import unicodedata

from django.core.exceptions import ValidationError
from django.core.validators import validate_email

from control_plane.core.errors import LorikeetError
from control_plane.core.names import name_problem


class InvalidAddressError(LorikeetError):
    def __init__(self) -> None:
        super().__init__(
            "invalid_email",
            "This is not an e-mail address that an account can have.",
            "Write it as name@example.org, with ASCII characters only before the @.",
            param="email",
        )


def normalise_email(text: str) -> str:
    """Return an address for look-ups: in Unicode's composed form, in lower case, without spaces around it."""
    return unicodedata.normalize("NFC", text.strip().lower())


def new_address(text: str) -> str:
    """Return the normalised address of a new account or invitation. Raises InvalidAddressError."""
    email = normalise_email(text)
    try:
        validate_email(email)
    except ValidationError:
        raise InvalidAddressError from None
    # The validator ignores case, so it accepts a dotless i and a long s as the ASCII letters.
    # It also accepts control characters between quotation marks, and characters of a domain that IDNA drops.
    if not email.rpartition("@")[0].isascii() or name_problem(email) is not None:
        raise InvalidAddressError
    return email
