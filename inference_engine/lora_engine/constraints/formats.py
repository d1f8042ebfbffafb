"""Formats of strings as regular expressions. A format that is not listed is an annotation, as JSON Schema says."""

from __future__ import annotations

# Formats that llguidance has expressions for.
_OF_LIBRARY = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri", "unknown")
)
# Other names of these. A part of the strings that an internationalised format allows is enforced.
_SAME = {
    "url": "uri",
    "iri": "uri",
    "idn-email": "email",
    "idn-hostname": "hostname",
    "host-name": "hostname",
    "ip-address": "ipv4",
    "guid": "uuid",
    "datetime": "date-time",
}
_SEGMENT = r"(?:[A-Za-z0-9\-._~!$&'()*+,;=@]|%[0-9A-Fa-f]{2})"
_QUERY = r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/?]|%[0-9A-Fa-f]{2})*"
_REST = rf"(?:\?{_QUERY})?(?:#{_QUERY})?"
# A URI with a path, or a relative path; without a colon in its first segment it cannot be taken for a scheme.
_URI_REFERENCE = (
    rf"(?:[A-Za-z][A-Za-z0-9+\-.]*:(?://(?:{_SEGMENT}|:)*)?(?:/(?:{_SEGMENT}|:)+)*/?"
    rf"|//{_SEGMENT}+(?:/(?:{_SEGMENT}|:)*)*|/?(?:{_SEGMENT}+(?:/(?:{_SEGMENT}|:)*)*)?){_REST}"
)
_POINTER = r"(?:/(?:[^~/\x00-\x1f]|~[01])*)*"
_VARIABLES = r"\{[+#./;?&]?[A-Za-z0-9_]+(?::[1-9][0-9]{0,3}|\*)?(?:,[A-Za-z0-9_]+(?::[1-9][0-9]{0,3}|\*)?)*\}"
# Regular expressions of everyday form: characters, escapes, classes, groups of one level, and quantifiers.
_CLASS = r"\[\^?(?:[A-Za-z0-9_ .,:;/@#%&=+*?()|$]|[a-f]-[g-z]|[A-F]-[G-Z]|[0-4]-[5-9]|\\[dDwWsS\\\]\-])+\]"
_ATOM = rf"(?:[A-Za-z0-9_ ,:;/@#%&=~!'<>\-.]|\\[dDwWsStnr.^$*+?()\[\]{{}}|\\/\-]|{_CLASS})"
_QUANTIFIED = rf"{_ATOM}(?:[*+?]|\{{[0-9]\}}|\{{[0-9],\}}|\{{[0-4],[5-9]\}})?"
_BRANCHES = rf"(?:{_QUANTIFIED})+(?:\|(?:{_QUANTIFIED})+)*"
_REGEX = (
    rf"\^?(?:{_QUANTIFIED}|\((?:\?:)?{_BRANCHES}\)(?:[*+?]|\{{[0-9]\}})?)*"
    rf"(?:\|(?:{_QUANTIFIED}|\((?:\?:)?{_BRANCHES}\)(?:[*+?]|\{{[0-9]\}})?)+)*\$?"
)
_PATTERNS = {
    "uri-reference": _URI_REFERENCE,
    "iri-reference": _URI_REFERENCE,
    "uri-template": rf"(?:[A-Za-z0-9\-._~!$&()*+,;=:@/?#]|%[0-9A-Fa-f]{{2}}|{_VARIABLES})*",
    "json-pointer": _POINTER,
    "relative-json-pointer": rf"(?:0|[1-9][0-9]{{0,8}})(?:#|{_POINTER})",
    "regex": _REGEX,
    "path": r"[^\x00-\x1f\x7f]+",
    "file-path": r"[^\x00-\x1f\x7f]+",
    "directory-path": r"[^\x00-\x1f\x7f]+",
    "uuid4": r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-4[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}",
}


def as_keywords(name: object) -> dict[str, str] | None:
    """Return keywords that enforce a format: ``format`` or ``pattern``; None if it is an annotation."""
    if not isinstance(name, str):
        return None
    name = _SAME.get(name, name)
    if name in _OF_LIBRARY:
        return {"format": name}
    return {"pattern": f"^(?:{_PATTERNS[name]})$"} if name in _PATTERNS else None
