"""What each command does. Results go to standard output, everything else to standard error."""

from __future__ import annotations

import getpass
import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote

from lorikeet_cli import effect, profile, upload
from lorikeet_cli.client import Client, log_in
from lorikeet_cli.errors import CliError
from lorikeet_cli.output import ProgressBar, money, table, write
from lorikeet_cli.profile import Profile

_BUCKET_KEYS = {
    "access_key_id": "Access key id",
    "secret_access_key": "Secret access key",
    "session_token": "Session token (none for a lasting key)",
}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def client() -> Client:
    return Client(profile.load())


def login(asked: Namespace) -> None:
    url = asked.url.rstrip("/")
    made = _with_key(url, asked) if asked.key is not None else _with_password(url, asked)
    Client(made).tenant("GET", "overview")  # refuses a wrong tenant or key now, not at the first use
    where = profile.save(made)
    say(f"Logged in to {made.url} as {'a key' if made.key else 'a member'} of {made.tenant}. Kept in {where}.")


def version() -> str:
    try:
        return metadata.version("lorikeet")
    except metadata.PackageNotFoundError:
        return "of a source tree"


def _secret(prompt: str) -> str:
    """Typed without echo, or the first line of what is piped in."""
    return getpass.getpass(prompt) if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")


def _with_key(url: str, asked: Namespace) -> Profile:
    key = asked.key or os.environ.get("LORIKEET_KEY") or _secret("API key: ")
    if not asked.tenant:
        raise CliError("A key does not say which tenant it is of.", "Add --tenant with the tenant's short name.")
    return Profile(url, asked.tenant, key=key.strip())


def _with_password(url: str, asked: Namespace) -> Profile:
    email = asked.email or input("E-mail: ")
    password = os.environ.get("LORIKEET_PASSWORD") or _secret("Password: ")
    session, tenants = log_in(url, email, password)
    if not asked.tenant and len(tenants) != 1:
        raise CliError(f"You are in {', '.join(tenants) or 'no tenant'}.", "Choose one with --tenant.")
    return Profile(url, asked.tenant or tenants[0], session=session.session, csrf=session.csrf)


def logout(asked: Namespace) -> None:
    known = profile.load()
    if known.session:
        Client(known).call("DELETE", "/api/session")
    profile.forget()


def adapters(asked: Namespace) -> None:
    own = client()
    if asked.name:
        found = own.tenant("GET", f"adapters/{asked.name}")
        aliases = [(alias["version"], alias["name"]) for alias in found["aliases"]]
        names = {each: ", ".join(name for version, name in aliases if version == each) for each, _ in aliases}
        rows = [
            [
                f"v{each['number']}",
                each["state"],
                names.get(each["number"], ""),
                each["rank"],
                each["bytes"],
                (each["verdict"] or "not tried yet").replace("_", " "),
            ]
            for each in found["versions"]
        ]
        print(table(["version", "state", "aliases", "rank", "bytes", "effect"], rows))
        return
    rows = [
        [each["name"], each["status"], f"v{each['live_version']}" if each["live_version"] else "–", each["bytes"] or 0]
        for each in own.tenant("GET", "adapters")
    ]
    print(table(["adapter", "status", "live", "bytes"], rows))


def upload_adapter(asked: Namespace, own: Client | None = None, received: Callable[[Any], None] | None = None) -> None:
    """`received` is told of the upload before it is decided."""
    own, path = own or client(), Path(asked.path)
    name = asked.name or path.resolve().name.removesuffix(".gz").removesuffix(".tar").removesuffix(".zip").lower()
    sent = upload.send(own, path, name, asked.description, asked.base, ProgressBar(name))
    if received is not None:
        received(sent)
    _follow(own, sent, asked)


def import_adapter(asked: Namespace) -> None:
    own, body = client(), {"name": asked.name, "description": asked.description, "source": asked.source}
    _follow(own, own.tenant("POST", "imports", {**body, "base_model": asked.base}), asked)


def hub_token(asked: Namespace) -> None:
    own = client()
    if asked.remove:
        own.tenant("DELETE", "hub-token")
    else:
        own.tenant("PUT", "hub-token", {"token": _secret("Hub token: ").strip()})
    say("The token is forgotten." if asked.remove else "The token is kept, encrypted, and never shown.")


def follow(asked: Namespace) -> None:
    own = client()
    if ((asked.source or asked.remove) and not asked.name) or (asked.source and asked.remove):
        raise CliError("Say which adapter follows what.", "lorikeet follow hub:org/name@main --name support")
    if asked.source:
        made = own.tenant("POST", "follows", {"name": asked.name, "source": asked.source})
        say(f"{asked.name} follows {made['source']}; each move of it becomes a version, which you promote.")
        return
    found = own.tenant("GET", "follows")
    if asked.remove:
        ids = [each["id"] for each in found if each["name"] == asked.name]
        if not ids:
            raise CliError(f"{asked.name} follows nothing.", "`lorikeet follow` lists those that do.")
        own.tenant("DELETE", f"follows/{ids[0]}")
        say(f"{asked.name} follows no longer; its versions stay.")
        return
    rows = [
        [each["name"], each["source"], each["commit"][:12], (each["problem"] or {}).get("message", "")]
        for each in found
    ]
    print(table(["adapter", "follows", "commit", "problem"], rows))


