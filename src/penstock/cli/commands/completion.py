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
# After these words a setting of a topic may stand, as NAME=VALUE or by its name alone.
_TAKE_TOPIC_SETTINGS = {" topic set": "=", " topic unset": ""}
# After this option a key of the configuration may stand, as KEY=VALUE.
_SET_OPTION = "--set"
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
    # What may stand beside the options, and begins with the name of a setting.
    settings: tuple[str, ...] = ()


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
    fixed += [(word, config_settings()) for _, word in flags if word == _SET_OPTION]
    words = [(str(choice), "") for action in actions if not action.option_strings and action not in subs
             for choice in action.choices or ()]  # fmt: skip
    yield CompletionPoint(
        at,
        (*((name, helps.get(name, "")) for name in named), *words),
        tuple((word, action.help or "") for action, word in flags),
        tuple(fixed),
        topic_settings(_TAKE_TOPIC_SETTINGS[at]) if at in _TAKE_TOPIC_SETTINGS else (),
    )
    for name, chosen in named.items():
        yield from _walk(chosen, f"{at} {name}")


def config_settings() -> tuple[str, ...]:
    """Return the keys of the configuration as they begin a word, with their values where these are few."""
    from penstock.config import Kind
    from penstock.node.services import schema

    words: list[str] = []
    for name, key in sorted(schema().keys.items()):
        values = key.choices or (("true", "false") if key.kind is Kind.BOOL else ())
        words += [f"{name}={value}" for value in values] or [f"{name}="]
    return tuple(words)


def topic_settings(sign: str) -> tuple[str, ...]:
    """Return the settings of a topic, with a sign behind each; where one is to be set, with its values if they are few.

    A table's own are named with it (`dedup.window_s=`).
    """
    from penstock.contracts.mailbox import TopicSettings

    return tuple(_setting_words(TopicSettings, "", sign))


def _setting_words(kind: type, prefix: str, sign: str) -> Iterator[str]:
    import msgspec

    for field in msgspec.structs.fields(kind):
        name = f"{prefix}{field.encode_name}"
        inner, values = _inside(field.type)
        if inner is not None and sign:
            yield from _setting_words(inner, f"{name}.", sign)
        elif values and sign:
            yield from (f"{name}{sign}{value}" for value in values)
        else:
            yield f"{name}{sign}"


def _inside(annotation: object) -> tuple[type | None, tuple[str, ...]]:
    """Return the struct that a field holds, and the few values that it takes."""
    import msgspec

    shapes = msgspec.inspect.type_info(annotation)
    inner, values = None, list[str]()
    for shape in getattr(shapes, "types", (shapes,)):
        if isinstance(shape, msgspec.inspect.StructType):
            inner = shape.cls
        elif isinstance(shape, msgspec.inspect.LiteralType):
            values += map(str, shape.values)
        elif isinstance(shape, msgspec.inspect.BoolType):
            values += ("true", "false")
    return inner, tuple(values)


def _chains(found: list[CompletionPoint]) -> list[str]:
    return [place.at for place in found if place.at]


def _words(place: CompletionPoint) -> list[str]:
    return [word for word, _ in (*place.commands, *place.options)]


def _bash(found: list[CompletionPoint]) -> str:
    chains = "|".join(f'"{at}"' for at in _chains(found))
    values = [
        f'        "{place.at} {option}") words="{" ".join(choices)}" ;;'
        for place in found
        for option, choices in place.choices
    ]
    words = [f'        "{place.at}") words="{" ".join((*_words(place), *place.settings))}" ;;' for place in found]
    return "\n".join(
        [
            "# penstock completion bash",
            "_penstock() {",
            '    local at="" word words="" i before=""',
            '    local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD - 1]}"',
            "    # Bash splits a word at each = and takes the last part for the one to complete.",
            '    if [ "$cur" = "=" ]; then before="$prev="; cur=""; prev="${COMP_WORDS[COMP_CWORD - 2]}"',
            '    elif [ "$prev" = "=" ]; then',
            '        before="${COMP_WORDS[COMP_CWORD - 2]}="; prev="${COMP_WORDS[COMP_CWORD - 3]}"',
            "    fi",
            "    for ((i = 1; i < COMP_CWORD; i++)); do",
            '        word="$at ${COMP_WORDS[i]}"',
            '        case "$word" in',
            f'        {chains}) at="$word" ;;',
            "        esac",
            "    done",
            '    case "$at $prev" in',
            *values,
            "    esac",
            '    [ -n "$words" ] || case "$at" in',
            *words,
            "    esac",
            '    [[ "$cur" == -* ]] || case "$at" in',
            f'        {_QUOTED_TOPICS}) words="$words $({_ASK_TOPICS})" ;;',
            "    esac",
            '    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$before$cur")',
            '    COMPREPLY=("${COMPREPLY[@]#"$before"}")',
            "    # What ends with = goes on with its value.",
            '    [[ "${COMPREPLY[*]}" == *= ]] && compopt -o nospace 2>/dev/null',
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
        f"{' '.join(_quoted(_described(*pair)) for pair in (*place.commands, *place.options, *_bare(place)))}) ;;"
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
            "    # What ends with = goes on with its value.",
            "    local -a open=(${(M)found:#*=}) found=(${found:#*=})",
            "    (( $#open )) && compadd -S '' -a open",
            "    _describe penstock found || (( $#open )) || _files",
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
        if place.settings:
            lines.append(f"{when} -f -a {_quoted(' '.join(place.settings))}")
        for option, text in place.options:
            name = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
            values = f" -x -a {_quoted(' '.join(choices[option]))}" if option in choices else ""
            lines.append(f"{when} {name}{values} -d {_quoted(text)}")
    topics = f"(type -q penstock; and {_ASK_TOPICS})"
    lines += [f"complete -c penstock -n \"__penstock_at '{at}'\" -f -a '{topics}'" for at in _TAKE_TOPICS]
    return "\n".join([*lines, ""])


def _bare(place: CompletionPoint) -> list[tuple[str, str]]:
    return [(word, "") for word in place.settings]


def _described(word: str, text: str) -> str:
    """Write a word and what it does as zsh's `_describe` reads them."""
    return f"{word.replace(':', chr(92) + ':')}:{text}" if text else word


def _quoted(text: str) -> str:
    """Quote as zsh and fish both read it."""
    return "'" + text.replace("%%", "%").replace("'", "'\\''") + "'"


_WRITERS: dict[str, Callable[[list[CompletionPoint]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
