"""Rejection of unknown names: parameters of an address, fields of a form or body."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from control_plane.core.errors import LorikeetError

# Maximum number of unknown names that one error lists, and of the characters of each.
MAX_NAMES, LONGEST_NAME = 5, 64


def require_known(names: Iterable[str], known: Collection[str], what: str) -> None:
    """Raise LorikeetError (400) if a name is not known. The error lists the unknown names and the known ones.

    what: what the names are, in the singular, such as "query parameter".
    """
    unknown = [name for name in names if name not in known]
    if not unknown:
        return
    takes = f"Known here: {', '.join(sorted(known))}." if known else f"This address has no {what}."
    message, fix = unknown_texts([name[:LONGEST_NAME] for name in unknown], what, takes)
    raise LorikeetError("unknown_parameter", message, fix, param=unknown[0][:LONGEST_NAME])


def unknown_texts(unknown: Sequence[str], what: str, takes: str) -> tuple[str, str]:
    """Return the message and the fix of an error about unknown names, the same for addresses, forms and bodies.

    what: what the names are, in the singular. takes: a sentence about the known names.
    """
    listed = ", ".join(f"'{name}'" for name in unknown[:MAX_NAMES])
    several = len(unknown) > 1
    message = f"Unknown {what}{'s' if several else ''}: {listed}."
    return message, f"Remove {'them' if several else 'it'} from the request, or correct the spelling. {takes}"
