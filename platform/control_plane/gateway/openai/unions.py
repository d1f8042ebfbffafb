"""Unions in request bodies whose member is chosen first, so that a fault is reported once, for that member.

Each member is ``Annotated[…, tag(name)]``, and the union is annotated with the function that chooses a name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pydantic import BaseModel, BeforeValidator, Discriminator, Tag


def tag(name: str) -> Tag:
    """Name a union's member. The tag is not an identifier, so it is left out of the path that an error shows."""
    return Tag(f"<{name}>")


def by_type(*kinds: str, default: str, absent: str | None = None) -> Discriminator:
    """Choose a member by the field ``type``; ``default`` for a value with none of ``kinds``, ``absent`` for no type."""

    def choose(value: object) -> str:
        kind = value.get("type") if isinstance(value, Mapping) else getattr(value, "type", None)
        if kind is None and absent is not None:
            return absent
        return kind if isinstance(kind, str) and kind in kinds else default

    return chosen(choose)


def known_types(what: str, *kinds: str) -> BeforeValidator:
    """Refuse a value whose ``type`` is none of ``kinds``; ``what`` is the plural noun for such values."""

    def check(value: object) -> object:
        kind = value.get("type") if isinstance(value, Mapping) else None
        if isinstance(kind, str) and kind not in kinds:
            raise ValueError(
                f'{what} of type "{kind[:40]}" are not supported; send {", ".join(kinds[:-1])} or {kinds[-1]}'
            )
        return value

    return BeforeValidator(check)


def _is_object(value: object) -> str:
    return "object" if isinstance(value, (Mapping, BaseModel)) else "word"


def _by_first_item(value: object) -> str:
    if not isinstance(value, list):
        return "text"
    first = value[0] if value else None
    return "tokens" if isinstance(first, int) else "token_lists" if isinstance(first, list) else "texts"


def chosen(choose: Callable[[object], str]) -> Discriminator:
    return Discriminator(lambda value: f"<{choose(value)}>")


# Choose between "word" and "object".
WORD_OR_OBJECT = chosen(_is_object)
# Choose between "text", "texts", "tokens" and "token_lists".
TEXTS_OR_TOKENS = chosen(_by_first_item)
