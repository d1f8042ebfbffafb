"""`lorikeet webhooks`: endpoints that receive the tenant's events."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from lorikeet_cli.client import Client
from lorikeet_cli.commands import Commands, list_actions, no_options
from lorikeet_cli.errors import CliError
from lorikeet_cli.output import Output, moment, say, table

_WEBHOOK = ("webhook", "its address, its id or the beginning of that")


def add_commands(commands: Commands) -> None:
    verb = commands.add(
        "webhooks",
        webhooks,
        "List, add, try and remove endpoints that receive events.",
        "lorikeet webhooks add https://app.example.org/hook --event version.ready --event canary.failed",
        "lorikeet webhooks test https://app.example.org/hook",
        "lorikeet webhooks deliveries https://app.example.org/hook",
    )
    actions = list_actions(verb, no_options)
    new = actions.add("add", add, "register one; its secret is printed once", ("url", "an https address"))
    new.add_argument("--event", action="append", default=[], help="like version.ready; may be repeated; default all")
    new.add_argument("--description", default="", help="a sentence about the receiver")
    actions.add("remove", remove, "remove one", _WEBHOOK)
    actions.add("test", test, "send a message of type test", _WEBHOOK)
    actions.add("deliveries", deliveries, "list the latest hundred messages with their state", _WEBHOOK)
    actions.add("replay", replay, "send a message again", _WEBHOOK, ("delivery", "its id, as `deliveries` shows it"))
    actions.add("rotate", rotate, "make a new secret; the old one is used too for a day", _WEBHOOK)


def webhooks(args: Namespace, client: Client) -> Output:
    webhooks = client.tenant("GET", "webhooks")
    rows = [
        [each["id"][:8], each["url"], ", ".join(each["events"]) or "all", _state(each), each["failures"]]
        for each in webhooks
    ]
    return Output(webhooks, table(["webhook", "address", "events", "state", "failures"], rows))


def _state(webhook: Any) -> str:
    if not webhook["active"]:
        return "off"
    return f"rests until {moment(webhook['rests_until'])}" if webhook["rests_until"] else "active"


def add(args: Namespace, client: Client) -> Output:
    body = {"url": args.url, "events": args.event, "description": args.description}
    webhook = client.tenant("POST", "webhooks", body=body)
    say("Keep the secret now: it is not shown again. Messages are signed with it.")
    return Output(webhook, webhook["secret"])


def remove(args: Namespace, client: Client) -> Output:
    webhook = _find(client, args.webhook)
    client.tenant("DELETE", "webhooks", webhook["id"])
    say(f"{webhook['url']} receives nothing any more.")
    return Output()


def test(args: Namespace, client: Client) -> Output:
    webhook = _find(client, args.webhook)
    delivery = client.tenant("POST", "webhooks", webhook["id"], "test")
    say(f"A message is sent to {webhook['url']}; `lorikeet webhooks deliveries {webhook['id'][:8]}` shows its way.")
    return Output(delivery, delivery["id"])


def deliveries(args: Namespace, client: Client) -> Output:
    deliveries = client.tenant("GET", "webhooks", _find(client, args.webhook)["id"], "deliveries")
    rows = [
        [each["id"], each["type"], each["state"], each["attempts"], _last(each["log"]), moment(each["created_at"])]
        for each in deliveries
    ]
    return Output(deliveries, table(["delivery", "event", "state", "attempts", "last answer", "created"], rows))


def _last(log: list[Any]) -> str:
    return str(log[-1]["error"] or log[-1]["status"]) if log else "–"


def replay(args: Namespace, client: Client) -> Output:
    delivery = client.tenant(
        "POST", "webhooks", _find(client, args.webhook)["id"], "deliveries", args.delivery, "replay"
    )
    say("The message is sent again.")
    return Output(delivery)


def rotate(args: Namespace, client: Client) -> Output:
    webhook = client.tenant("POST", "webhooks", _find(client, args.webhook)["id"], "rotate")
    say("Keep the secret now: it is not shown again. The old one signs messages too, for a day.")
    return Output(webhook, webhook["secret"])


def _find(client: Client, name: str) -> Any:
    """Return the webhook of an address, or of an id or its beginning. Raises CliError unless there is one."""
    webhooks = client.tenant("GET", "webhooks")
    matches = [each for each in webhooks if each["url"] == name or each["id"].startswith(name)]
    if len(matches) != 1:
        raise CliError(f"{len(matches)} webhooks are called {name}.", "`lorikeet webhooks` lists them.", code="no_such")
    return matches[0]
