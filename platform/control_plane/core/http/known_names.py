"""Rejection of unknown names: parameters of an address, fields of a form or body."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from control_plane.core.errors import LorikeetError

# Unknown names that one error lists, and characters of each.
MAX_NAMES, LONGEST_NAME = 5, 64


def require_known(names: Iterable[str], known: Collection[str], what: str) -> None:
    """Raise LorikeetError (400) if a name is not known. The error lists the unknown names and the known ones.

    what: what the names are, in the singular, such as "query parameter".
    """
    unknown = [name for name in names if name not in known]
    if not unknown:
        return
    listed = ", ".join(f"'{name[:LONGEST_NAME]}'" for name in unknown[:MAX_NAMES])
    takes = f"Known here: {', '.join(sorted(known))}." if known else f"This address has no {what}."
    raise LorikeetError(
        "unknown_parameter",
        f"Unknown {what}{'s' if len(unknown) > 1 else ''}: {listed}.",
        f"Remove it, or check its spelling. {takes}",
        param=unknown[0][:LONGEST_NAME],
    )
