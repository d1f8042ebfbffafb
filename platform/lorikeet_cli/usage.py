"""`lorikeet usage` and `tail`: what requests used, and requests as they end."""

from __future__ import annotations

import json
import time
from argparse import Namespace
from calendar import monthrange
from typing import Any

from lorikeet_cli.client import Client
from lorikeet_cli.commands import FILE, Commands, positive, seconds
from lorikeet_cli.output import Output, duration, moment, money, say, size, table, write

# Requests of one page of `tail`.
TAIL_ROWS = 100
# Seconds between two polls of `tail`.
TAIL_S = 1.0
_COLUMNS = ("requests", "prompt tokens", "output tokens", "GPU time", "cost")


def add_commands(commands: Commands) -> None:
    verb = commands.add(
        "usage",
        usage,
        "Show what was used, by adapter; or a statement, or CSV.",
        "lorikeet usage --days 7",
        "lorikeet usage --month 2026-05",
        "lorikeet usage --csv may.csv --grain hour",
    )
    verb.add_argument("--days", type=positive, default=30, help="days until now; by default 30")
    verb.add_argument("--base", default="", help="only requests of this base model; not for a statement")
    verb.add_argument("--month", default="", help="the statement of a month, like 2026-05")
    verb.add_argument("--csv", default="", metavar="FILE", help=f"write CSV: {FILE}")
    verb.add_argument("--grain", choices=("day", "hour"), default="day", help="period that a row of CSV adds up")
    verb = commands.add(
        "tail",
        tail,
        "Show requests as they end; with --json one object a line.",
        "lorikeet tail",
        "lorikeet tail --seconds 60 --json | jq -r .model",
    )
    verb.add_argument("--seconds", type=seconds, default=0, help="stop after so long")


def usage(args: Namespace, client: Client) -> Output:
    base = args.base or None
    if args.csv:
        write(
            client.stream(client.tenant_path("usage.csv"), days=args.days, grain=args.grain, base_model=base), args.csv
        )
        return Output()
    if args.month:
        return _statement(client.tenant("GET", "statement", month=args.month))
    report = client.tenant("GET", "usage", days=args.days, base_model=base)
    currency = report["currency"]
    rows = [_row(row, row["adapter"] or "(base model)", currency) for row in report["by_adapter"]]
    rows.append(_row(report["totals"], "total", currency))
    text = table(["adapter", *_COLUMNS], rows)
    if len(report["by_base_model"]) > 1:
        rows = [_row(row, row["base_model"] or "(not recorded)", currency) for row in report["by_base_model"]]
        text += "\n\n" + table(["base model", *_COLUMNS], rows)
    days = "1 day" if args.days == 1 else f"{args.days} days"
    say(f"last {days} (UTC), as of {moment(report['as_of']) if report['as_of'] else 'never'}")
    if currency is None:
        say("No prices are published, so nothing has a cost.")
    return Output(report, text)


def _row(row: Any, label: str, currency: str | None) -> list[object]:
    time_used = duration(row["device_us"] / 1e6)
    cost = money(row["cost_micros"], currency)
    return [label, row["requests"], row["prompt_tokens"], row["completion_tokens"], time_used, cost]


def _statement(statement: Any) -> Output:
    currency = statement["currency"]
    year, month = map(int, statement["month"].split("-")[:2])
    hours = 24 * monthrange(year, month)[1]
    rows = [
        [
            f"{line['kind']} on {line['base_model']}" if line.get("base_model") else line["kind"],
            f"{line['first']} to {line['last']}",
            _quantity(line, hours),
            money(line["unit_price_micros"], currency) + (" a GB month" if _is_storage(line) else " a million"),
            money(line["amount_micros"], currency),
        ]
        for line in statement["lines"]
    ]
    rows.append(["total", "", "", "", money(statement["total_micros"], currency)])
    return Output(statement, table(["item", "days", "quantity", "price", "amount"], rows))


def _is_storage(line: Any) -> bool:
    return str(line["kind"]) == "storage"


def _quantity(line: Any, hours: int) -> str:
    """Return the quantity of a line with its unit. That of storage is in bytes x hours; the month has so many hours."""
    if _is_storage(line):
        return f"{size(line['quantity'] / hours)} for a month"
    return f"{line['quantity']:,} tokens"


def tail(args: Namespace, client: Client) -> Output:
    """Print requests as they end, oldest first, until interrupted; with --json one object a line."""
    seen = {row["id"] for row in client.tenant("GET", "requests", limit=TAIL_ROWS)["results"]}
    say("Waiting for requests; Ctrl-C ends it.")
    end = time.monotonic() + args.seconds if args.seconds else None
    while end is None or time.monotonic() < end:
        for row in reversed(_unseen(client, seen)):
            seen.add(row["id"])
            print(json.dumps(row) if args.json else _request_line(row), flush=True)
        time.sleep(TAIL_S)
    return Output()


def _unseen(client: Client, seen: set[str]) -> list[Any]:
    """Return every request that ended since the last poll, newest first, however many there were."""
    rows: list[Any] = []
    cursor = None
    while True:
        page = client.tenant("GET", "requests", limit=TAIL_ROWS, cursor=cursor)
        unseen = [row for row in page["results"] if row["id"] not in seen]
        rows += unseen
        cursor = page["next_cursor"]
        if len(unseen) < len(page["results"]) or not cursor:
            return rows


def _request_line(row: Any) -> str:
    tokens = f"{row['prompt_tokens']}+{row['completion_tokens']}"
    outcome = row["outcome"] + (f" {row['error_code']}" if row["error_code"] else "")
    wait = f"{row['first_token_ms']} ms" if row["first_token_ms"] else "–"
    return f"{moment(row['created_at'])}  {row['model']:<24} {tokens:>11} tokens  first {wait:>8}  {outcome}"
