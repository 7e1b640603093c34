"""Every option that a hint, an error, a help text or a page names is one that the command beside it has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli.commands.completion import places

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "penstock"
OPTIONS = {place.at.strip(): {word for word, _ in place.options} for place in places()}
EVERY = set().union(*OPTIONS.values())
# What every command that asks a node has, and what `up` has: a hint from anywhere may name one of these alone.
SHARED = OPTIONS["topics"] & OPTIONS["status"] | OPTIONS["up"]
# Modules of the command line that speak for one command alone.
SPEAKS_FOR = {
    "cli/payloads.py": ("get", "peek"),
    "cli/token_roles.py": ("token issue",),
    "cli/token_revoking.py": ("token revoke", "token issue"),
    "cli/webhook_signing.py": ("webhook sign",),
    "cli/confirming.py": ("purge",),
    "cli/asking.py": ("recv",),
    "cli/settling.py": ("recv",),
    "lint/cli.py": ("lint",),
    "lint/__init__.py": ("lint",),
    "services/dht/sim/plot.py": ("dht sim",),
    "services/omnigate/proxy/route_admin.py": ("route add",),
}
# Options that pages name and penstock does not have, by whose they are.
FOREIGN = {
    "--network": "docker",
    "--memory": "docker",
    "--enable-optimizations": "the build of Python",
    "--realtime": "the benchmarks",
    "--idle": "the benchmarks",
    "--acceptance": "the benchmarks",
    "--backlog": "the benchmarks",
}
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
_PROGRAM = re.compile(
    r"(?:\./)?scripts/[\w-]+|pytest|python -m [\w.]+|uvx|pip|docker|systemctl|chown|curl|penstock(?= )"
)
_SPAN = re.compile(r"`([^`\n]+)`")
_BLOCK = re.compile(r"```\w*\n(.*?)```|((?:^    .*\n)+)", re.DOTALL | re.MULTILINE)


def command_at(text: str) -> str:
    """Return the longest command that a text begins with, such as `token issue`; empty when there is none."""
    chain = ""
    for word in text.split():
        longer = f"{chain} {word}".strip()
        if longer not in OPTIONS:
            break
        chain = longer
    return chain


def strange(text: str, known: set[str]) -> list[str]:
    """Return the options of a text that the command before them does not have, or that are not `known` without one."""
    return [match[0] for match in _OPTION.finditer(text) if match[0] not in allowed(text, match.start(), known)]


def allowed(text: str, at: int, known: set[str]) -> set[str]:
    """Return the options that may stand at this place of a text: behind another program's name, any."""
    for program in reversed(list(_PROGRAM.finditer(text, 0, at))):
        if program[0] != "penstock":
            return set(_OPTION.findall(text))
        if chain := command_at(text[program.end() : at]):
            return OPTIONS[chain]
    chain = command_at(text[:at])
    return OPTIONS[chain] if chain else known


# --- the source


def texts(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Give the texts of a module, those with values in them whole."""
    parts = {id(value) for node in ast.walk(module) if isinstance(node, ast.JoinedStr) for value in node.values}
    for node in ast.walk(module):
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(v.value if isinstance(v, ast.Constant) else "_" for v in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.lineno, node.value


def known_in(file: Path) -> set[str]:
    """Return the options that a text of this module may name alone."""
    name = str(file.relative_to(SOURCE))
    commands: tuple[str, ...] = SPEAKS_FOR.get(name, ())
    if name.startswith("cli/commands/"):
        commands = (file.stem,)
    own = (options for at, options in OPTIONS.items() if any(f"{at} ".startswith(f"{each} ") for each in commands))
    return SHARED.union(*own, {"--help", "--version"})


def test_what_the_source_names_is_there() -> None:
    found = [
        f"{file.relative_to(SOURCE)}:{line}: {option}"
        for file in sorted(SOURCE.rglob("*.py"))
        for line, text in texts(ast.parse(file.read_text()))
        # The declaration of an option, and what it is compared with, is no text for people.
        if not re.fullmatch(r"-\S*", text)
        for option in strange(text, known_in(file))
    ]

    assert found == []


# --- the pages


def sections(page: str) -> Iterator[tuple[set[str], str]]:
    """Give the parts of the page about the command line, each with the options of the commands in its heading."""
    for part in re.split(r"^(?=## )", page, flags=re.MULTILINE):
        heading = part.partition("\n")[0]
        named = [command_at(span.removeprefix("penstock ")) for span in _SPAN.findall(heading)]
        commands = [each for each in named if each]
        own = [options for at, options in OPTIONS.items() if any(f"{at} ".startswith(f"{each} ") for each in commands)]
        yield (SHARED.union(*own) if commands else EVERY) | {"--version"}, part


def code_of(page: str) -> Iterator[str]:
    """Give the code of a page: spans, and the lines of blocks."""
    for match in _BLOCK.finditer(page):
        yield from (match[1] or match[2]).replace("\\\n", " ").splitlines()
    yield from _SPAN.findall(_BLOCK.sub("", page))


PAGES = sorted(
    page
    for folder in ("docs", "examples", "deploy")
    for page in (ROOT / folder).rglob("*.md")
    if "decisions" not in page.parts and "_generated" not in page.parts
)


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_is_there(page: Path) -> None:
    told = page.read_text()
    parts = sections(told) if page.name == "cli.md" else [(EVERY | FOREIGN.keys(), told)]

    assert [(code, bad) for known, part in parts for code in code_of(part) if (bad := strange(code, known))] == []


@pytest.mark.parametrize(
    "text",
    [
        "Issue it as --aud svc-mailbox.",
        "see penstock token issue --aud svc-mailbox",
        "penstock dlq redrive orders --yes",
        "penstock topics --max 3 and more",
    ],
)
def test_an_option_that_the_command_lacks_is_found(text: str) -> None:
    assert len(strange(text, SHARED)) == 1


def test_an_option_of_another_program_is_not_looked_for() -> None:
    assert strange("./scripts/test --full; pip wheel --no-deps -w dist .", SHARED) == []
