"""Where the server is and who asks: kept in one file that only its owner may read."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from lorikeet_cli.errors import CliError


@dataclass(frozen=True)
class Profile:
    """An API key, or the cookies of a session."""

    url: str
    tenant: str
    key: str = ""
    session: str = ""
    csrf: str = ""


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
    """From LORIKEET_URL, LORIKEET_TENANT and LORIKEET_KEY if they are set, else what `login` kept."""
    env = os.environ
    if env.get("LORIKEET_URL") and env.get("LORIKEET_KEY"):
        return Profile(env["LORIKEET_URL"].rstrip("/"), env.get("LORIKEET_TENANT", ""), key=env["LORIKEET_KEY"])
    try:
        return Profile(**json.loads(path().read_text()))
    except (OSError, ValueError, TypeError):
        raise CliError("You are not logged in.", "Run `lorikeet login https://... --tenant NAME`.") from None


def forget() -> None:
    path().unlink(missing_ok=True)