def hub_models(asked: Namespace) -> None:
    own = client()
    if asked.organization and not asked.on:
        raise CliError("Organisations are set with --on.", "Add --on.")
    if asked.on or asked.off:
        own.tenant("PUT", "hub-models", {"enabled": asked.on, "organizations": asked.organization})
    found = own.tenant("GET", "hub-models")
    of = ", ".join(found["organizations"]) or "all organisations"
    say(f"Requests may name repositories of {of}." if found["enabled"] else "Requests may not name repositories.")
    rows = [
        [each["name"], each["state"], f"{each['adapter']}@v{each['version']}" if each["version"] else ""]
        for each in found["models"]
    ]
    print(table(["model", "import", "version"], rows))


def buckets(asked: Namespace) -> None:
    rows = [
        [each["bucket"], each["region"], each["endpoint"] or "Amazon S3"]
        for each in client().tenant("GET", "bucket-credentials")
    ]
    print(table(["bucket", "region", "endpoint"], rows))


def set_bucket(asked: Namespace) -> None:
    keys = {name: _secret(f"{text}: ").strip() for name, text in _BUCKET_KEYS.items()}
    body = {"bucket": asked.bucket, "region": asked.region, "endpoint": asked.endpoint, **keys}
    client().tenant("POST", "bucket-credentials", body)
    say(f"The key of {asked.bucket} is kept, encrypted, and never shown.")


def remove_bucket(asked: Namespace) -> None:
    client().tenant("DELETE", f"bucket-credentials/{quote(asked.bucket, safe='')}")
    say(f"The key of {asked.bucket} is forgotten.")


def _follow(own: Client, sent: Any, asked: Namespace) -> None:
    """What becomes of an upload, until it can be called."""
    if asked.no_wait:
        print(sent["id"])
        return
    try:
        accepted = upload.decided(own, sent, say)
    except KeyboardInterrupt:
        say(f"It goes on without you; `lorikeet uploads cancel {sent['id']}` ends it.")
        raise
    adapter, number = accepted["adapter"], accepted["version"]
    say(f"accepted as {adapter}@v{number}" + (" (the same content was there)" if accepted["reused_version"] else ""))
    version = upload.ready(own, adapter, number, say)
    for line in (effect.told(version["effect"]), *effect.asked(version)):
        say(line)
    print(f"{adapter}@v{number}")


def promote(asked: Namespace) -> None:
    name, number = version_of(asked.version)
    client().tenant("POST", f"adapters/{name}/versions/{number}/promote")
    say(f"{name} is now version {number}; running requests keep the one they started with.")


def confirm_base(asked: Namespace) -> None:
    name, number = version_of(asked.version)
    found = client().tenant("POST", f"adapters/{name}/versions/{number}/confirm-base")
    say(f"{name}@v{number} is taken for an adapter of {found['base_model']}.")


def confirm_effect(asked: Namespace) -> None:
    name, number = version_of(asked.version)
    found = client().tenant("POST", f"adapters/{name}/versions/{number}/confirm-effect")
    live = "; it is live" if "live" in found["aliases"] else ""
    say(f"{name}@v{number} may be live as it is{live}.")


def version_of(text: str) -> tuple[str, str]:
    name, _, number = text.partition("@v")
    if not number.isdecimal():
        raise CliError(f'"{text}" names no version.', "Write it like support@v7.")
    return name, number


def keys(asked: Namespace) -> None:
    rows = [
        [key["name"], f"lk_{key['prefix']}_…", _state(key), ",".join(key["scopes"]), key["last_used_at"] or "never"]
        for key in client().tenant("GET", "keys")
    ]
    print(table(["name", "key", "state", "scopes", "last used"], rows))


def _state(key: Any) -> str:
    if key["revoked_at"]:
        return "revoked"
    ended = key["expires_at"] and datetime.fromisoformat(key["expires_at"]) < datetime.now(UTC)
    return "expired" if ended else "active"


def create_key(asked: Namespace) -> None:
    body: dict[str, object] = {"name": asked.name}
    if asked.scope:
        body["scopes"] = asked.scope
    if asked.days:
        body["expires_at"] = (datetime.now(UTC) + timedelta(days=asked.days)).isoformat()
    made = client().tenant("POST", "keys", body)
    say("Keep it now: it is not shown again.")
    print(made["secret"])


def revoke_key(asked: Namespace) -> None:
    own = client()
    found = find_key(own, asked.key)
    own.tenant("DELETE", f"keys/{found['id']}")
    say(f"Revoked {found['name']}.")


