"""`lorikeet hosts`: engine hosts, for operators who logged in with their account."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from lorikeet_cli.client import Client
from lorikeet_cli.output import Output, say, table


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
