"""`penstock completion`: a script for bash, zsh or fish, made from the same parsers that read the commands."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_WHERE = {
    "bash": "source <(penstock completion bash)      # or into ~/.local/share/bash-completion/completions/penstock",
    "zsh": "penstock completion zsh > ~/.zfunc/_penstock      # a folder of your $fpath",
    "fish": "penstock completion fish > ~/.config/fish/completions/penstock.fish",
}


# After these words a topic may stand; its names are asked of the node, which may not be there.
_TAKE_TOPICS = (
    *(" send", " recv", " peek", " purge", " topics"),
    *(" dlq list", " dlq peek", " dlq show", " dlq redrive", " dlq delete"),
    *(" topic set", " topic unset", " topic show", " topic delete"),
)
_QUOTED_TOPICS = "|".join(f'"{at}"' for at in _TAKE_TOPICS)
_ASK_TOPICS = "penstock topics --names --timeout 1s 2>/dev/null"


@dataclass(frozen=True, slots=True)
class CompletionPoint:
    """What may follow a chain of command words, as ` dlq list` (empty at the start)."""

    at: str
    # A word and what it does.
    commands: tuple[tuple[str, str], ...]
    options: tuple[tuple[str, str], ...]
    # What may follow an option, for those with a fixed set.
    choices: tuple[tuple[str, tuple[str, ...]], ...]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("shell", choices=tuple(_WHERE), help="; ".join(_WHERE.values()))


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    sys.stdout.write(_WRITERS[args.shell](list(places())))
    return 0


def places() -> Iterator[CompletionPoint]:
    """Walk the whole tree of commands."""
    from penstock.cli import COMMANDS, parser_of
    from penstock.lint.cli import command

    for place in _walk(parser_of(COMMANDS), ""):
        yield next(_walk(command(), place.at)) if place.at == " lint" else place


def _walk(parser: argparse.ArgumentParser, at: str) -> Iterator[CompletionPoint]:
    actions = parser._actions  # noqa: SLF001 - argparse offers no other way to read a parser
    subs = [action for action in actions if isinstance(action, argparse._SubParsersAction)]  # noqa: SLF001 - see above
    helps = {each.dest: each.help or "" for sub in subs for each in sub._choices_actions}  # noqa: SLF001 - see above
    named = {name: chosen for sub in subs for name, chosen in sub.choices.items()}
    flags = [(action, word) for action in actions for word in action.option_strings]
    fixed = [(word, tuple(map(str, action.choices))) for action, word in flags if action.choices]
    words = [(str(choice), "") for action in actions if not action.option_strings and action not in subs
             for choice in action.choices or ()]  # fmt: skip
    yield CompletionPoint(
        at,
        (*((name, helps.get(name, "")) for name in named), *words),
        tuple((word, action.help or "") for action, word in flags),
        tuple(fixed),
    )
    for name, chosen in named.items():
        yield from _walk(chosen, f"{at} {name}")


def _chains(found: list[CompletionPoint]) -> list[str]:
    return [place.at for place in found if place.at]


def _bash(found: list[CompletionPoint]) -> str:
    chains = "|".join(f'"{at}"' for at in _chains(found))
    values = [
        f'        "{place.at} {option}") words="{" ".join(choices)}" ;;'
        for place in found
        for option, choices in place.choices
    ]
    words = [
        f'        "{place.at}") words="{" ".join(word for word, _ in (*place.commands, *place.options))}" ;;'
        for place in found
    ]
    return "\n".join(
        [
            "# penstock completion bash",
            "_penstock() {",
            '    local at="" word words="" i',
            "    for ((i = 1; i < COMP_CWORD; i++)); do",
            '        word="$at ${COMP_WORDS[i]}"',
            '        case "$word" in',
            f'        {chains}) at="$word" ;;',
            "        esac",
            "    done",
            '    case "$at ${COMP_WORDS[COMP_CWORD - 1]}" in',
            *values,
            "    esac",
            '    [ -n "$words" ] || case "$at" in',
            *words,
            "    esac",
            '    [[ "${COMP_WORDS[COMP_CWORD]}" == -* ]] || case "$at" in',
            f'        {_QUOTED_TOPICS}) words="$words $({_ASK_TOPICS})" ;;',
            "    esac",
            '    mapfile -t COMPREPLY < <(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}")',
            "}",
            "# Where we know nothing better, files.",
            "complete -o default -F _penstock penstock",
            "",
        ]
    )


def _zsh(found: list[CompletionPoint]) -> str:
    chains = "|".join(f'"{at}"' for at in _chains(found))
    values = [
        f'        "{place.at} {option}") found=({" ".join(map(_quoted, choices))}) ;;'
        for place in found
        for option, choices in place.choices
    ]
    words = [
        f'        "{place.at}") found=('
        f"{' '.join(_quoted(_described(*pair)) for pair in (*place.commands, *place.options))}) ;;"
        for place in found
    ]
    return "\n".join(
        [
            "#compdef penstock",
            "# penstock completion zsh",
            "_penstock() {",
            '    local at="" word',
            "    local -a found",
            "    for word in ${words[2,CURRENT-1]}; do",
            '        case "$at $word" in',
            f'        {chains}) at="$at $word" ;;',
            "        esac",
            "    done",
            '    case "$at ${words[CURRENT-1]}" in',
            *values,
            "    esac",
            '    (( $#found )) || case "$at" in',
            *words,
            "    esac",
            '    [[ "${words[CURRENT]}" == -* ]] || case "$at" in',
            f'        {_QUOTED_TOPICS}) found+=(${{${{(f)"$({_ASK_TOPICS})"}}//:/\\\\:}}) ;;',
            "    esac",
            "    _describe penstock found || _files",
            "}",
            "# In a folder of $fpath this file is the function's body and must also answer the first call;",
            "# a file that is sourced only defines the function.",
            'if [ "$funcstack[1]" = _penstock ]; then _penstock "$@"; else compdef _penstock penstock; fi',
            "",
        ]
    )


def _fish(found: list[CompletionPoint]) -> str:
    lines = [
        "# penstock completion fish",
        "function __penstock_at",
        '    set -l at ""',
        "    for word in (commandline -opc)[2..-1]",
        '        switch "$at $word"',
        f"            case {' '.join(map(_quoted, _chains(found)))}",
        '                set at "$at $word"',
        "        end",
        "    end",
        '    test "$at" = "$argv[1]"',
        "end",
    ]
    for place in found:
        when = f"complete -c penstock -n \"__penstock_at '{place.at}'\""
        choices = dict(place.choices)
        lines += [f"{when} -f -a {word} -d {_quoted(text)}" for word, text in place.commands]
        for option, text in place.options:
            name = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
            values = f" -x -a {_quoted(' '.join(choices[option]))}" if option in choices else ""
            lines.append(f"{when} {name}{values} -d {_quoted(text)}")
    topics = f"(type -q penstock; and {_ASK_TOPICS})"
    lines += [f"complete -c penstock -n \"__penstock_at '{at}'\" -f -a '{topics}'" for at in _TAKE_TOPICS]
    return "\n".join([*lines, ""])


def _described(word: str, text: str) -> str:
    """Write a word and what it does as zsh's `_describe` reads them."""
    return f"{word.replace(':', chr(92) + ':')}:{text}" if text else word


def _quoted(text: str) -> str:
    """Quote as zsh and fish both read it."""
    return "'" + text.replace("%%", "%").replace("'", "'\\''") + "'"


_WRITERS: dict[str, Callable[[list[CompletionPoint]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
