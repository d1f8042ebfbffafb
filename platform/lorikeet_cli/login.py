"""`lorikeet login` and `logout`."""

from __future__ import annotations

import getpass
import os
import sys
from argparse import Namespace
from dataclasses import replace

from lorikeet_cli import profile
from lorikeet_cli.client import Client, log_in
from lorikeet_cli.errors import CliError
from lorikeet_cli.output import Output, say
from lorikeet_cli.profile import Profile


def login(args: Namespace, _: Client) -> Output:
    url = profile.server_of(args.url)
    made = _with_key(url, args) if args.key is not None else _with_password(url, args)
    Client(made).tenant("GET", "overview")  # refuses a wrong tenant or key now, not at its first use
    where = profile.save(made)
    say(f"Logged in to {made.url} as {'a key' if made.key else 'a member'} of {made.tenant}. Saved in {where}.")
    return Output({"url": made.url, "tenant": made.tenant})


def logout(args: Namespace, client: Client) -> Output:
    """End the session if it still exists, and delete the saved profile in any case."""
    try:
        if client.profile.session:
            client.call("DELETE", "/api/session")
    finally:
        profile.forget()
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
    session, tenants = log_in(url, email, password)
    if not args.tenant and len(tenants) != 1:
        raise CliError(f"You are a member of {', '.join(tenants) or 'no tenant'}.", "Choose one with --tenant.")
    return replace(session, tenant=args.tenant or tenants[0])


def _read_email() -> str:
    print("E-mail: ", end="", file=sys.stderr, flush=True)
    email = sys.stdin.readline().strip()
    if not email:
        raise CliError("No e-mail address was entered.", "Add --email, or --key for an API key.")
    return email