def find_key(own: Client, name: str) -> Any:
    """The active key of that name, or lk_<prefix>."""
    wanted = name.removeprefix("lk_").partition("_")[0]
    found = [
        key
        for key in own.tenant("GET", "keys")
        if not key["revoked_at"] and (key["prefix"] == wanted or key["name"] == name)
    ]
    if len(found) != 1:
        raise CliError(
            f"{len(found)} active keys are called {name}.", "Give the part after lk_ as `lorikeet keys` shows it."
        )
    return found[0]


def origins(asked: Namespace) -> None:
    for origin in client().tenant("GET", "origins")["origins"]:
        print(origin)


def allow_origin(asked: Namespace) -> None:
    own = client()
    _set_origins(own, {*_origins(own), asked.origin})
    say(f"Pages of {asked.origin} may call inference with this tenant's keys.")


def disallow_origin(asked: Namespace) -> None:
    own = client()
    allowed = _origins(own)
    if asked.origin not in allowed:
        raise CliError(f"{asked.origin} is not allowed.", "`lorikeet origins` lists those that are.")
    _set_origins(own, allowed - {asked.origin})
    say(f"Pages of {asked.origin} may no longer read answers.")


def _origins(own: Client) -> set[str]:
    return set(own.tenant("GET", "origins")["origins"])


def _set_origins(own: Client, wanted: set[str]) -> None:
    own.tenant("PUT", "origins", {"origins": sorted(wanted)})


def usage(asked: Namespace) -> None:
    own = client()
    if asked.csv:
        _write_csv(own, asked)
        return
    if asked.month:
        _statement(own.tenant("GET", "statement", month=asked.month))
        return
    report = own.tenant("GET", "usage", days=asked.days, **_on_base(asked))
    currency = report["currency"]
    rows = [_used(row, row["adapter"] or "(base model)", currency) for row in report["by_adapter"]]
    rows.append(_used(report["totals"], "total", currency))
    print(table(["adapter", "requests", "prompt", "completion", "GPU s", "cost"], rows))
    if len(report["by_base_model"]) > 1:
        rows = [_used(row, row["base_model"] or "(not recorded)", currency) for row in report["by_base_model"]]
        print(table(["base model", "requests", "prompt", "completion", "GPU s", "cost"], rows))
    say(f"last {asked.days} days, as of {report['as_of'] or 'never'}")


def _used(row: Any, label: str, currency: str | None) -> list[object]:
    seconds = f"{row['device_us'] / 1e6:.1f}"
    cost = money(row["cost_micros"], currency)
    return [label, row["requests"], row["prompt_tokens"], row["completion_tokens"], seconds, cost]


def _statement(found: Any) -> None:
    currency = found["currency"]
    rows = [
        [
            f"{line['kind']} on {line['base_model']}" if line.get("base_model") else line["kind"],
            f"{line['first']} to {line['last']}",
            f"{line['quantity']:,}",
            money(line["amount_micros"], currency),
        ]
        for line in found["lines"]
    ]
    rows.append(["total", "", "", money(found["total_micros"], currency)])
    print(table(["item", "days", "quantity", "amount"], rows))


def _write_csv(own: Client, asked: Namespace) -> None:
    rows = own.stream(own.tenant_path("usage.csv"), days=asked.days, grain=asked.grain, **_on_base(asked))
    write(rows, asked.csv)


def _on_base(asked: Namespace) -> dict[str, str]:
    return {"base_model": asked.base} if asked.base else {}


TAIL_PAGE = 100
TAIL_S = 1.0


def tail(asked: Namespace) -> None:
    """Requests as they end, oldest first, until interrupted."""
    own = client()
    seen = {row["id"] for row in own.tenant("GET", "requests", limit=TAIL_PAGE)["results"]}
    say("Waiting for requests; Ctrl-C ends it.")
    end = time.monotonic() + asked.seconds if asked.seconds else None
    while end is None or time.monotonic() < end:
        for row in reversed(_newer(own, seen)):
            seen.add(row["id"])
            print(_request_line(row), flush=True)
        time.sleep(TAIL_S)


def _newer(own: Client, seen: set[str]) -> list[Any]:
    """Every request that has not been seen, newest first, however many there were since."""
    new: list[Any] = []
    cursor = None
    while True:
        page = own.tenant("GET", "requests", limit=TAIL_PAGE, cursor=cursor)
        fresh = [row for row in page["results"] if row["id"] not in seen]
        new += fresh
        cursor = page["next_cursor"]
        if len(fresh) < len(page["results"]) or not cursor or not seen:
            return new


def _request_line(row: Any) -> str:
    tokens = f"{row['prompt_tokens']}+{row['completion_tokens']}"
    outcome = row["outcome"] + (f" {row['error_code']}" if row["error_code"] else "")
    wait = f"{row['first_token_ms']} ms" if row["first_token_ms"] else "–"
    return f"{row['created_at'][:19]}  {row['model']:<24} {tokens:>11} tokens  first {wait:>8}  {outcome}"
