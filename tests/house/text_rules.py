"""Tidy rules for texts: each takes a tree and returns one sentence a fault."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from tests.house.tree import Tree

SCRIPT_LINES_MAX = 130
_FRAGMENT = re.compile(r"changes/\+[a-z0-9]+(-[a-z0-9]+)*\.(feature|change|fix|removal|docs)\.md")
_FRAGMENT_CHARACTERS_MAX = 500
_LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^(#{1,6}) +(.+?) *$", re.MULTILINE)
_CODE = re.compile(r"^(```|~~~).*?^\1|^(?: {4}|\t).*?$", re.MULTILINE | re.DOTALL)

# Brackets keep each pattern from finding itself.
_UNFINISHED = re.compile(r"\b(TO[D]O|FIX[M]E|XX[X]|HA[C]K)\b")
_MACHINE_PATH = re.compile(r"(?<![\w.$}*-])/(?:hom[e]|Use[r]s|roo[t]|wor[k]|mn[t])/\w")
_REGISTRY = re.compile(r"pypi\.or[g]|pythonhoste[d]|--(?:extra-)?index-ur[l]|--find-link[s]|registry\.npmj[s]")
_TICKET = re.compile(r"(?i)\b(?:issu[e]|pul[l] request|p[r]|g[h])[ -]?#?\d+\b|\(#\d+\)")


def _hits(tree: Tree, pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{path}:{number}: {found[0].strip()}"
        for path, text in tree.written()
        for number, line in enumerate(text.splitlines(), 1)
        if (found := pattern.search(line))
    ]


def nothing_is_left_for_later(tree: Tree) -> list[str]:
    """What is not done is not promised in a comment."""
    return _hits(tree, _UNFINISHED)


def no_path_of_one_machine(tree: Tree) -> list[str]:
    """What works in one home directory works in one home directory."""
    return _hits(tree, _MACHINE_PATH)


def no_registry_is_named(tree: Tree) -> list[str]:
    """Where packages come from is the business of the one who installs."""
    return _hits(tree, _REGISTRY)


def no_ticket_is_named(tree: Tree) -> list[str]:
    """A reason stands where it is needed, not behind a number."""
    return _hits(tree, _TICKET)


def lines_end_clean(tree: Tree) -> list[str]:
    """No blanks at the end of a line, and a newline at the end of a file."""
    found = []
    for path, text in tree.written():
        if text and "/fixtures/" not in path and "/vectors/" not in path:
            found += [
                f"{path}:{n}: trailing blanks" for n, line in enumerate(text.split("\n"), 1) if line != line.rstrip()
            ]
            found += [] if text.endswith("\n") else [f"{path}: no newline at the end"]
    return found


def pages_have_one_title(tree: Tree) -> list[str]:
    """A page begins with its title, and has one."""
    found = []
    for path, text in tree.markdown():
        levels = [len(marks) for marks, _ in _headings(text)]
        if not path.startswith("changes/+") and (levels[:1] != [1] or levels.count(1) != 1):
            found.append(f"{path}: {levels.count(1)} titles, or not at the top")
    return found


def _headings(text: str) -> list[tuple[str, str]]:
    return _HEADING.findall(_CODE.sub("", text))


def links_resolve(tree: Tree) -> list[str]:
    """A link leads to a page, and its anchor to a heading."""
    return [
        f"{path}: {target} leads nowhere"
        for path, text in tree.markdown()
        for target in _LINK.findall(_CODE.sub("", text))
        if "://" not in target and not target.startswith("mailto:") and not _resolves(tree, path, target)
    ]


def _resolves(tree: Tree, page: str, target: str) -> bool:
    where, _, anchor = target.partition("#")
    goal = posixpath.normpath(posixpath.join(posixpath.dirname(page), where)) if where else page
    is_folder = any(path.startswith(f"{goal}/") for path in tree.texts)
    return is_folder or (goal in tree.texts and (not anchor or anchor in _anchors(tree.texts[goal])))


def _anchors(text: str) -> Iterator[str]:
    for _, title in _headings(text):
        yield re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def pages_are_reachable(tree: Tree) -> list[str]:
    """Every page of docs/ is linked from another page."""
    linked = {
        posixpath.normpath(posixpath.join(posixpath.dirname(path), target.partition("#")[0]))
        for path, text in tree.markdown()
        for target in _LINK.findall(text)
    }
    return [
        f"{path}: no page links to it"
        for path, _ in tree.markdown()
        if path.startswith("docs/") and path != "docs/README.md" and not _is_linked(path, linked)
    ]


def _is_linked(path: str, linked: set[str]) -> bool:
    return path in linked or posixpath.dirname(path) in linked


def fragments_are_well_formed(tree: Tree) -> list[str]:
    """A fragment of the changelog is named by kind and is a few whole sentences."""
    found = []
    for path, text in tree.markdown():
        if not path.startswith("changes/") or path == "changes/README.md":
            continue
        if not _FRAGMENT.fullmatch(path):
            found.append(f"{path}: not named +<slug>.<kind>.md")
        if not re.fullmatch(r"[A-Z`].*\.", text.strip(), re.DOTALL) or len(text) > _FRAGMENT_CHARACTERS_MAX:
            found.append(f"{path}: not one to three sentences")
    return found


def scripts_are_short_and_strict(tree: Tree) -> list[str]:
    """A script is bash, says what it does, stops at the first fault, and is short."""
    found = []
    for path, text in tree.texts.items():
        if path.startswith(("scripts/", ".ci/")) and not path.endswith((".py", ".md")):
            lines = text.splitlines()
            well_begun = lines[:1] == ["#!/usr/bin/env bash"] and lines[1:2] != [] and lines[1].startswith("# ")
            if not well_begun or "set -euo pipefail" not in lines:
                found.append(f"{path}: needs the bash line, a sentence and set -euo pipefail")
            if len(lines) > SCRIPT_LINES_MAX:
                found.append(f"{path}: {len(lines)} lines, at most {SCRIPT_LINES_MAX}")
    return found
