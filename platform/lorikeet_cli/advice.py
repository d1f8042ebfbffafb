"""The server's advice in commands of `lorikeet`: errors name addresses of the API, which other clients read too."""

from __future__ import annotations

import re

_OPERATOR = "/api/operator/"
# Addresses as the server's errors name them, and the commands that do the same. The first that matches is taken.
_COMMANDS = (
    (r"GET adapters/(\S+?)(?=[ .,;]|$)", r"`lorikeet adapters \1`"),
    (r"GET archived-adapters", "`lorikeet adapters --archived`"),
    (r"GET adapters", "`lorikeet adapters`"),
    (r"GET /v1/models", "`lorikeet models`"),
    (r"GET (?:/v1/)?(batches|files)", r"`lorikeet \1`"),
    (r"GET (evaluations|evaluation-sets|keys|members|pins|webhooks)\b", r"`lorikeet \1`"),
    (r"GET invitations", "`lorikeet members invitations`"),
    (r"GET deliveries", "`lorikeet webhooks deliveries WEBHOOK`"),
    (r"GET follows", "`lorikeet follow`"),
    (r"GET bucket-credentials", "`lorikeet buckets`"),
    (r"GET uploads/(\S+?)(?=[ .,;]|$)", r"`lorikeet uploads show \1`"),
    (r"Use the id that POST uploads answered with", "`lorikeet uploads` lists the ids"),
    (rf"GET (?:{_OPERATOR})?hosts", "`lorikeet hosts`"),
    (r"GET /api/session", "`lorikeet whoami`"),
    (r"POST evaluations", "`lorikeet evaluate`"),
    (r"POST …/(confirm-base|confirm-effect)", r"`lorikeet \1`"),
    (r"DELETE …/promotion-rule", "`lorikeet promotion-rule ADAPTER --remove`"),
    (r"PUT hub-token", "`lorikeet hub-token`"),
    (r"PUT hub-models", "`lorikeet hub-models --on`"),
    (r"POST bucket-credentials", "`lorikeet buckets set`"),
    (r"PUT /api/tenants/\{tenant\}/origins", "`lorikeet origins allow`"),
    (r"Name a key in `key`", "Name a key with --key"),
)


def in_commands(advice: str) -> str:
    """Return advice of the server with commands in the place of addresses of the API."""
    for address, command in _COMMANDS:
        advice = re.sub(address, command, advice)
    return advice
