"""`lorikeet chat`: one answer of a model, or a conversation in the terminal."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

from lorikeet_cli.client import Client
from lorikeet_cli.commands import Commands, positive
from lorikeet_cli.errors import CliError
from lorikeet_cli.output import Output, plain, say

_PATH = "/v1/chat/completions"


def add_commands(commands: Commands) -> None:
    verb = commands.add(
        "chat",
        chat,
        "Ask a model; without a message, talk to it in the terminal.",
        'lorikeet chat support "My card was stolen."',
        "lorikeet chat support@v7 --system rules.txt < question.txt",
        "lorikeet chat pirate Hello --json | jq -r '.choices[0].message.content'",
    )
    verb.add_argument("model", help="an adapter, a version like support@v7, or a base model")
    verb.add_argument("message", nargs="*", help="by default standard input, or a conversation on a terminal")
    verb.add_argument("--system", default="", metavar="TEXT", help="the system prompt, or the file with it")
    verb.add_argument("--max-tokens", type=positive, metavar="N", help="tokens of an answer")
    verb.add_argument("--temperature", type=float, metavar="T", help="0 for the most probable answer")


def chat(args: Namespace, client: Client) -> Output:
    client.inference_key()
    messages = [{"role": "system", "content": _system(args.system)}] if args.system else []
    if not args.message and sys.stdin.isatty():
        return _converse(args, client, messages)
    message = " ".join(args.message) or sys.stdin.read().strip()
    if not message:
        raise CliError("There is no message.", f'Write one: lorikeet chat {args.model} "Hello"', code="no_message")
    messages.append({"role": "user", "content": message})
    if args.json:
        return Output(client.call("POST", _PATH, _body(args, messages)))
    _answer(args, client, messages)
    return Output()


def _converse(args: Namespace, client: Client, messages: list[dict[str, str]]) -> Output:
    """Answer each line of the terminal, with the conversation so far, until Ctrl-D."""
    if args.json:
        raise CliError("A conversation has no JSON.", "Add a message.", code="no_message")
    say(f"Talking to {args.model}; Ctrl-D ends it.")
    while True:
        print("> ", end="", file=sys.stderr, flush=True)
        if not (line := sys.stdin.readline()):
            say("")
            return Output()
        if line.strip():
            question = {"role": "user", "content": line.strip()}
            try:
                answer = _answer(args, client, [*messages, question])
            except CliError as error:  # such as a full host: the question can be asked again
                say(error.text())
            else:
                messages += [question, {"role": "assistant", "content": answer}]


def _answer(args: Namespace, client: Client, messages: list[dict[str, str]]) -> str:
    """Print an answer while it comes, and return it; reasoning and figures go to standard error."""
    began, first = time.monotonic(), None
    answer, usage, reason = "", None, None
    body = {**_body(args, messages), "stream": True, "stream_options": {"include_usage": True}}
    for event in client.events(_PATH, body):
        usage = event.get("usage") or usage
        for choice in event["choices"]:
            delta = choice["delta"]
            first = first or time.monotonic()
            reason = choice.get("finish_reason") or reason
            if reasoning := delta.get("reasoning_content"):
                print(plain(reasoning, keep="\n"), end="", file=sys.stderr, flush=True)
            if text := delta.get("content"):
                answer += text
                print(plain(text, keep="\n\t"), end="", flush=True)
    print(flush=True)
    _say_figures(usage, (first or time.monotonic()) - began, reason)
    return answer


def _say_figures(usage: Any, first_s: float, reason: str | None) -> None:
    if sys.stderr.isatty() and usage:
        tokens = f"{usage['prompt_tokens']:,} + {usage['completion_tokens']:,} tokens"
        say(f"[{tokens}, first after {first_s * 1000:.0f} ms]")
    if reason == "length":
        say("The answer is cut off at its token limit; --max-tokens raises it.")


def _body(args: Namespace, messages: list[dict[str, str]]) -> dict[str, Any]:
    options = {"max_tokens": args.max_tokens, "temperature": args.temperature}
    present = {name: value for name, value in options.items() if value is not None}
    return {"model": args.model, "messages": messages, **present}


def _system(text: str) -> str:
    """Return the content of the file of that name, or the text itself."""
    try:
        return Path(text).read_text("utf-8")
    except (OSError, ValueError):
        return text
