"""Engine hosts, for operators who logged in with their account."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from lorikeet_cli.commands import client, say
from lorikeet_cli.output import table


def listed(asked: Namespace) -> None:
    shown = ("running", "waiting", "zone", "address")
    found = client().call("GET", "/api/operator/hosts")
    rows = [
        [host["name"], _state(host), host["model"], *[host[name] for name in shown], _until(host)] for host in found
    ]
    print(table(["host", "state", "model", *shown, "certificate until"], rows))
    for host in found:
        if host["quarantine"]:
            say(f"{host['name']} is in quarantine: {host['quarantine']['message']} {host['quarantine']['fix']}")
        if end := host["last_end"]:
            when = f", {end['at'][:16].replace('T', ' ')} UTC" if end["at"] else ""
            say(f"{host['name']} was started anew{when}: {end['reason']}")


def _state(host: Any) -> str:
    if host["quarantine"]:
        return str(host["quarantine"]["code"]).replace("_", " ")
    return str(host["state"] if host["service"] == "serving" else host["service"])


def _until(host: Any) -> str:
    joined = host["joined"]
    return (joined["certificate_expires_at"] or "revoked")[:10] if joined else ""


def add(asked: Namespace) -> None:
    body = {"host": asked.host, "expires_s": asked.minutes * 60}
    made = client().call("POST", "/api/operator/join-tokens", body)
    say(f"Good once, for {asked.minutes} minutes. Start the engine on the new host with:")
    print(f"--join {made['join_url']} --token {made['token']}")


def revoke(asked: Namespace) -> None:
    client().call("DELETE", f"/api/operator/hosts/{asked.host}" + ("" if asked.forget else "/credential"))
    say(f"{asked.host} is " + ("forgotten." if asked.forget else "in quarantine; nothing connects to it any more."))
