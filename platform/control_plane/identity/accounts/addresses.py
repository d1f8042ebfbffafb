"""E-mail addresses in the one form in which accounts are stored and looked up.

Databases disagree about case outside ASCII: PostgreSQL folds a dotless i (U+0131) and "i" to the same upper case, so a
lookup that ignores case could find another person's account. Addresses are therefore normalised here and compared
exactly, and a new one must have a local part in ASCII.

Mail servers get a domain in ASCII (IDNA 2003, RFC 3490, as Django encodes it), which maps some letters to others: mail
for straße.example goes to strasse.example. Such a domain is refused, except in its own ASCII form (xn--strae-oqa).
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
            "Write it as name@example.org, with ASCII characters only before the @, and a domain with letters such as "
            "ß in its ASCII form, which begins with xn--.",
            param="email",
        )


def normalise_email(text: str) -> str:
    """Return an address for look-ups: composed, in lower case, without spaces around it, its domain in one form."""
    local, at, domain = unicodedata.normalize("NFC", text.strip().lower()).rpartition("@")
    return f"{local}{at}{normalise_domain(domain)}"


def normalise_domain(text: str) -> str:
    """Return a domain in lower case, with letters instead of its xn-- labels if both are one domain for mail."""
    domain = unicodedata.normalize("NFC", text.lower())
    if "xn--" not in domain:
        return domain
    try:
        letters = domain.encode("ascii").decode("idna")
    except UnicodeError:
        return domain
    return letters if unicodedata.normalize("NFC", letters.lower()) == letters else domain


def new_address(text: str) -> str:
    """Return the normalised address of a new account or invitation. Raises InvalidAddressError."""
    email = normalise_email(text)
    try:
        validate_email(email)
    except ValidationError:
        raise InvalidAddressError from None
    # The validator ignores case, so it accepts a dotless i and a long s as the ASCII letters.
    # It also accepts control characters between quotation marks, and characters of a domain that IDNA drops.
    local, _, domain = email.rpartition("@")
    if not local.isascii() or name_problem(email) is not None or not _is_one_domain(domain):
        raise InvalidAddressError
    return email


def _is_one_domain(domain: str) -> bool:
    """Return True if mail to the domain goes to the domain that is read."""
    try:
        return domain.isascii() or domain.encode("idna").decode("idna") == domain
    except UnicodeError:
        return False
