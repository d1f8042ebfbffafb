"""Servers with the caller's credentials, by name, in a file that only its owner can read.

The file is `~/.config/lorikeet/profiles.json`: {"current": NAME, "profiles": {NAME: a Profile's fields}}.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from lorikeet_cli.errors import LOG_IN, CliError

# The name of a login without --profile.
DEFAULT = "default"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")


@dataclass(frozen=True)
class Profile:
    """A server, a tenant, and an API key or the cookies of a session. `name` is "" for that of the environment."""

    url: str
    tenant: str
    key: str = ""
    session: str = ""
    csrf: str = ""
    name: str = field(default="", compare=False)


@dataclass(frozen=True)
class Saved:
    """The saved profiles by name, and the name of the current one."""

    current: str = DEFAULT
    profiles: Mapping[str, Profile] = field(default_factory=dict)


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
    return Path(base).expanduser() / "lorikeet" / "profiles.json"


def read() -> Saved:
    """Return what is saved; nothing if the file is missing or damaged."""
    try:
        content = json.loads(path().read_text())
        profiles = {name: Profile(**fields, name=name) for name, fields in content["profiles"].items()}
        return Saved(str(content["current"]), profiles)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return Saved()


def save(profile: Profile, name: str = "") -> Path:
    """Save a profile under a name and make it the current one. Returns the file. Raises CliError for a bad name."""
    name = name or os.environ.get("LORIKEET_PROFILE") or DEFAULT
    if not _NAME.fullmatch(name):
        fix = "Use up to 40 letters, digits, dots, hyphens and underscores."
        raise CliError(f'"{name}" is no name of a profile.', fix, code="bad_profile")
    return _write(Saved(name, {**read().profiles, name: replace(profile, name=name)}))


def use(name: str) -> Profile:
    """Make a saved profile the current one. Raises CliError if there is none of that name."""
    saved = read()
    profile = _named(saved, name)
    _write(replace(saved, current=name))
    return profile


def forget(name: str) -> None:
    """Delete a saved profile. If it was the current one, the first of the others by name becomes that."""
    saved = read()
    rest = {each: profile for each, profile in saved.profiles.items() if each != name}
    if rest:
        _write(Saved(saved.current if saved.current in rest else min(rest), rest))
    else:
        path().unlink(missing_ok=True)


def load(name: str = "") -> Profile:
    """Return the profile of a command; `name` is the value of --profile. Raises CliError if there is none.

    Without a name it is that of LORIKEET_URL and LORIKEET_KEY if both are set, else the saved one of LORIKEET_PROFILE,
    else the current one. LORIKEET_TENANT chooses the tenant of any.
    """
    env = os.environ
    if not name and env.get("LORIKEET_URL") and env.get("LORIKEET_KEY"):
        return Profile(server_of(env["LORIKEET_URL"]), env.get("LORIKEET_TENANT", ""), key=env["LORIKEET_KEY"])
    saved = read()
    name = name or env.get("LORIKEET_PROFILE", "")
    if not name and saved.current not in saved.profiles:
        fix = "Run `lorikeet login https://... --tenant NAME`, or set LORIKEET_URL, LORIKEET_TENANT and LORIKEET_KEY."
        raise CliError("You are not logged in.", fix, code="not_logged_in", exit_code=LOG_IN)
    profile = _named(saved, name or saved.current)
    return replace(profile, tenant=env.get("LORIKEET_TENANT") or profile.tenant)


def _named(saved: Saved, name: str) -> Profile:
    if name in saved.profiles:
        return saved.profiles[name]
    fix = f"`lorikeet profiles` lists the saved ones; `lorikeet login https://... --profile {name}` makes it."
    raise CliError(f"No profile is called {name}.", fix, code="no_profile", exit_code=LOG_IN)


def _write(saved: Saved) -> Path:
    target = path()
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_suffix(".new")
    temporary.unlink(missing_ok=True)
    profiles = {name: asdict(profile) for name, profile in sorted(saved.profiles.items())}
    for fields in profiles.values():
        del fields["name"]
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump({"current": saved.current, "profiles": profiles}, file, indent=2)
    temporary.replace(target)
    return target
