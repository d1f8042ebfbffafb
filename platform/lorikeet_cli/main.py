"""The commands of `lorikeet`, its exit codes, and the form of its results and errors."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Sequence

from lorikeet_cli import (
    adapters,
    audit,
    batches,
    budgets,
    chat,
    completion,
    evaluations,
    hosts,
    imports,
    keys,
    limits,
    login,
    members,
    origins,
    pins,
    releases,
    uploads,
    usage,
    webhooks,
)
from lorikeet_cli.client import Client
from lorikeet_cli.commands import Commands, Parser
from lorikeet_cli.errors import EXIT_CODES, INTERRUPTED, CliError
from lorikeet_cli.output import Output, say
from lorikeet_version import build_version

_ENVIRONMENT = """environment:
  LORIKEET_URL, LORIKEET_KEY  a server and an API key, instead of `lorikeet login`
  LORIKEET_PROFILE            the saved login, instead of the current one
  LORIKEET_TENANT             the tenant, instead of the one that was logged in to"""
# The modules with the commands of each group of the help.
_GROUPS = {
    "adapters": (adapters, uploads, imports),
    "releases": (releases, evaluations),
    "requests": (chat, usage, batches, pins),
    "tenant": (keys, limits, budgets, members, webhooks, audit, origins),
    "installation": (hosts,),
    "this command": (login, completion),
}


def parser() -> argparse.ArgumentParser:
    codes = "\n".join(f"  {code:<4} {text}" for code, text in EXIT_CODES.items())
    top = Parser(
        prog="lorikeet",
        description="Adapters, requests, keys and usage of a Lorikeet server.",
        usage="lorikeet COMMAND [options]",
        examples=("lorikeet login https://lorikeet.example.org --tenant acme --key", "lorikeet upload ./support"),
    )
    top.set_defaults(json=False, profile="", run=None)
    top.add_argument("--version", action="version", version=f"lorikeet {build_version()}")
    commands = Commands(top)
    for title, modules in _GROUPS.items():
        commands.group(title)
        for module in modules:
            module.add_commands(commands)
    top.description = f"{top.description} `lorikeet COMMAND --help` explains a command.\n\n{commands.listing()}"
    top.epilog = f"{top.epilog}\n\n{_ENVIRONMENT}\n\nexit codes:\n{codes}"
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code, one of EXIT_CODES."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal without UTF-8 has no "…" and no names in it
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0] == completion.HIDDEN:
        print("".join(f"{candidate}\n" for candidate in completion.candidates(parser(), words[1:])), end="")
        return 0
    as_json = "--json" in words
    try:
        output = _run(words)
        if as_json and output.body is not None:
            print(json.dumps(output.body, indent=2))
        elif output.text and not as_json:
            print(output.text)
        print(end="", flush=True)
    except CliError as error:
        return _report(error, as_json)
    except (KeyboardInterrupt, EOFError):
        say("")  # ends the line of "^C", of a prompt or of the progress bar
        return INTERRUPTED
    except BrokenPipeError:
        _discard_output()  # `lorikeet usage | head` has read enough
    except OSError as error:
        _discard_output()
        return _report(CliError(f"{error.strerror or error}: {error.filename or 'output'}"), as_json)
    return 0


def _run(words: Sequence[str]) -> Output:
    top = parser()
    args = top.parse_args(words)
    if args.run is None:
        return Output(text=top.format_help())
    client = Client()
    client.profile_name = args.profile
    result: Output = args.run(args, client)
    return result


def _report(error: CliError, as_json: bool) -> int:
    say(json.dumps(error.body()) if as_json else error.text())
    return error.exit_code


def _discard_output() -> None:
    """Send what is still buffered nowhere; the interpreter would fail to write it at its end."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
