"""The server's address and the caller's credentials, in a file that only its owner can read."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from lorikeet_cli.errors import LOG_IN, CliError


@dataclass(frozen=True)
class Profile:
    """A server, a tenant, and an API key or the cookies of a session."""

    url: str
    tenant: str
    key: str = ""
    session: str = ""
    csrf: str = ""


def server_of(address: str) -> str:
    """Return the scheme, host and port of an address, such as that of a page of the console. Raises CliError."""
    try:
        parts = urlsplit(address.strip())
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise CliError(f'"{address}" is no address.', "Write it like https://lorikeet.example.org.", code="bad_address")
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def path() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "lorikeet" / "login.json"


def save(profile: Profile) -> Path:
    target = path()
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_suffix(".new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(asdict(profile), file, indent=2)
    temporary.replace(target)
    return target


def load() -> Profile:
    """Return the profile of LORIKEET_URL and LORIKEET_KEY if both are set, else the one that `login` saved.

    LORIKEET_TENANT chooses the tenant of either. Raises CliError if there is no profile.
    """
    env = os.environ
    if env.get("LORIKEET_URL") and env.get("LORIKEET_KEY"):
        return Profile(server_of(env["LORIKEET_URL"]), env.get("LORIKEET_TENANT", ""), key=env["LORIKEET_KEY"])
    try:
        saved = Profile(**json.loads(path().read_text()))
    except (OSError, ValueError, TypeError):
        fix = "Run `lorikeet login https://... --tenant NAME`, or set LORIKEET_URL, LORIKEET_TENANT and LORIKEET_KEY."
        raise CliError("You are not logged in.", fix, code="not_logged_in", exit_code=LOG_IN) from None
    return replace(saved, tenant=env.get("LORIKEET_TENANT") or saved.tenant)


def forget() -> None:
    path().unlink(missing_ok=True)
