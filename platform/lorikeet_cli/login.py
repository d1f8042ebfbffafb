"""`lorikeet login`, `logout`, `whoami` and `profiles`."""

from __future__ import annotations

import getpass
import os
import sys
from argparse import Namespace
from dataclasses import replace
from typing import Any

from lorikeet_cli import profile
from lorikeet_cli.client import Client, log_in
from lorikeet_cli.commands import Commands, list_actions, no_options
from lorikeet_cli.errors import LOG_IN, CliError
from lorikeet_cli.output import Output, say, table
from lorikeet_cli.profile import Profile


def add_commands(commands: Commands) -> None:
    verb = commands.add(
        "login",
        login,
        "Save a server's address, and a key or a session.",
        "lorikeet login https://lorikeet.example.org --tenant acme --key",
        "lorikeet login https://lorikeet.example.org --email you@example.org --profile staging",
    )
    verb.add_argument("url", help="like https://lorikeet.example.org")
    verb.add_argument("--tenant", default="", help="the tenant's short name")
    verb.add_argument("--key", nargs="?", const="", help="an API key; without a value it is read from the terminal")
    verb.add_argument("--email", default="", help="the address of an account; only accounts can manage keys")
    commands.add(
        "logout", logout, "Delete what `login` saved, and end the session.", "lorikeet logout --profile staging"
    )
    commands.add(
        "whoami", whoami, "Show the server, the tenant and the account or key of this login.", "lorikeet whoami --json"
    )
    verb = commands.add(
        "profiles", profiles, "List saved logins, and choose the current one.", "lorikeet profiles use staging"
    )
    actions = list_actions(verb, no_options)
    actions.add("use", use_profile, "make one the current one", ("name", "its name"))


def login(args: Namespace, _: Client) -> Output:
    url = profile.server_of(args.url)
    made = _with_key(url, args) if args.key is not None else _with_password(url, args)
    Client(made).tenant("GET", "overview")  # refuses a wrong tenant or key now, not at its first use
    where = profile.save(made, args.profile)
    say(f"Logged in to {made.url} as {'a key' if made.key else 'a member'} of {made.tenant}. Saved in {where}.")
    return Output({"url": made.url, "tenant": made.tenant})


def logout(args: Namespace, client: Client) -> Output:
    """End the session if it still exists, and delete the saved profile in any case."""
    caller = client.profile
    if not caller.name:
        fix = "Unset LORIKEET_URL and LORIKEET_KEY, or name a saved one with --profile."
        raise CliError("The login is that of the environment, which is not saved.", fix, code="not_saved")
    try:
        if caller.session:
            client.call("DELETE", "/api/session")
    finally:
        profile.forget(caller.name)
    return Output()


def whoami(args: Namespace, client: Client) -> Output:
    caller = client.profile
    body: dict[str, Any] = {"profile": caller.name or None, "url": caller.url, "tenant": caller.tenant}
    rows = [
        ["server", caller.url],
        ["profile", caller.name or "that of the environment"],
        ["tenant", caller.tenant or "none"],
    ]
    if caller.key:
        body["key"] = key = _key_of(client, caller.key)
        rows.append(["key", f"{key['name']} (lk_{key['prefix']}_…)"])
        rows.append(["scopes", ", ".join(key["scopes"])])
    else:
        session = client.call("GET", "/api/session")
        if not session["authenticated"]:
            fix = "`lorikeet login` starts a new one."
            raise CliError("The session has ended.", fix, code="not_authenticated", exit_code=LOG_IN)
        body["user"], body["tenants"] = session["user"], session["tenants"]
        roles = {each["slug"]: each["role"] for each in session["tenants"]}
        rows.append(["account", session["user"]["email"]])
        rows.append(["role", roles.get(caller.tenant, "none")])
        rows.append(["operator", "yes" if session["user"]["is_operator"] else "no"])
        rows.append(["tenants", ", ".join(roles) or "none"])
    return Output(body, "\n".join(f"{label:<9} {value}" for label, value in rows))


def _key_of(client: Client, secret: str) -> Any:
    """Return the row of the caller's own key. Raises CliError, also if the key may not read it."""
    prefix = secret.removeprefix("lk_").partition("_")[0]
    rows, _ = client.rows("keys", limit=sys.maxsize, search=prefix)
    for row in rows:
        if row["prefix"] == prefix:
            return row
    raise CliError(f"The key lk_{prefix}_… is not one of {client.profile.tenant}.", code="no_such_key")


def profiles(args: Namespace, _: Client) -> Output:
    saved = profile.read()
    body = [
        {
            "name": name,
            "current": name == saved.current,
            "url": each.url,
            "tenant": each.tenant,
            "kind": "key" if each.key else "session",
        }
        for name, each in saved.profiles.items()
    ]
    rows = [["*" if each["current"] else "", each["name"], each["url"], each["tenant"], each["kind"]] for each in body]
    return Output(body, table(["", "profile", "server", "tenant", "login"], rows))


def use_profile(args: Namespace, _: Client) -> Output:
    chosen = profile.use(args.name)
    say(f"{args.name} is the current profile: {chosen.tenant} at {chosen.url}.")
    return Output()


def read_secret(prompt: str) -> str:
    """Return a line that is typed without echo, or the first line of a pipe."""
    return getpass.getpass(prompt) if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")


def _with_key(url: str, args: Namespace) -> Profile:
    key = args.key or os.environ.get("LORIKEET_KEY") or read_secret("API key: ")
    if not args.tenant:
        raise CliError("A key alone does not name its tenant.", "Add --tenant with the tenant's short name.")
    return Profile(url, args.tenant, key=key.strip())


def _with_password(url: str, args: Namespace) -> Profile:
    email = args.email or _read_email()
    password = os.environ.get("LORIKEET_PASSWORD") or read_secret("Password: ")
    session, tenants = log_in(url, email, password, _read_code)
    if not args.tenant and len(tenants) != 1:
        raise CliError(f"You are a member of {', '.join(tenants) or 'no tenant'}.", "Choose one with --tenant.")
    return replace(session, tenant=args.tenant or tenants[0])


def _read_code() -> str:
    code = read_secret("Code of your authenticator app, or a recovery code: ").strip()
    if not code:
        fix = "Enter a code. Passkeys work only in the console: use a recovery code, or an API key with --key."
        raise CliError("This account has a second factor, and no code was entered.", fix, code="code_required")
    return code


def _read_email() -> str:
    print("E-mail: ", end="", file=sys.stderr, flush=True)
    email = sys.stdin.readline().strip()
    if not email:
        raise CliError("No e-mail address was entered.", "Add --email, or --key for an API key.")
    return email
