"""Code in the documentation: its form, its syntax, and that its commands, options and packages exist."""

from __future__ import annotations

import argparse
import ast
import importlib.util
import io
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from contextlib import redirect_stderr
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from django.core.management import get_commands, load_command_class
from lorikeet_testing.documentation import (
    FOR_OPERATORS,
    ROOT,
    RUNNABLE,
    Block,
    blocks,
    guides,
    mentioned_commands,
    pages,
)

from lora_engine.server import arguments, plan
from lorikeet_cli.main import parser
from scripts.launch.packages import EXTRAS

CODE = [block for page in pages() for block in blocks(page) if block.language in RUNNABLE]
LANGUAGES = {"bash", "python", "json", "yaml", "text", "dotenv"}
# Programs of the reader's machine that the pages may name.
PROGRAMS = {"cp", "curl", "date", "docker", "jq", "kubectl", "lorikeet", "make", "openssl", "pip", "python", "seq"}

VARIABLE = re.compile(r"[$]{?([A-Za-z_]\w*)")


def test_every_block_of_the_guides_names_its_language() -> None:
    wrong = [
        f"{block} {block.language!r}" for page in guides() for block in blocks(page) if block.language not in LANGUAGES
    ]
    assert not wrong, "Write ```bash for commands, so that they are run, or another language."


@pytest.mark.parametrize("block", CODE, ids=str)
def test_the_syntax(block: Block, tmp_path: Path) -> None:
    if block.language == "python":
        ast.parse(block.text)
        return
    done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    is_for_server = block.page.startswith(FOR_OPERATORS)
    for command in commands(on_no_server(block.text) if is_for_server else block.text, tmp_path):
        check(command, may_name_any=is_for_server)


@pytest.mark.parametrize("page", [page for page in pages() if any(mentioned_commands(page))])
def test_commands_in_the_text_exist(page: str) -> None:
    for text in mentioned_commands(page):
        command: argparse.ArgumentParser = parser()
        for word in shlex.split(text.replace("…", "x"))[1:]:
            verbs = next((a.choices for a in command._actions if isinstance(a, argparse._SubParsersAction)), None)
            if word.startswith("--"):
                assert word.partition("=")[0] in command._option_string_actions, text
            elif verbs and word in verbs:
                command = verbs[word]
            else:
                assert not verbs or word == "COMMAND" or not command.prog.endswith("lorikeet"), text


def test_make_run_installs_what_the_examples_import() -> None:
    """A reader of the README and the tutorial has no other environment than that of `make run`."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    requirements = [each for extra in EXTRAS["run"].split(",") for each in extras[extra]]
    installed = {re.split(r"[^\w-]", each, maxsplit=1)[0].lower() for each in requirements}
    distributions = packages_distributions()
    missing = []
    for block in CODE:
        is_kept = "not run" in block.marks or block.page.startswith(FOR_OPERATORS)
        if block.language == "python" and not is_kept:
            for name in imported(block.text) - sys.stdlib_module_names:
                if not installed & {each.lower() for each in distributions.get(name, [])}:
                    missing.append(f"{block} imports {name}")
    assert not missing


def imported(text: str) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(str(node.module).partition(".")[0])
    return names


def commands(text: str, folder: Path) -> list[list[str]]:
    """Return the words of the commands that a shell runs for a block, if each of them succeeds and prints "1".

    No program runs: the shell finds none, and calls a function that records the words.
    """
    lines = (
        "PATH=/nowhere",
        *(f": ${{{name}:=1}}" for name in VARIABLE.findall(text)),  # variables of an earlier block
        # The commands of a pipeline run at the same time: each has its file, named by its process.
        f"command_not_found_handle() {{ printf '%s\\0' \"$@\" > '{folder}'/$BASHPID.command; echo 1; }}",
        text,
    )
    done = subprocess.run(["bash"], input="\n".join(lines), cwd=folder, capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, done.stderr
    return [path.read_text().rstrip("\0").split("\0") for path in sorted(folder.glob("*.command"))]


def on_no_server(text: str) -> str:
    """Return commands without their files and folders on a server: nothing is written there."""
    text = re.sub(r"(>>?) ?/[\w/.@-]+", r"\1 /dev/null", text)
    text = re.sub(r"\bcd /\S+", "cd .", text)
    text = re.sub(r"/opt/lorikeet[-.\d]*/", "", text)
    return re.sub(r"\benv (?=\w)|\S+/bin/", "", text)


def check(command: Sequence[str], may_name_any: bool = False) -> None:
    """Check a command's program, subcommand and options, also of one that another program starts."""
    assert may_name_any or command[0] in PROGRAMS, f"{command[0]} is no program that the pages may name: {command}"
    if command[0] == "lorikeet":
        parse(parser(), command[1:])
    elif command[0] == "make":
        check_make(command[1:])
    elif "python" in command:
        check_python(command[command.index("python") + 1 :])


def check_python(words: Sequence[str]) -> None:
    if words[0] == "manage.py":
        assert words[1] in get_commands(), f"manage.py has no command {words[1]}"
        application = get_commands()[words[1]]
        made = load_command_class(str(application), words[1]).create_parser("manage.py", words[1])
        parse(made, words[2:])
    elif words[0] == "-m":
        assert importlib.util.find_spec(words[1]), f"there is no module {words[1]}"
        if words[1:3] == ["lora_engine", plan.FLAG]:
            _, others = plan.parser_of_plan().parse_known_args(words[3:])
            parse(arguments._parser(), others)
        elif words[1] == "lora_engine":
            parse(arguments._parser(), words[2:])


def check_make(words: Sequence[str]) -> None:
    makefile = (ROOT / "Makefile").read_text()
    options = makefile + (ROOT / "scripts" / "launch" / "options.py").read_text()
    for word in words:
        name, is_setting, _ = word.partition("=")
        if is_setting:
            assert re.search(rf"\b{name}\b", options), f"make knows no setting {name}"
        else:
            assert re.search(rf"^{name}:", makefile, re.MULTILINE), f"make has no target {name}"


def parse(made: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Parse arguments with a program's own parser."""
    errors = io.StringIO()
    try:
        with redirect_stderr(errors):
            made.parse_args(words)
    except (SystemExit, Exception) as error:
        pytest.fail(f"{made.prog} {shlex.join(words)}: {errors.getvalue() or error}")
