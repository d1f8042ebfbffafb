"""`lorikeet hosts`: engine hosts, for operators who logged in with their account."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from lorikeet_cli.client import Client
from lorikeet_cli.commands import Commands, list_actions, no_options, positive
from lorikeet_cli.output import Output, say, table


def add_commands(commands: Commands) -> None:
    verb = commands.add(
        "hosts",
        hosts,
        "List, add and revoke engine hosts; for operators.",
        "lorikeet hosts",
        "lorikeet hosts add --host gpu2",
        "lorikeet hosts revoke gpu2 --forget",
    )
    actions = list_actions(verb, no_options)
    new = actions.add("add", add, "make a join token, which is printed once, as options of the engine's command")
    new.add_argument("--host", default="", help="the only name to join by; it takes that host's place")
    new.add_argument("--minutes", type=positive, default=60, help="minutes until the token expires")
    old = actions.add("revoke", revoke, "revoke the credential of a host that joined", ("host", "its name"))
    old.add_argument("--forget", action="store_true", help="also remove it from the lists; its name is free again")


def hosts(args: Namespace, client: Client) -> Output:
    columns = ("running", "waiting", "zone", "address")
    hosts = client.operator("GET", "hosts")
    rows = [
        [host["name"], _state(host), host["model"], *[host[name] for name in columns], _until(host)] for host in hosts
    ]
    for host in hosts:
        if host["quarantine"]:
            say(f"{host['name']} is in quarantine: {host['quarantine']['message']} {host['quarantine']['fix']}")
        if end := host["last_end"]:
            when = f", {end['at'][:16].replace('T', ' ')} UTC" if end["at"] else ""
            say(f"{host['name']} was restarted{when}: {end['reason']}")
    return Output(hosts, table(["host", "state", "model", *columns, "certificate until"], rows))


def _state(host: Any) -> str:
    if host["quarantine"]:
        return str(host["quarantine"]["code"]).replace("_", " ")
    return str(host["state"] if host["service"] == "serving" else host["service"])


def _until(host: Any) -> str:
    joined = host["joined"]
    return (joined["certificate_expires_at"] or "revoked")[:10] if joined else ""


def add(args: Namespace, client: Client) -> Output:
    token = client.operator("POST", "join-tokens", body={"host": args.host, "expires_s": args.minutes * 60})
    say(f"Good once, for {args.minutes} minutes. Start the engine on the new host with:")
    return Output(token, f"--join {token['join_url']} --token {token['token']}")


def revoke(args: Namespace, client: Client) -> Output:
    client.operator("DELETE", "hosts", args.host, *([] if args.forget else ["credential"]))
    say(f"{args.host} is " + ("removed." if args.forget else "in quarantine; nothing connects to it any more."))
    return Output()
