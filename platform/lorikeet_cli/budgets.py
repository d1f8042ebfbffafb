"""`lorikeet budgets`: how much money a tenant and its keys may spend in a day and a month."""

from __future__ import annotations

import argparse
from argparse import Namespace
from decimal import Decimal, InvalidOperation
from typing import Any

from lorikeet_cli.client import Client
from lorikeet_cli.commands import Commands, list_actions, no_options
from lorikeet_cli.errors import CliError
from lorikeet_cli.keys import find_key
from lorikeet_cli.output import Output, money, say, table

PERIODS = ("day", "month")
_NONE = "none"
_MICROS = 1_000_000


def add_commands(commands: Commands) -> None:
    verb = commands.add(
        "budgets",
        budgets,
        "Show what the tenant and its keys may spend and have spent; or set it.",
        "lorikeet budgets",
        "lorikeet budgets set --month 500 --alert 80 --alert 100",
        "lorikeet budgets set --key backend --day 2.50 --at-limit warn",
    )
    actions = list_actions(verb, no_options)
    change = actions.add("set", set_budgets, "set budgets of the tenant, or of a key")
    change.add_argument("--key", default="", help="a key's name, or lk_<prefix>; without it the tenant's own budgets")
    for period in PERIODS:
        change.add_argument(f"--{period}", type=_amount, metavar="AMOUNT", help=f'for a {period}; "none" lifts it')
    change.add_argument("--at-limit", choices=("refuse", "warn"), default="refuse", help="by default refuse")
    change.add_argument(
        "--alert", type=int, action="append", metavar="PERCENT", help="send webhooks at this part of it"
    )


def _amount(text: str) -> int | str:
    """Return an amount in millionths of the currency, or the word that lifts a budget."""
    if text == _NONE:
        return _NONE
    try:
        micros = Decimal(text) * _MICROS
    except InvalidOperation:
        micros = Decimal(0)
    if micros < 1 or micros != micros.to_integral_value():
        raise argparse.ArgumentTypeError(f"{text} is not an amount above 0 with up to six decimals")
    return int(micros)


def budgets(args: Namespace, client: Client) -> Output:
    report = client.tenant("GET", "budgets")
    currency = report["currency"]
    rows = _rows("granted by the operator", report["granted"], currency)
    rows += _rows(f"tenant {client.profile.tenant}", report["own"], currency)
    for key in report["keys"]:
        rows += _rows(f"key {key['name']}", key, currency)
    if (rest := report["keys_total"] - len(report["keys"])) > 0:
        say(f"{rest:,} more keys have a budget; these are the ones with the least left.")
    text = table(["of", "period", "spent", "at most", "then"], rows) if rows else "There is no budget."
    return Output(report, text)


def _rows(label: str, budgets: Any, currency: str | None) -> list[list[str]]:
    return [
        [label, period, money(each["spent_micros"], currency), money(each["amount_micros"], currency), each["at_limit"]]
        for period in PERIODS
        if (each := budgets[period])
    ]


def set_budgets(args: Namespace, client: Client) -> Output:
    """Change the budgets that are named; the API replaces both, so the other is sent as it is."""
    changes = {period: getattr(args, period) for period in PERIODS if getattr(args, period) is not None}
    if not changes:
        raise CliError("No budget is named.", "Add --day or --month with an amount.", code="no_budget")
    key = find_key(client, args.key) if args.key else None
    path = ("keys", key["id"], "budgets") if key else ("budgets",)
    report = client.tenant("GET", *path)
    present = report if key else report["own"]
    body = {period: _terms(present[period]) for period in PERIODS if present[period]}
    for period, amount in changes.items():
        body.pop(period, None)
        if amount != _NONE:
            body[period] = {"amount_micros": amount, "at_limit": args.at_limit, "alerts": args.alert or []}
    changed = client.tenant("PUT", *path, body=body)
    say(f"The budgets of {key['name'] if key else client.profile.tenant} are set.")
    return Output(changed)


def _terms(budget: Any) -> dict[str, Any]:
    return {name: budget[name] for name in ("amount_micros", "at_limit", "alerts")}
