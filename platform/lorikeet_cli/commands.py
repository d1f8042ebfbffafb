"""The parser of commands: options that all of them have, help in groups with examples, and "did you mean"."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

from lorikeet_cli.client import Client
from lorikeet_cli.errors import USAGE, CliError
from lorikeet_cli.output import Output

Run = Callable[[argparse.Namespace, Client], Output]
# Rows of a list without --limit and --all.
DEFAULT_ROWS = 50
# The limit of a list with --all.
ALL_ROWS = sys.maxsize
# Seconds that a command waits without --timeout. Imports of large repositories take minutes; batches and evaluations
# run when no other request waits.
UPLOAD_TIMEOUT_S = 900.0
BATCH_TIMEOUT_S = 3600.0
VERSION = "like support@v7"
FILE = 'the file to write; "-" is standard output'
KEY = "the name of the key that makes the requests; not if logged in with a key"


class Parser(argparse.ArgumentParser):
    """A parser of a command. Errors are raised as CliError, with the closest command or option that exists."""

    def __init__(self, *, examples: Sequence[str] = (), **options: Any) -> None:
        lines = "\n".join(f"  $ {example}" for example in examples)
        options.setdefault("epilog", f"examples:\n{lines}" if examples else None)
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **options)
        self.examples = examples
        self.add_argument(
            "--json",
            action="store_true",
            default=argparse.SUPPRESS,
            help="print the API's response as JSON, and an error as JSON on the last line of standard error",
        )
        self.add_argument(
            "--profile",
            default=argparse.SUPPRESS,
            metavar="NAME",
            help="a login saved by `lorikeet login --profile NAME`, instead of the current one",
        )

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments; an unknown one is an error of this command, which knows its own options."""
        args = sys.argv[1:] if args is None else list(args)
        self._check_options(args)
        namespace, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"There is one argument too many: {unknown[0]}")
        return namespace, unknown

    def _check_options(self, words: Sequence[str]) -> None:
        """Refuse an unknown option before its value is taken for a command. An action's parser checks its own."""
        verbs = next((action.choices for action in self._actions if isinstance(action, argparse._SubParsersAction)), {})
        for word in words:
            option = word.partition("=")[0]
            if word == "--" or word in verbs:
                return
            if option.startswith("--") and option not in self._option_string_actions:
                self.error(f"There is no option {option}.{did_you_mean(option, self._option_string_actions)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        hint = did_you_mean(str(value), map(str, action.choices))
        if isinstance(action, argparse._SubParsersAction):
            self.error(f'There is no command "{self.prog} {value}".{hint}')
        raise argparse.ArgumentError(action, f'"{value}" is none of {", ".join(map(str, action.choices))}.{hint}')

    def error(self, message: str) -> NoReturn:
        usage = " ".join(self.format_usage().split())
        fix = f"{usage[0].upper()}{usage[1:]}\n`{self.prog} --help` explains it."
        raise CliError(message, fix, code="usage", exit_code=USAGE)


class Commands:
    """The commands of `lorikeet` by group, in the order in which they are added."""

    def __init__(self, top: argparse.ArgumentParser) -> None:
        self._verbs = top.add_subparsers(metavar="command", prog=top.prog, help=argparse.SUPPRESS)
        self._texts: dict[str, list[tuple[str, str]]] = {}
        self._group = ""

    def group(self, title: str) -> None:
        """Begin the group of the commands that are added next."""
        self._group = title

    def add(self, name: str, run: Run | None, text: str, *examples: str) -> argparse.ArgumentParser:
        """Add a command. One without `run` needs an action."""
        verb: argparse.ArgumentParser = self._verbs.add_parser(name, description=text, examples=examples)
        if run is not None:
            verb.set_defaults(run=run)
        self._texts.setdefault(self._group, []).append((name, text))
        return verb

    def listing(self) -> str:
        """Return the groups with a line for each command."""
        width = max(len(name) for rows in self._texts.values() for name, _ in rows)
        groups = (
            f"{group}:\n" + "\n".join(f"  {name:<{width}}  {text}" for name, text in rows)
            for group, rows in self._texts.items()
        )
        return "\n\n".join(groups)


class Actions:
    """The actions of a command, such as `create` of `keys`."""

    def __init__(self, verb: argparse.ArgumentParser, *, required: bool = False) -> None:
        self._actions = verb.add_subparsers(metavar="action", title="actions", required=required)

    def add(self, name: str, run: Run | None, text: str, *arguments: tuple[str, str]) -> argparse.ArgumentParser:
        """Add an action with its positional arguments, each a name and its help. Without `run` it is the verb's."""
        description = text[0].upper() + text[1:] + "."
        action: argparse.ArgumentParser = self._actions.add_parser(name, help=text, description=description)
        if run is not None:
            action.set_defaults(run=run)
        for argument, help_text in arguments:
            action.add_argument(argument, help=help_text)
        return action


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a sentence with the known word that is closest to a misspelt one; "" if none is close."""
    close = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" Did you mean {close[0]}?" if close else ""


def list_actions(verb: argparse.ArgumentParser, options: Callable[[argparse.ArgumentParser, Any], None]) -> Actions:
    """Add `list`, which the command does without an action too, with the options of both; return the place for others.

    `options` adds the list's options to a parser. Its second argument is the default: argparse.SUPPRESS for `list`, so
    that the default of `list` does not replace an option that stands before it.
    """
    actions = Actions(verb)
    options(verb, None)
    options(actions.add("list", None, "list them, as without an action"), argparse.SUPPRESS)
    return actions


def no_options(_verb: argparse.ArgumentParser, _default: Any) -> None:
    """Options of a list that is always complete."""


def list_options(verb: argparse.ArgumentParser, default: Any = None, *, search: str = "") -> None:
    """Add --limit and --all, and --search if `search` says in what it looks."""
    rows = DEFAULT_ROWS if default is None else default
    shown = verb.add_mutually_exclusive_group()
    shown.add_argument(
        "--limit", type=positive, default=rows, metavar="N", help=f"rows to print; by default {DEFAULT_ROWS}"
    )
    shown.add_argument("--all", dest="limit", action="store_const", const=ALL_ROWS, default=rows, help="print all rows")
    if search:
        verb.add_argument("--search", default=default, metavar="TEXT", help=f"only rows with this text in {search}")


def searched(place: str) -> Callable[[argparse.ArgumentParser, Any], None]:
    """Return the options of a long list that can be searched."""
    return lambda verb, default: list_options(verb, default, search=place)


def timeout_option(verb: argparse.ArgumentParser, default: float) -> None:
    verb.add_argument(
        "--timeout",
        type=seconds,
        default=default,
        metavar="S",
        help=f"seconds to wait before the command ends with exit code 5; by default {default:g}",
    )


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number above 0")
    return int(text)


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds")
    return value
