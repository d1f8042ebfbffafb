"""`lorikeet completion`: scripts by which shells complete commands and options.

The scripts call the hidden command `lorikeet _complete WORD...`, which prints the candidates for the last word.
"""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Sequence

from lorikeet_cli.client import Client
from lorikeet_cli.commands import Commands
from lorikeet_cli.output import Output

HIDDEN = "_complete"
_SCRIPTS = {
    "bash": r"""_lorikeet() {
    local IFS=$'\n'
    COMPREPLY=($(lorikeet _complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _lorikeet lorikeet
""",
    "zsh": r"""#compdef lorikeet
_lorikeet() {
    local -a candidates
    candidates=(${(f)"$(lorikeet _complete "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    if (( $#candidates )); then compadd -a candidates; else _files; fi
}
if [ "$funcstack[1]" = "_lorikeet" ]; then _lorikeet "$@"; else compdef _lorikeet lorikeet; fi
""",
    "fish": r"""function __lorikeet_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l candidates (lorikeet _complete $words[2..-1] 2>/dev/null)
    if set -q candidates[1]
        printf '%s\n' $candidates
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c lorikeet -f -a '(__lorikeet_complete)'
""",
}
_INSTALL = """to use it, in the file that your shell reads at its start:
  bash  source <(lorikeet completion bash)
  zsh   source <(lorikeet completion zsh)
  fish  lorikeet completion fish | source"""


def add_commands(commands: Commands) -> None:
    verb = commands.add(
        "completion",
        completion,
        "Print the script by which a shell completes commands and options.",
        "lorikeet completion bash > ~/.local/share/bash-completion/completions/lorikeet",
    )
    verb.add_argument("shell", choices=tuple(_SCRIPTS))
    verb.epilog = f"{verb.epilog}\n\n{_INSTALL}"


def completion(args: Namespace, _: Client) -> Output:
    return Output(text=_SCRIPTS[args.shell].rstrip("\n"))


def candidates(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """Return the commands, options and values that can complete the last of the words after `lorikeet`.

    Nothing is returned where a file, a name or another value of the caller's stands.
    """
    *before, last = words or [""]
    values: list[str] | None = None
    for word in before:
        verbs = _verbs(parser)
        option = parser._option_string_actions.get(word)
        if option is not None:
            values = [str(choice) for choice in option.choices or ()] if option.nargs != 0 else None
            continue
        if values is None and word in verbs:
            parser = verbs[word]
        values = None
    if values is not None:
        return [value for value in values if value.startswith(last)]
    if last.startswith("-"):
        return sorted(option for option in parser._option_string_actions if option.startswith(last))
    places = (action for action in parser._actions if not action.option_strings and action.choices)
    return [str(choice) for place in places for choice in place.choices or () if str(choice).startswith(last)]


def _verbs(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}
